"""Random programs, of which each is made from a seed and checked for what holds of every program.

`program` is one as plain data: operators, flows, changes, and how it is run. `making` makes it from a seed,
`building` makes an application of it, `running` runs that, and `model` says what is wrong with what was seen.
`shrinking` makes a program that goes wrong smaller. `plants` are faults that must be found, `combinations` writes
the page of what was combined.

`frames` lets messages be frames of a device, which operators hold, change, drop and pass on: no frame is wrong.
`parts` runs a program in several parts.

``pytest tests/random_programs`` runs a fixed part of them, ``python -m tests.random_programs`` new ones.
"""
