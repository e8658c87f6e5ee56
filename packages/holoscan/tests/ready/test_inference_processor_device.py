"""InferenceProcessorOp on a simulated device: its kernels, and where its results are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.gpu import sim
from headrace_holoscan.ready import InferenceProcessorOp
from tests.harness import run, sink, source
from tests.operators.cases import Case, random
from tests.operators.on_device import DeviceSource, run_on_device


def test_custom_kernels_run_where_the_device_has_them(machine: sim.Machine) -> None:
    from headrace import gpu

    code = 'extern "C" __global__ void customKernel1(const float* in, float* out, size_t count) { }'
    added = 'extern "C" __global__ void customKernel2(const float* in, float* out, size_t x, size_t y) { }'
    sizes: list[tuple[int, ...]] = []

    def double(values: Any, out: Any, count: int) -> None:
        sizes.append((int(count),))
        np.multiply(values, 2, out=out)

    def sums(values: Any, out: Any, rows: int, columns: int) -> None:
        sizes.append((int(rows), int(columns)))
        out[...] = values.sum(axis=1, dtype=np.int32)

    kept = [
        gpu.kernel("customKernel1", source=code, seconds=1e-6, effect=double),
        gpu.kernel("customKernel2", source=added, seconds=1e-6, effect=sums),
    ]
    frame = np.arange(12, dtype=np.float32).reshape(3, 4)
    case = Case(
        InferenceProcessorOp,
        frame,
        {
            "process_operations": {"maps": ["custom_cuda_kernel-1:custom_cuda_kernel-2"]},
            "processed_map": {"maps": ["sums"]},
            "custom_kernels": {
                "cuda_kernel-1": code,
                "cuda_kernel-2": added,
                "out_dtype-2": "kInt32",
                "output_dimensions-2": "3",
                "thread_per_block-2": "16,16",
            },
            "input_on_cuda": True,
            "output_on_cuda": True,
            "transmit_on_cuda": True,
        },
    )
    seen = run_on_device(case)
    assert seen.devices == ["cuda:0"]
    assert seen.arrays[0].tolist() == (2 * frame).sum(axis=1).tolist()
    assert seen.arrays[0].dtype == np.int32
    assert sizes == [(12,), (3, 4)]
    assert len(kept) == 2


def test_results_on_a_device_are_processed_on_the_host_unless_input_on_cuda_is_set(
    machine: sim.Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    maps = random(np.float32, 1, 3, 2, 2)
    case = Case(
        InferenceProcessorOp,
        maps,
        {
            "process_operations": {"maps": ["max_per_channel_scaled", "print"]},
            "processed_map": {"maps": ["maxima"]},
        },
    )
    seen = run_on_device(case)
    assert seen.devices == ["cpu"]
    assert capsys.readouterr().out == ", ".join(f"{value:g}" for value in maps.reshape(-1)) + "\n"
    np.testing.assert_array_equal(seen.arrays[0], case.on_host())


def test_tensors_of_the_host_join_those_of_the_device(machine: sim.Machine) -> None:
    maps, others = random(np.float32, 1, 3, 2, 2), random(np.float32, 1, 5, 4, 2)
    operations = {"maps": ["max_per_channel_scaled"], "others": ["max_per_channel_scaled"]}

    def compose(app: Any) -> None:
        processor = InferenceProcessorOp(
            app,
            process_operations=operations,
            processed_map={"maps": ["a"], "others": ["b"]},
            input_on_cuda=True,
            transmit_on_cuda=True,
        )
        app.add_flow(DeviceSource(app, [maps], entry="maps"), processor)
        app.add_flow(source(app, [{"others": others}]), processor, {("out", "receivers")})
        app.add_flow(processor, sink(app, taken))

    taken: list[Any] = []
    run(compose)
    assert {name: str(tensor.device) for name, tensor in taken[0].items()} == {"a": "cuda:0", "b": "cuda:0"}


@pytest.mark.parametrize("sizes", ["32", "8,8,8"])
def test_a_kernel_whose_blocks_do_not_fit_the_tensor_is_refused(sizes: str, machine: sim.Machine) -> None:
    code = 'extern "C" __global__ void customKernel1(const float* in, float* out, size_t count) { }'
    case = Case(
        InferenceProcessorOp,
        np.zeros((3, 4), np.float32),
        {
            "process_operations": {"maps": ["custom_cuda_kernel-1"]},
            "processed_map": {"maps": ["out"]},
            "custom_kernels": {"cuda_kernel-1": code, "thread_per_block-1": sizes},
            "input_on_cuda": True,
            "output_on_cuda": True,
        },
    )
    text = (
        "blocks of 3 dimensions" if "," in sizes else "cannot be compiled.*no model of kernel 'customKernel1'"
    )
    with pytest.raises(ValueError, match=text):
        run_on_device(case)
