"""UnixCarrier: what is wrong with a packet whose descriptors did not come."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.core.errors import LinkError
from headrace.link.carrier import UnixCarrier
from headrace.link.protocol import Kind, pack_message


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
    near.send(pack_message(Kind.SEGMENT, b""), descriptors=[0])
    with no_file_left(), pytest.raises(LinkError, match=r"may have \d+ files open, and has; allow"):
        far.receive()
    near.close()
    far.close()
