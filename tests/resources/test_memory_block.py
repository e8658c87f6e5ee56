"""A block of memory: the work that its next user comes after."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import gpu
from headrace._runtime import ManagedStream, create_event
from headrace.gpu import sim
from headrace.resources.memory_block import Block, StreamUse
from tests.harness import MS


def user(device_id: int = 0) -> StreamUse:
    with gpu.on_device(device_id):
        stream = gpu.Device(device_id).create_stream()
    return StreamUse(ManagedStream(stream, device_id, lambda: create_event(device_id)))


def busy(use: StreamUse, seconds: float = MS) -> None:
    """Launch work on a stream."""
    with gpu.on_device(use.managed.device_id):
        stream: Any = use.managed.stream
        sim.launch(stream, sim.LaunchConfig(grid=1, block=32), sim.Kernel("k", seconds, lambda: None))


def block() -> Block:
    return Block(gpu.LegacyPinnedMemoryResource().allocate(64), 64)


def done_at(machine: sim.Machine, use: StreamUse) -> float:
    """Return when a stream has passed what it was told so far."""
    with gpu.on_device(use.managed.device_id):
        use.managed.now().sync()
    return machine.now


class DefaultStream:
    """The default stream of the second device, by an object that says whose it is."""

    device_id = 1

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0


@pytest.mark.parametrize("named", [(0, 1), (DefaultStream(), 0)], ids=["by its device", "by itself"])
def test_default_streams_of_two_devices_are_two_streams(named: tuple[Any, int]) -> None:
    """They have one handle, and each works on the block."""
    with sim.Machine("l4", devices=2) as machine:
        sim.Device(0).set_current()
        made = block()
        first, second = StreamUse.of(0, 0), StreamUse.of(*named)
        assert [use.managed.device_id for use in (first, second)] == [0, 1]
        busy(first)
        made.record([first])
        made.order(second.managed)
        assert done_at(machine, second) >= MS


@pytest.mark.parametrize("moment", ["an event is made", "the host waits"])
def test_a_stream_that_another_thread_closes_while_a_block_comes_back_is_done(
    machine: sim.Machine, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run closes its streams after their work, and may end while a frame is dropped."""
    made, use = block(), user()
    stream: Any = use.managed.stream
    sync = sim.Stream.sync

    def refuse() -> Any:
        if moment == "an event is made":
            stream.close()
        raise RuntimeError("this stream has been closed")

    def sync_late(self: Any) -> None:
        if self is stream:
            stream.close()
        sync(self)

    use.managed.create_event = refuse
    monkeypatch.setattr(sim.Stream, "sync", sync_late)
    made.record([use])
    assert made.is_complete() is (moment == "an event is made")
    made.order(None)
    assert not made.waits


def test_the_host_hears_why_it_cannot_wait_for_a_stream(machine: sim.Machine) -> None:
    made, use = block(), user()
    machine.fail("a kernel", ZeroDivisionError())
    made.record([use])
    with pytest.raises(sim.CUDAError, match="LAUNCH_FAILED"):
        made.order(None)
    assert made.waits
