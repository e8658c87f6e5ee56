"""Pipelines on two devices: frames are handed over, slices and the end of the run belong to each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, as_tensor, gpu
from headrace.gpu import sim
from headrace.resources import CudaGreenContextPool, CudaStreamPool
from tests._runtime.streams.devices.operators import sink, source
from tests.harness import MS, App, MakeScheduler, Step, launch, run
from tests.harness.producers import Library


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0), (1, 1)])
def test_frames_are_handed_over_between_devices(scheduler: MakeScheduler, first: int, second: int) -> None:
    seen: list[int] = []
    run(lambda app: app.add_flow(source(app, first, 30), sink(app, second, seen)), scheduler)
    assert seen == list(range(30))


def test_two_flows_on_two_devices_do_not_wait_for_each_other(
    machine: sim.Machine, scheduler: MakeScheduler
) -> None:
    seen: dict[int, list[int]] = {0: [], 1: []}

    def compose(app: Any) -> None:
        for n in (0, 1):
            app.add_flow(
                source(app, n, 20, (n + 1) * MS, name=f"source{n}"), sink(app, n, seen[n], name=f"sink{n}")
            )

    run(compose, scheduler)
    assert seen == {0: list(range(20)), 1: list(range(20))}
    assert machine.now < 1.2 * 20 * 2 * MS  # as long as the slower one takes, not as both


def array_of_sevens(stream: gpu.StreamHandle) -> Library:
    """Return an array that a stream is about to fill."""
    array = Library()
    launch(stream, 5 * MS, lambda: np.frombuffer(array.memory, np.int64, 1).fill(7))
    return array


def read_array(stream: Any, array: Library, seen: list[int]) -> None:
    """Read an array on the stream of a library, and wait for it."""
    kernel = sim.Kernel("read", MS, lambda: seen.append(np.frombuffer(array.memory, np.int64, 1)[0]))
    sim.launch(stream, sim.LaunchConfig(grid=1, block=32), kernel)
    stream.sync()


@pytest.mark.parametrize("named", ["theirs", "the default one"])
@pytest.mark.parametrize("follows", [True, False])
def test_a_tensor_is_ordered_for_a_library_on_another_device(follows: bool, named: str) -> None:
    """As a library does that has streams of its own: it names one of them when it takes a tensor."""
    seen: list[int] = []

    def compose(app: Any) -> None:
        def make(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("own")
            op_output.set_cuda_stream(stream, "out")
            op_output.emit({"frame": as_tensor(array_of_sevens(stream), stream=stream)}, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            tensor = op_input.receive("in")["frame"]
            sim.Device(1).set_current()
            theirs = sim.Device(1).create_stream() if named == "theirs" else gpu.LEGACY_DEFAULT_STREAM
            if follows:
                op_input.receive_cuda_stream("in")  # of the first device
                sim.Device(1).set_current()
            tensor.__dlpack__(stream=int(theirs.handle))
            read_array(theirs, tensor.owner, seen)

        maker = Step(
            app, CountCondition(app, 1), CudaStreamPool(app, 0), outputs=("out",), body=make, name="make"
        )
        app.add_flow(maker, Step(app, CudaStreamPool(app, 0), inputs=("in",), body=take, name="take"))

    run(compose)
    assert seen == [7]


@pytest.mark.parametrize(
    "make",
    [
        lambda app: CudaStreamPool(app, 2, name="p"),
        lambda app: CudaGreenContextPool(app, 2, num_partitions=2, name="p"),
    ],
)
def test_a_device_that_is_not_there_is_found_when_the_graph_is_composed(make: Any) -> None:
    def compose(app: Any) -> None:
        app.add_operator(Step(app, make(app), body=lambda *_: None, name="step"))

    with pytest.raises(
        ValueError, match=r"operator 'step': 'p' .* device 2, but there are 2 devices, numbered from 0"
    ):
        App(compose).compose_graph()


def test_a_device_is_not_a_negative_number() -> None:
    for make in (lambda: CudaStreamPool(None, -1), lambda: CudaGreenContextPool(None, -1, num_partitions=2)):
        with pytest.raises(ValueError, match="must be at least 0, not -1"):
            make()
