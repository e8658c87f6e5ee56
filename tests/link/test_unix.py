"""UnixCarrier: what is wrong with a packet whose descriptors did not come."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.core.errors import LinkError, ProtocolError
from headrace.link.protocol import Kind, pack_header
from headrace.link.unix import UnixCarrier


@contextmanager
def no_file_left() -> Iterator[None]:
    """Let the process open no file."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_out_of_descriptors_is_reported_as_that() -> None:
    near, far = map(UnixCarrier, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    near.send(pack_header(Kind.SEGMENT, 0, 0, 0), descriptors=[0])
    with no_file_left(), pytest.raises(LinkError, match=r"may have \d+ files open, and has; allow") as raised:
        far.receive()
    assert not isinstance(raised.value, ProtocolError), "the peer has done nothing wrong"
    near.close()
    far.close()


def test_too_many_descriptors_are_the_fault_of_the_peer() -> None:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    carrier = UnixCarrier(far)
    socket.send_fds(near, [pack_header(Kind.SEGMENT, 0, 0, 0)], [0] * 9)
    with pytest.raises(ProtocolError, match="a packet has more than 4 descriptors"):
        carrier.receive()
    near.close()
    carrier.close()
