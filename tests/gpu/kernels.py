"""Kernels for the tests, each with its source and its model."""

from __future__ import annotations

import numpy as np

from headrace import gpu
from headrace.gpu import sim

SPIN_SOURCE = r"""
extern "C" __global__ void spin(long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
}
"""
spin = gpu.kernel(
    "spin",
    source=SPIN_SOURCE,
    seconds=lambda nanoseconds: nanoseconds * 1e-9,
)


def _write(out: np.ndarray, value: int, nanoseconds: int) -> None:
    out.view(np.int32)[:] = value


slow_write = gpu.kernel(  # the whole buffer, after a while
    "slow_write",
    source=r"""
extern "C" __global__ void slow_write(int* out, int count, int value, long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
    int all = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += all) out[i] = value;
}
""",
    seconds=lambda out, count, value, nanoseconds: nanoseconds * 1e-9,
    effect=lambda out, count, value, nanoseconds: _write(out, value, nanoseconds),
)


def _add(target: np.ndarray, source: np.ndarray, count: int) -> None:
    target.view(np.int32)[:count] += source.view(np.int32)[:count]


add = gpu.kernel(
    "add",
    source=r"""
extern "C" __global__ void add(int* target, const int* source, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) target[i] += source[i];
}
""",
    seconds=1e-6,
    effect=_add,
)


def _mark_sms(seen: np.ndarray, nanoseconds: int) -> None:
    seen.view(np.int32)[list(sim.launched().sms)] = 1


mark_sms = gpu.kernel(  # sets seen[i] for every SM i that a block ran on
    "mark_sms",
    source=r"""
extern "C" __global__ void mark_sms(int* seen, long long nanoseconds) {
    unsigned int sm;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    if (threadIdx.x == 0) seen[sm] = 1;
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
}
""",
    seconds=lambda seen, nanoseconds: nanoseconds * 1e-9,
    effect=_mark_sms,
)
