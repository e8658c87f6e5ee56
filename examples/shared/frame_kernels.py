"""The kernels of the noisy neighbour: one makes a frame, one checks a frame. Both spin for a given time first."""

from __future__ import annotations

import numpy as np

from headrace import gpu

SPIN = r"""
__device__ void spin(long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
}
"""

# `seconds` and `effect` tell the simulated device how long a block runs and what the kernel does.
MAKE = gpu.kernel(
    "make_frame",
    source=SPIN
    + r"""
extern "C" __global__ void make_frame(long long* frame, long long number, long long nanoseconds) {
    spin(nanoseconds);
    if (threadIdx.x == 0) frame[blockIdx.x] = number;
}
""",
    seconds=lambda frame, number, nanoseconds: nanoseconds * 1e-9,
    effect=lambda frame, number, nanoseconds: frame.view(np.int64).fill(number),
)


def _check(frame: np.ndarray, length: int, number: int, wrong: np.ndarray, nanoseconds: int) -> None:
    wrong.view(np.int64)[0] += bool((frame.view(np.int64)[:length] != number).any())


CHECK = gpu.kernel(
    "check_frame",
    source=SPIN
    + r"""
extern "C" __global__ void check_frame(
    const long long* frame, int length, long long number, long long* wrong, long long nanoseconds
) {
    spin(nanoseconds);
    int bad = 0;
    for (int i = threadIdx.x; i < length; i += blockDim.x) bad |= frame[i] != number;
    if (__syncthreads_or(bad) && threadIdx.x == 0) *wrong += 1;
}
""",
    seconds=lambda frame, length, number, wrong, nanoseconds: nanoseconds * 1e-9,
    effect=_check,
)
