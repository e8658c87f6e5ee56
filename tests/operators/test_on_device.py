"""On a device an operator computes what it computes on the host; here the device is simulated.

A simulated kernel has its effect when it ends, and freed memory is used again at once. So a missing wait or a frame
that is let go too early shows as a wrong frame.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, Operator, as_tensor
from headrace.gpu import StreamHandle, sim
from headrace.operators import BayerDemosaicOp, FormatConverterOp
from headrace.resources import CudaStreamPool, UnboundedAllocator
from headrace_holoscan.ready import InferenceProcessorOp
from tests.harness import MakeScheduler, launch, run, sink
from tests.operators.cases import CASES, Case, random
from tests.operators.on_device import DeviceSource, Sink, run_on_device


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_frame_in_device_memory_is_processed_there(case: Case, machine: sim.Machine) -> None:
    seen = run_on_device(case)
    np.testing.assert_array_equal(seen.arrays[0], case.on_host())
    if (
        case.kind is not InferenceProcessorOp
    ):  # whose results are in host memory unless transmit_on_cuda is set
        assert seen.devices == ["cuda:0"]
    assert machine.now > 0, "nothing ran on the device"


def test_a_view_on_a_device_stays_what_it_was(machine: sim.Machine, scheduler: MakeScheduler) -> None:
    """Its memory is that of the source's frame, which must not be used for another one meanwhile."""
    frames = [random(np.uint8, 16, 20, 3, seed=seed) for seed in range(12)]
    view = {"out_dtype": "rgb888", "out_layout": "nhwc", "copy": False}
    seen = run_on_device(Case(FormatConverterOp, frames[0], view), frames, scheduler=scheduler)
    assert seen.devices == ["cuda:0"] * 12
    for frame, result in zip(frames, seen.arrays, strict=True):
        np.testing.assert_array_equal(result, frame[None])


def test_an_operator_does_not_wait_for_the_device(machine: sim.Machine) -> None:
    waited: list[float] = []

    class Timed(FormatConverterOp):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            begin = machine.now
            super().compute(op_input, op_output, context)
            waited.append(machine.now - begin)

    def compose(app: Any) -> None:
        timed = Timed(app, name="timed", out_dtype="rgb888", resize_height=64, resize_width=64)
        app.add_flow(DeviceSource(app, [random(np.uint8, 128, 128, 3)] * 5), timed, sink(app, []))

    run(compose)
    assert waited == [0] * 5


@pytest.mark.parametrize("fills_on_default", [False, True])
@pytest.mark.parametrize("stream_flags", [0, 1], ids=["blocking", "non-blocking"])
def test_a_frame_is_read_after_work_on_a_stream_that_the_message_does_not_carry(
    fills_on_default: bool, stream_flags: int, machine: sim.Machine
) -> None:
    frame = random(np.uint8, 4, 6)

    class Camera(Operator):
        """Fills its frame slowly, on a stream that headrace does not manage."""

        def setup(self, spec: Any) -> None:
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            own = sim.LEGACY_DEFAULT_STREAM if fills_on_default else sim.Device(0).create_stream()
            self.stream = StreamHandle(own)
            tensor = UnboundedAllocator().allocate_tensor(frame.shape, frame.dtype, stream=self.stream)
            launch(self.stream, 1e-3, lambda out: np.copyto(out.reshape(frame.shape), frame), tensor.owner)
            op_output.emit({"": as_tensor(tensor, stream=self.stream)}, "out")

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, stream_flags=stream_flags)
        demosaic = BayerDemosaicOp(app, pool, name="demosaic")
        app.sink = Sink(app, name="sink")
        app.add_flow(Camera(app, CountCondition(app, 1), name="camera"), demosaic, app.sink)

    app: Any = run(compose)
    np.testing.assert_array_equal(app.sink.arrays[0], Case(BayerDemosaicOp, frame).on_host())
