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
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.operators._routines.conversion import (
    COPY,
    FLOAT_TO_BYTE,
    RGB_TO_YUV420,
    TO_FLOAT,
    TO_RGB,
    WIDE_TO_BYTE,
)
from headrace.operators._routines.resampling import RESAMPLE
from headrace.operators.arrays import Routine, Workplace
from headrace.operators.bayer_demosaic import DEMOSAIC
from headrace.operators.segmentation_postprocessor import CLASSIFY
from headrace_holoscan.ready.find_maxima import FIND_MAXIMA

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
_MEETING = r"""
#include <atomic>
#include <pthread.h>
static pthread_barrier_t meeting;
static inline void __syncthreads() { pthread_barrier_wait(&meeting); }
"""

_SEQUENTIAL = """
extern "C" void {run}(int grid, int block, {parameters}) {{
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++)
            {name}({arguments});
}}
"""

_TOGETHER = """
template <typename Work> static void* work(void* given) {{ (*(Work*)given)(); return 0; }}
template <typename Work> static void start(pthread_t* thread, Work* given) {{
    pthread_create(thread, 0, work<Work>, given);
}}
extern "C" void {run}(int grid, int block, {parameters}) {{
    for (int number = 0; number < grid; number++) {{
        pthread_barrier_init(&meeting, 0, block);
        pthread_t threads[1024];
        std::atomic<int> next(0);
        auto compute = [&] {{
            blockDim.x = block; blockIdx.x = number; threadIdx.x = next++;
            {name}({arguments});
        }};
        for (int place = 0; place < block; place++) start(threads + place, &compute);
        for (int place = 0; place < block; place++) pthread_join(threads[place], 0);
        pthread_barrier_destroy(&meeting);
    }}
}}
"""

_built = tempfile.TemporaryDirectory(prefix="headrace-kernels-")
_SCALARS = {np.int32: ctypes.c_int, np.int64: ctypes.c_longlong, np.float32: ctypes.c_float}


def compiled(name: str, source: str) -> Any:
    """Return a function that runs a kernel: the number of blocks, their size, then its arguments."""
    kernels = _of_operators()
    return built_together(kernels if (name, source) in kernels else ((name, source),))[name, source]


@cache
def built_together(kernels: tuple[tuple[str, str], ...]) -> dict[tuple[str, str], Any]:
    """Return functions that run kernels: one call of the compiler takes a tenth of the time of many."""
    return dict(zip(kernels, _build(kernels), strict=True))


@cache
def _of_operators() -> tuple[tuple[str, str], ...]:
    """Return the name and the source of each kernel of the operators."""
    routines = [
        *COPY.values(), TO_FLOAT, FLOAT_TO_BYTE, WIDE_TO_BYTE,
        *RESAMPLE.values(), *DEMOSAIC.values(),
        *TO_RGB.values(), RGB_TO_YUV420, CLASSIFY, FIND_MAXIMA,
    ]  # fmt: skip
    return tuple({(one.kernel.name, one.kernel.source): None for one in routines})


def _build(kernels: Sequence[tuple[str, str]]) -> list[Any]:
    """Compile kernels, each in a namespace of its own, and return the functions that run them."""
    text = (_MEETING if any("__syncthreads" in source for _, source in kernels) else "") + _PRELUDE
    for number, (name, source) in enumerate(kernels):
        match = re.search(rf"__global__ void {name}\((.*?)\) \{{", source, re.DOTALL)
        assert match is not None
        parameters = " ".join(match[1].split())
        arguments = ", ".join(re.findall(r"(\w+)(?=,|$)", parameters))
        form = _TOGETHER if "__syncthreads" in source else _SEQUENTIAL
        includes = "".join(re.findall(r"^#include.*\n", source, re.MULTILINE))
        body = source.replace(includes, "").replace('extern "C" ', "")
        run = form.format(run=f"run_{number}", parameters=parameters, name=name, arguments=arguments)
        words = re.findall(r"^#define (\w+)", source, re.MULTILINE)
        text += f"{includes}namespace kernel_{number} {{\n{body}{run}}}\n"
        text += "".join(f"#undef {word}\n" for word in words)
    built = Path(_built.name, f"{len(list(Path(_built.name).iterdir()))}.so")
    options = ["-std=c++20", "-ffp-contract=off", "-fwrapv", "-shared", "-fPIC", "-pthread", "-w"]
    subprocess.run(["g++", "-x", "c++", *options, "-o", built, "-"], input=text, text=True, check=True)
    library = ctypes.CDLL(str(built))
    return [getattr(library, f"run_{number}") for number in range(len(kernels))]


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
