"""The CUDA kernels of the operators, compiled for the processor of this machine.

A kernel is plain C++ but for a few words, which a prelude defines. So g++ compiles it, and a loop over blocks
and threads runs it. That shows, without a GPU, that the CUDA implementation of a routine computes what the
NumPy one does. The threads of a block run one after the other, or as real threads where the kernel synchronizes
them.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.operators.arrays import Routine, Workplace

_PRELUDE = r"""
#include <math.h>
#include <string.h>
struct Place { int x, y, z; };
static thread_local Place blockIdx, threadIdx, blockDim, gridDim;
#define __global__
#define __device__ static inline
#define __shared__ static
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __int_as_float(unsigned bits) { float value; memcpy(&value, &bits, 4); return value; }
"""
# Only where it is needed: these headers take seconds to compile.
_MEETING = r"""
#include <barrier>
#include <thread>
#include <vector>
static std::barrier<>* meeting;
static inline void __syncthreads() { meeting->arrive_and_wait(); }
"""

_SEQUENTIAL = """
extern "C" void run(int grid, int block, {parameters}) {{
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++)
            {name}({arguments});
}}
"""

_TOGETHER = """
extern "C" void run(int grid, int block, {parameters}) {{
    for (int number = 0; number < grid; number++) {{
        std::barrier<> here(block);
        meeting = &here;
        std::vector<std::thread> threads;
        for (int place = 0; place < block; place++)
            threads.emplace_back([=] {{
                blockDim.x = block; blockIdx.x = number; threadIdx.x = place;
                {name}({arguments});
            }});
        for (auto& thread : threads) thread.join();
    }}
}}
"""

_built = tempfile.TemporaryDirectory(prefix="headrace-kernels-")
_SCALARS = {np.int32: ctypes.c_int, np.int64: ctypes.c_longlong, np.float32: ctypes.c_float}


@cache
def compiled(name: str, source: str) -> Any:
    """Return a function that runs a kernel: the number of blocks, their size, then its arguments."""
    match = re.search(rf"__global__ void {name}\((.*?)\) \{{", source, re.DOTALL)
    assert match is not None
    parameters = " ".join(match[1].split())
    arguments = ", ".join(re.findall(r"(\w+)(?=,|$)", parameters))
    is_together = "__syncthreads" in source
    form = _TOGETHER if is_together else _SEQUENTIAL
    prelude = (_MEETING if is_together else "") + _PRELUDE
    text = prelude + source + form.format(parameters=parameters, name=name, arguments=arguments)
    built = Path(_built.name, f"{len(list(Path(_built.name).iterdir()))}.so")
    options = ["-std=c++20", "-ffp-contract=off", "-fwrapv", "-shared", "-fPIC", "-pthread", "-w"]
    subprocess.run(["g++", "-x", "c++", *options, "-o", built, "-"], input=text, text=True, check=True)
    return ctypes.CDLL(str(built)).run


def run_compiled(routine: Routine, threads: int, *args: Any) -> None:
    """Run the CUDA implementation of a routine on NumPy arrays."""
    function = compiled(routine.kernel.name, routine.kernel.source)
    given = [
        ctypes.c_void_p(arg.ctypes.data) if isinstance(arg, np.ndarray) else _SCALARS[type(arg)](arg)
        for arg in args
    ]
    function(-(-threads // 256), 256, *given)


def compare_every_routine(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run the CUDA implementation beside the NumPy one and compare; return the names of those that ran."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    ran: list[str] = []
    original = Workplace.run

    def run(self: Workplace, routine: Routine, threads: int, *args: Any) -> None:
        original(self, routine, threads, *args)
        arrays = [arg if isinstance(arg, np.generic) else np.asarray(arg) for arg in args]
        beside = np.full_like(arrays[0], 77)
        run_compiled(routine, threads, beside, *arrays[1:])
        np.testing.assert_array_equal(beside, arrays[0])
        ran.append(routine.kernel.name)

    monkeypatch.setattr(Workplace, "run", run)
    return ran
