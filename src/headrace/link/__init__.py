"""The link: frames from one process to another.

One link carries one flow in one direction. Its sender and its receiver (:mod:`headrace.link.end`) are joined by a
carrier: a Unix socket on one host, TCP between hosts.
"""
