"""The link: frames from one process to another.

One link carries one flow in one direction. Its two ends, :mod:`headrace.link.sender` and
:mod:`headrace.link.receiver`, are joined by a carrier: a Unix socket on one host, TCP between hosts.
"""
