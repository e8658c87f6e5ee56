"""Replicas: an operator with ``workers=4`` becomes several that run at once. Private to headrace.

`expansion` replaces the operator in the composed graph: by one that distributes its messages, the replicas, and one
that collects their results. `crew` has these two, and what they share with the replicas. `process_replica` is a
replica that computes in a process of its own; `headrace.application.child` runs there.
"""
