"""Kernels of a simulated device, the configuration of their launches, and the programs they come from.

A simulated device cannot run CUDA code. Instead it needs a *model* of each kernel: how long a block runs and, if
anything reads the result, a Python function with the same effect. A program that compiles its kernels with
``Program`` runs unchanged if the model of each kernel was declared with its source (:class:`headrace.gpu.kernel`):
``get_kernel`` finds the model by source and name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic
from weakref import WeakKeyDictionary

from headrace.gpu.declared_kernels import P, declared
from headrace.gpu.sim.objects import CUDAError, MadeByDriver, options_of


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Kernel(Generic[P]):
    """A simulated kernel.

    Attributes
    ----------
    name : str
        The kernel's name in the source.
    seconds : float or callable
        How long a block runs: a number, or a function of the launch's arguments.
    effect : callable, optional
        Called with the launch's arguments when the last block ends. Device buffers are passed as NumPy arrays of
        bytes; :func:`launched` returns the launch.
    max_dynamic_shared_size_bytes : int, optional
        The largest dynamic shared memory of its launches, if more than the default limit. On a real device
        ``cuKernelSetAttribute`` sets it.
    non_portable_cluster_size_allowed : bool
        Whether it may be launched with clusters of more blocks than the portable limit; set likewise.
    """

    name: str
    seconds: float | Callable[P, float]
    effect: Callable[..., object] | None = None
    max_dynamic_shared_size_bytes: int | None = None
    non_portable_cluster_size_allowed: bool = False

    def block_time(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """Return the nanoseconds that a block runs in a launch with these arguments."""
        seconds = self.seconds(*args, **kwargs) if callable(self.seconds) else self.seconds
        if seconds < 0:
            raise ValueError(f"kernel {self.name!r}: a block cannot run for {seconds} s")
        return round(seconds * 1e9)


_models: WeakKeyDictionary[Any, Kernel[...]] = WeakKeyDictionary()


def model_of(kernel: Any) -> Kernel[...]:
    """Return the model of a declared kernel, the same each time."""
    if kernel not in _models:
        _models[kernel] = Kernel(kernel.name, kernel.seconds, kernel.effect)
    return _models[kernel]


@dataclass(slots=True, init=False, unsafe_hash=True)
class LaunchConfig:
    """The grid, the blocks and the options of a launch."""

    grid: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    block: tuple[int, int, int]
    shmem_size: int
    is_cooperative: bool
    programmatic_stream_serialization: bool

    def __init__(
        self,
        grid: int | tuple[int, ...] | None = None,
        cluster: int | tuple[int, ...] | None = None,
        block: int | tuple[int, ...] | None = None,
        shmem_size: int | None = None,
        is_cooperative: bool = False,
        programmatic_stream_serialization: bool = False,
    ) -> None:
        self.grid = _dimensions("grid", grid)
        self.cluster = None if cluster is None else _dimensions("cluster", cluster)
        self.block = _dimensions("block", block)
        if not isinstance(shmem_size, int | None):
            raise TypeError(f"shmem_size must be an int, got {shmem_size!r}")
        self.shmem_size = shmem_size or 0
        self.is_cooperative = is_cooperative
        self.programmatic_stream_serialization = programmatic_stream_serialization

    @property
    def _grid_in_blocks(self) -> tuple[int, int, int]:
        """The grid in blocks; with a cluster, ``grid`` counts clusters."""
        if self.cluster is None:
            return self.grid
        (x, y, z), (a, b, c) = self.grid, self.cluster
        return x * a, y * b, z * c

    @property
    def _block_count(self) -> int:
        return math.prod(self._grid_in_blocks)

    @property
    def _threads_per_block(self) -> int:
        x, y, z = self.block
        return x * y * z


def _dimensions(name: str, value: int | tuple[int, ...] | None) -> tuple[int, int, int]:
    if value is None:
        raise ValueError(f"LaunchConfig needs {name}")
    given = value if isinstance(value, tuple) else (value,)
    if len(given) > 3:
        raise ValueError(f"{name} has at most three dimensions, got {value}")
    for size in given:
        if not isinstance(size, int):
            raise ValueError(f"{name} must be an int or a tuple of them, got {value!r}")
        if size < 1:
            raise ValueError(f"{name} must be at least 1 in each dimension, got {value}")
    x, y, z = (*given, 1, 1, 1)[:3]
    return x, y, z


# The fields of cuda.core's ProgramOptions.
_PROGRAM_OPTIONS = """
name arch relocatable_device_code extensible_whole_program debug lineinfo device_code_optimize
ptxas_options max_register_count ftz prec_sqrt prec_div fma use_fast_math extra_device_vectorization
link_time_optimization gen_opt_lto define_macro undefine_macro include_path use_bundled_headers
pre_include no_source_include std builtin_move_forward builtin_initializer_list disable_warnings restrict
device_as_default_execution_space device_int128 optimization_info no_display_error_number diag_error
diag_suppress diag_warn brief_diagnostics time split_compile fdevice_syntax_only minimal no_cache
fdevice_time_trace device_float128 frandom_seed ofast_compile pch create_pch use_pch pch_dir pch_verbose
pch_messages instantiate_templates_in_pch extra_sources use_libdevice numba_debug
""".split()  # noqa: SIM905 - 55 lines with a name each would not be clearer


class ProgramOptions:
    """Compiler options. A simulated device has no compiler, so it stores them without using them."""

    def __init__(self, **options: Any) -> None:
        for name in options:
            if name not in _PROGRAM_OPTIONS:
                raise TypeError(f"ProgramOptions has no option {name!r}")
        self.__dict__.update(dict.fromkeys(_PROGRAM_OPTIONS), **options)


class Program:
    """CUDA source whose kernels were declared with models (:class:`headrace.gpu.kernel`)."""

    def __init__(
        self, code: str, code_type: str, options: ProgramOptions | dict[str, Any] | None = None
    ) -> None:
        if code_type not in ("c++", "ptx", "nvvm"):
            raise ValueError(f"code_type must be 'c++', 'ptx' or 'nvvm', got {code_type!r}")
        options_of(ProgramOptions, options, "Program")
        self._code = code

    def compile(
        self,
        target_type: str,
        name_expressions: tuple[str, ...] | list[str] = (),
        logs: Any = None,
        *,
        cache: Any = None,
    ) -> ObjectCode:
        """Return the object code, which provides the kernels.

        Nothing is compiled, so nothing is written to ``logs`` and nothing is stored in ``cache``.
        """
        if cache is not None and name_expressions:
            raise ValueError(
                "compile takes no name_expressions with a cache, which does not store their names"
            )
        if target_type not in ("cubin", "ptx", "ltoir"):
            raise ValueError(f"target_type must be 'cubin', 'ptx' or 'ltoir', got {target_type!r}")
        return ObjectCode._create(self._code)


@dataclass
class ObjectCode(metaclass=MadeByDriver):
    """A compiled program, whose kernels are their models."""

    _made_by: ClassVar = "Program.compile"
    _code: str

    def get_kernel(self, name: str) -> Kernel[...]:
        """Return the model that was declared for a kernel of this source."""
        kernel = declared.get((self._code, name))
        if kernel is None:
            raise CUDAError(
                f"CUDA_ERROR_NOT_FOUND: no model of kernel {name!r} was declared for this source; "
                "a simulated device needs one: headrace.gpu.kernel(name, source=..., seconds=...)"
            )
        return model_of(kernel)
