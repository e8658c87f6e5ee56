"""Two CuPy jobs, each on its own SMs: the small one does not wait for the big one. Needs a GPU and CuPy."""

import time

import cupy

from penstock import gpu

device = gpu.Device(0)
device.set_current()
with gpu.partition(device, {"control": 16, "bulk": 100}) as parts:
    control = cupy.cuda.Stream.from_external(parts["control"].create_stream())
    bulk = cupy.cuda.Stream.from_external(parts["bulk"].create_stream())
    with bulk:
        heavy = cupy.random.random((4096, 4096), dtype=cupy.float32)
        for _ in range(100):
            heavy = heavy @ heavy * 1e-3  # launched, not waited for
    with control:
        start = time.perf_counter()
        total = cupy.arange(1_000_000, dtype=cupy.float64).sum()
    control.synchronize()
    took = time.perf_counter() - start
    print(f"control job: {float(total):.0f} after {took * 1e3:.1f} ms; bulk done: {bulk.done}")
    bulk.synchronize()
