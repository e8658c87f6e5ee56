"""The link: frames from one process to another.

One link carries one flow in one direction. Its two ends, :mod:`headrace.link.sender` and
:mod:`headrace.link.receiver`, are joined by a carrier: a Unix socket on one host, TCP between hosts.

| what | files |
| --- | --- |
| what is said when, as a state machine without sockets, memory and clocks | protocol |
| the two ends, and the thread that serves them | end, sender, receiver, loop |
| shared memory of one host | memory |
| messages as bytes and pieces of memory | codec |
| frames on a device | device |
| carriers: Unix sockets, TCP, and TLS on request | carrier, tls |
| who connects, and whether it may | handshake, connect, listener |
| objects that processes of a program send each other, beside frames | channel |
"""
