"""Measure the cost of making a tensor of an array, and of passing it to a library.

python -m benchmarks.tensor [--save]        with CuPy and PyTorch on a GPU if available, otherwise only NumPy
"""

from __future__ import annotations

import sys
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.report import circumstances, publish, table
from headrace import as_tensor, gpu

NUMBER, ROUNDS = 20_000, 7
LIMIT = 3.0  # µs


def cost(call: Callable[[], Any]) -> float:
    """Return the microseconds of one call, the least of several rounds."""
    call()
    return min(timeit.repeat(call, number=NUMBER, repeat=ROUNDS)) * 1e6 / NUMBER


def main() -> int:
    host = np.zeros((4, 5), np.float32)
    tensor = as_tensor(host)
    rows: list[tuple[str, Callable[[], Any], float | None]] = [
        ("`as_tensor` of a NumPy array", lambda: as_tensor(host), None),
        ("`numpy.asarray` of a tensor", lambda: np.asarray(tensor), None),
        ("`numpy.from_dlpack` of a tensor", lambda: np.from_dlpack(tensor), None),
    ]
    device = "no GPU"
    if gpu.backend() == "cuda":
        import cupy
        import torch

        device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        array, torch_array = cupy.zeros((4, 5), np.float32), torch.zeros(4, 5, device="cuda")
        ours, of_torch = as_tensor(array), as_tensor(torch_array)
        ready = as_tensor(array)._with_pending_work(None)  # as a received tensor is
        rows += [
            ("`as_tensor` of a CuPy array", lambda: as_tensor(array), LIMIT),
            ("its export: a capsule", lambda: ours.__dlpack__(stream=1, max_version=(1, 0)), LIMIT),
            ("its export: `__cuda_array_interface__`", lambda: ours.__cuda_array_interface__, LIMIT),
            ("`cupy.asarray` of it, when it is ready", lambda: cupy.asarray(ready), None),
            ("`cupy.from_dlpack` of it", lambda: cupy.from_dlpack(ours), None),
            ("`cupy.from_dlpack` of a CuPy array itself", lambda: cupy.from_dlpack(array), None),
            ("`as_tensor` of a PyTorch tensor", lambda: as_tensor(torch_array), None),
            ("`torch.from_dlpack` of it", lambda: torch.from_dlpack(of_torch), None),
            ("`torch.from_dlpack` of a PyTorch tensor itself", lambda: torch.from_dlpack(torch_array), None),
        ]
    failed = False
    lines = []
    for name, call, limit in rows:
        found = cost(call)
        failed |= limit is not None and found > limit
        lines.append([name, f"{found:.2f}", "" if limit is None else f"{limit:.1f}"])
    text = [
        "# The cost of making and passing tensors",
        "",
        circumstances(device),
        "",
        f"Best of {ROUNDS} rounds of {NUMBER:,} calls. `python -m benchmarks.tensor`. The limit is for the work",
        "of headrace; in rows that name a library, the library's own work is added.",
        "",
        table(["", "µs", "allowed"], lines),
    ]
    publish("tensor", "\n".join(text))
    return failed


if __name__ == "__main__":
    sys.exit(main())
