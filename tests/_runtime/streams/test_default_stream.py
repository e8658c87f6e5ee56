"""A stream as the object of each library, from stand-ins of those that are not installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace import CountCondition, gpu
from headrace._runtime.streams.stream_source import DEFAULT_STREAM, default_handle
from headrace.gpu import sim
from headrace.resources import CudaStreamPool
from tests._runtime.streams.pipelines import Sending, read_late
from tests.harness import (
    MS,
    MakeScheduler,
    Step,
    frame,
    launch,
    run,
    write_frame,
)
from tests.harness.libraries import stand_in


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(
        monkeypatch,
        "cupy",
        cuda=SimpleNamespace(
            get_current_stream=None,
            Stream=SimpleNamespace(from_external=lambda stream: ("cupy", int(stream)), null="cupy's default"),
        ),
    )
    stand_in(
        monkeypatch,
        "torch",
        Tensor=SimpleNamespace(untyped_storage=None),
        cuda=SimpleNamespace(
            current_stream=None,
            ExternalStream=lambda stream, device: ("torch", int(stream), *([device] if device else [])),
            default_stream=lambda device=0: f"torch's default{f' of {device}' if device else ''}",
        ),
    )
    stand_in(
        monkeypatch,
        "numba",
        cuda=SimpleNamespace(
            external_stream=lambda address: ("numba", address), default_stream=lambda: "numba's default"
        ),
    )
    stand_in(
        monkeypatch,
        "cvcuda",
        as_stream=lambda address: ("cvcuda", address),
        Stream=SimpleNamespace(default="cvcuda's default"),
    )


LIBRARIES = ["cupy", "torch", "numba", "cvcuda"]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.usefixtures("libraries")
def test_a_handle_gives_the_librarys_own_object_once(library: str) -> None:
    with sim.Machine("h200"):
        device = sim.Device(0)
        device.set_current()
        handle = gpu.StreamHandle(device.create_stream())
        found = getattr(handle, library)()
        assert found == (library, int(handle))
        assert getattr(handle, library)() is found


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.usefixtures("libraries")
def test_the_default_stream_is_the_librarys_default(library: str) -> None:
    assert getattr(DEFAULT_STREAM, library)() == f"{library}'s default"


@pytest.mark.usefixtures("libraries")
def test_pytorch_is_told_the_device_of_a_stream() -> None:
    with sim.Machine("h200", devices=2):
        sim.Device(1).set_current()
        handle = gpu.StreamHandle(sim.Device(1).create_stream())
        sim.Device(0).set_current()
        assert handle.torch() == ("torch", int(handle), 1)
    assert default_handle(1).torch() == "torch's default of 1"


def test_a_default_stream_says_whose_it_is() -> None:
    assert repr(DEFAULT_STREAM) == "StreamHandle(default)"
    assert repr(default_handle(1)) == "StreamHandle(default of device 1)"


def reading_on_default(app: Any, frames: int, emits: bool = False) -> None:
    """A sender, and a reader on the default stream of streams that do not follow it by themselves."""
    app.seen = []
    app.most = app.launched = 0
    pool = CudaStreamPool(app, stream_flags=1, max_size=8)

    def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        op_input.receive_cuda_stream("in", sync_to_default=True)
        default = gpu.StreamHandle(gpu.LEGACY_DEFAULT_STREAM)
        app.launched += 1
        read_late(app, default, data)
        app.most = max(app.most, app.launched - len(app.seen))
        if emits:
            result = frame(default)
            write_frame(default, MS, result, self.ticks)
            op_output.emit(result, "out")

    sender = Sending(app, CountCondition(app, frames), pool, name="sender")
    app.taker = Step(app, pool, inputs=("in",), outputs=("out",) if emits else (), body=take, name="taker")
    app.add_flow(sender, app.taker)
    app.pool = pool


def test_a_reader_on_the_default_stream_is_waited_for(machine: sim.Machine, scheduler: MakeScheduler) -> None:
    app = run(lambda app: reading_on_default(app, 30), scheduler)
    assert app.seen == list(range(30))  # when run() returned, and each of them right
    assert app.most <= 8


def test_work_that_stop_launches_is_complete_when_run_returns() -> None:
    done: list[int] = []

    class Stopping(Step):
        def stop(self) -> None:
            launch(self.stream, 5 * MS, lambda: done.append(1))

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            self.stream = context.allocate_cuda_stream("s")

        app.add_operator(Stopping(app, CountCondition(app, 1), body=body, name="stopping"))

    run(compose)
    assert done == [1]
