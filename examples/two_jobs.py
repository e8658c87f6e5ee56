"""Two CuPy jobs, each on its own SMs: the small one does not wait for the big one. Needs a GPU and CuPy."""

from __future__ import annotations

import time

from headrace import gpu
from shared.needs import needs

needs("cupy", a_gpu=True)
import cupy

device = gpu.Device(0)
device.set_current()
with gpu.partition(device, {"control": 16, "bulk": 100}) as parts:
    control = cupy.cuda.Stream.from_external(parts["control"].create_stream())
    bulk = cupy.cuda.Stream.from_external(parts["bulk"].create_stream())
    with bulk:
        heavy = cupy.random.random((4096, 4096), dtype=cupy.float32)
    with control:
        small = cupy.arange(1_000_000, dtype=cupy.float64)
        small.sum()  # compiles the kernel, so that the timing below does not include it
    device.sync()
    with bulk:
        for _ in range(100):
            heavy = heavy @ heavy * 1e-3  # launched, not waited for
    start = time.perf_counter()
    with control:
        total = small.sum()
    control.synchronize()
    took = time.perf_counter() - start
    print(f"control job done after {took * 1e3:.1f} ms; bulk job done by then: {bulk.done}")
    bulk.synchronize()
    print(f"bulk job done after {(time.perf_counter() - start) * 1e3:.1f} ms")
