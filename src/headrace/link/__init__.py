"""The link: frames from one process to another.

One link carries one flow in one direction. Its two ends, :mod:`headrace.link.sender` and
:mod:`headrace.link.receiver`, are joined by a carrier: a Unix socket on one host, TCP between hosts.

| what | files | lines of code |
| --- | --- | --- |
| the protocol, as a state machine without sockets, memory and clocks | wire, protocol, terms, failures | 530 |
| its two ends, and the thread that serves them | end, sender, receiver, tail, loop | 1,150 |
| shared memory of one host | ring, sender_memory, board | 350 |
| messages as bytes and pieces of memory | codec | 420 |
| frames on a device | device | 190 |
| carriers: Unix sockets, TCP | carrier, unix, tcp, stream_reader, lingering | 430 |
| a carrier on request: TLS | tls | 90 |
| who connects, and whether it may | handshake, connect, listener, arrivals | 620 |
"""
