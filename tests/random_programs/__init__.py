"""Random programs, of which each is made from a seed and checked for what holds of every program.

`graphs` are graphs of operators without a device: every message is delivered once and in order, or is counted as
dropped or left. `frames` are programs that hold, change, drop and pass on frames of a device: no frame is wrong.

``pytest tests/random_programs`` runs a fixed part of them, ``python -m tests.random_programs`` new ones.
"""
