"""The ready operators on a real GPU give what they give on the host, bit by bit.

The same on the simulated device is in tests/operators/test_on_device.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, Operator, TensorMap, gpu
from headrace.operators import BayerDemosaicOp, FormatConverterOp
from headrace.resources import CudaStreamPool
from headrace.testing import run_operator
from headrace_holoscan.ready import InferenceProcessorOp
from tests.gpu.kernels import spin
from tests.harness import MakeScheduler, run, sink, source
from tests.operators.cases import CASES, Case, random
from tests.operators.on_device import Sink, run_on_device

pytestmark = pytest.mark.usefixtures("real")

LARGE = [
    Case(BayerDemosaicOp, random(np.uint16, 1080, 1920), {"generate_alpha": True}),
    Case(FormatConverterOp, random(np.uint8, 1080, 1920, 3), {"out_dtype": "float32", "scale_min": -1.0}),
    Case(FormatConverterOp, random(np.uint8, 1620, 1920), {"in_dtype": "nv12", "out_dtype": "rgb888"}),
    Case(
        FormatConverterOp,
        random(np.uint8, 1080, 1920, 3),
        {"out_dtype": "rgb888", "resize_height": 512, "resize_width": 640, "resize_mode": 17},
    ),
    Case(
        FormatConverterOp,
        random(np.uint8, 1080, 1920, 3),
        {"out_dtype": "float32", "resize_height": 540, "resize_width": 960, "resize_mode": 2},
    ),
]


@pytest.mark.parametrize("case", [*CASES, *LARGE], ids=str)
def test_a_frame_in_device_memory_gives_the_result_of_the_host(case: Case) -> None:
    np.testing.assert_array_equal(run_on_device(case).arrays[0], case.on_host())


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.kind is not InferenceProcessorOp][::4], ids=str
)
def test_a_frame_in_host_memory_is_copied_to_the_device(case: Case) -> None:
    def compose(app: Any) -> None:
        operator = case.kind(app, name="operator", **case.params)
        app.sink = Sink(app, name="sink")
        app.add_flow(source(app, [case.frame]), operator, app.sink)

    app: Any = run(compose)
    assert app.sink.devices == ["cuda:0"]
    np.testing.assert_array_equal(app.sink.arrays[0], case.on_host())


def test_no_frame_is_mixed_up_with_another(scheduler: MakeScheduler) -> None:
    frames = [random(np.uint8, 256, 320, 3, seed=seed) for seed in range(30)]
    params = {"out_dtype": "float32", "resize_height": 100, "resize_width": 90}
    seen = run_on_device(Case(FormatConverterOp, frames[0], params), frames, scheduler=scheduler)
    for frame, result in zip(frames, seen.arrays, strict=True):
        np.testing.assert_array_equal(result, Case(FormatConverterOp, frame, params).on_host())


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_arrays_of_other_libraries_are_taken_and_the_result_is_theirs(library: str) -> None:
    module = pytest.importorskip(library)
    frame = random(np.uint8, 64, 48, 3)
    on_device = module.asarray(frame) if library == "cupy" else module.from_numpy(frame).cuda()
    taken: list[Any] = []

    def compose(app: Any) -> None:
        operator = FormatConverterOp(app, out_dtype="float32", name="format")
        app.add_flow(source(app, [on_device]), operator, sink(app, taken))

    run(compose)
    result = module.from_dlpack(taken[0].get())
    host = result.get() if library == "cupy" else result.cpu().numpy()
    np.testing.assert_array_equal(host, Case(FormatConverterOp, frame, {"out_dtype": "float32"}).on_host())


@pytest.mark.parametrize("stream_flags", [0, 1], ids=["blocking", "non-blocking"])
def test_a_frame_is_read_after_the_work_on_the_default_stream_that_fills_it(stream_flags: int) -> None:
    """CUDA orders a blocking stream with the default stream by itself; a non-blocking one waits for an event."""
    cupy = pytest.importorskip("cupy")
    mosaics = [random(np.uint8, 64, 48, seed=seed) for seed in range(5)]
    filled = [cupy.asarray(mosaic) for mosaic in mosaics]
    cupy.cuda.runtime.deviceSynchronize()

    class Camera(Operator):
        """Fills each frame on the default stream, after 20 ms."""

        def setup(self, spec: Any) -> None:
            spec.output("out")
            self.left = list(filled)

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            device, default = gpu.Device(0), gpu.LEGACY_DEFAULT_STREAM
            device.set_current()
            frame = cupy.zeros((64, 48), np.uint8)
            config = gpu.LaunchConfig(grid=1, block=32)
            gpu.launch(default, config, spin.on(device), np.int64(20_000_000))
            frame[...] = self.left.pop(0)
            op_output.emit(TensorMap({"": frame}), "out")

    def compose(app: Any) -> None:
        demosaic = BayerDemosaicOp(app, CudaStreamPool(app, stream_flags=stream_flags), name="demosaic")
        app.sink = Sink(app, name="sink")
        app.add_flow(Camera(app, CountCondition(app, len(mosaics)), name="camera"), demosaic, app.sink)

    app: Any = run(compose)
    for mosaic, image in zip(mosaics, app.sink.arrays, strict=True):
        np.testing.assert_array_equal(image, Case(BayerDemosaicOp, mosaic).on_host())


def test_custom_kernels_are_compiled_and_chained() -> None:
    add = """
    extern "C" __global__ void customKernel1(const float* in, float* out, int count) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < count) out[i] = in[i] + 1;
    }
    """
    turn = """
    extern "C" __global__ void customKernelturn(const float* in, int* out, int rows, int columns) {
        int row = blockIdx.x * blockDim.x + threadIdx.x, column = blockIdx.y * blockDim.y + threadIdx.y;
        if (row < rows && column < columns) out[column * rows + row] = in[row * columns + column];
    }
    """
    frame = np.arange(35, dtype=np.float32).reshape(5, 7)
    (message,) = run_operator(
        InferenceProcessorOp,
        inputs={"receivers": [[{"a": frame}]]},
        process_operations={"a": ["custom_cuda_kernel-1:custom_cuda_kernel-turn"]},
        processed_map={"a": ["b"]},
        custom_kernels={
            "cuda_kernel-1": add,
            "cuda_kernel-turn": turn,
            "out_dtype-turn": "kInt32",
            "output_dimensions-turn": "7,5",
            "thread_per_block-turn": "16,16",
        },
        input_on_cuda=True,
        output_on_cuda=True,
    )["transmitter"]
    np.testing.assert_array_equal(np.asarray(message["b"]), (frame + 1).T.astype(np.int32))


def test_a_kernel_that_does_not_compile_says_why() -> None:
    broken = (
        'extern "C" __global__ void customKernel1(const float* in, float* out, int count) { out = nonsense; }'
    )
    with pytest.raises(ValueError, match="the kernel customKernel1 cannot be compiled"):
        run_operator(
            InferenceProcessorOp,
            inputs={"receivers": [[{"a": np.zeros(3, np.float32)}]]},
            process_operations={"a": ["custom_cuda_kernel-1"]},
            processed_map={"a": ["b"]},
            custom_kernels={"cuda_kernel-1": broken},
            input_on_cuda=True,
            output_on_cuda=True,
        )
