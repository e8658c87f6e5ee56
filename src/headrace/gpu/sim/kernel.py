"""Kernels of a simulated device, the programs they come from, and their launches.

A simulated device cannot run CUDA code. Instead it needs a *model* of each kernel: how long a block runs and, if
anything reads the result, a Python function with the same effect. A program that compiles its kernels with
``Program`` runs unchanged if the model of each kernel was declared with its source (:class:`headrace.gpu.kernel`):
``get_kernel`` finds the model by source and name.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic
from weakref import WeakKeyDictionary

from headrace.gpu.kernels import P, declared
from headrace.gpu.sim.graph import HostCallbackNode, KernelNode
from headrace.gpu.sim.memory import memory_of
from headrace.gpu.sim.memory_pool import Bytes
from headrace.gpu.sim.objects import CUDAError, MadeByDriver, options_of
from headrace.gpu.sim.operations import CallHostFunction, RunGrid
from headrace.gpu.sim.processors import Grid, indices_of
from headrace.gpu.sim.profiles import Profile
from headrace.gpu.sim.stream import Stream, stream_of
from headrace.gpu.stream_handle import SupportsStream


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


def launch(
    stream: Stream | SupportsStream,
    config: LaunchConfig,
    kernel: Kernel[P],
    *kernel_args: P.args,
    **kernel_kwargs: P.kwargs,
) -> None:
    """Launch a simulated kernel on a stream; its arguments are positional, as those of CUDA kernels are."""
    if kernel_kwargs:
        raise TypeError(f"launch takes kernel arguments by position, got {', '.join(kernel_kwargs)} by name")
    if not isinstance(config, LaunchConfig):
        raise TypeError(f"launch takes a LaunchConfig, got {type(config).__name__}")
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"launch on a simulated device takes a simulated kernel, got {type(kernel).__name__}; "
            "declare it with headrace.gpu.kernel and launch kernel.on(device)"
        )
    queue = stream_of(stream)._queue
    context = queue.context
    device = context.device
    device.machine.check()
    memory = [memory_of(arg) for arg in kernel_args]
    _check_limits(kernel, config, device.profile)
    operation = RunGrid(  # created without the lock: `block_time` calls a function of the program
        kernel.name,
        device,
        context.sms,
        config._block_count,
        config._threads_per_block,
        kernel.block_time(*kernel_args, **kernel_kwargs),
        _effect_of(kernel, config, kernel_args, memory, device.machine.fail),
        overhead=device.launch_overhead,
    )
    with queue.timeline.lock:
        queue.add(KernelNode, operation, memory, kernel.name)


def launch_host(stream: Stream | SupportsStream, function: Callable[[], object]) -> None:
    """Call a function on the host after the work submitted so far; later work waits until it returns."""
    queue = stream_of(stream)._queue
    queue.context.device.machine.check()
    with queue.timeline.lock:
        queue.add(HostCallbackNode, CallHostFunction(queue.context.device, function))


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch, as the kernel's effect sees it.

    Attributes
    ----------
    config : LaunchConfig
        Its configuration.
    sms : tuple of int
        The SMs that its blocks ran on.
    start, end : float
        When its first block began and its last block ended, in seconds of the machine's time.
    """

    config: LaunchConfig
    sms: tuple[int, ...]
    start: float
    end: float


_running = threading.local()


def launched() -> Launch:
    """Return the launch whose effect is running; call it only in the ``effect`` of a kernel."""
    launch: Launch | None = getattr(_running, "launch", None)
    if launch is None:
        raise RuntimeError("launched() was called outside the effect of a simulated kernel")
    return launch


def _effect_of(
    kernel: Kernel[...],
    config: LaunchConfig,
    args: tuple[Any, ...],
    memory: list[Bytes | None],
    fail: Callable[[str, BaseException], None],
) -> Callable[[Grid], None] | None:
    effect = kernel.effect
    if effect is None:
        return None
    # The memory, not the buffer: freeing the buffer does not stop a kernel that was launched.
    given = [arg if found is None else found for arg, found in zip(args, memory, strict=True)]

    def apply(grid: Grid) -> None:
        sms = tuple(indices_of(grid.used))
        _running.launch = Launch(config, sms, grid.first_block / 1e9, grid.ended / 1e9)
        try:
            effect(*given)
        except Exception as error:
            fail(f"the effect of kernel {kernel.name!r}", error)
        finally:
            _running.launch = None

    return apply


def _check_limits(kernel: Kernel[...], config: LaunchConfig, limits: Profile) -> None:
    """Raise the driver's error for a configuration that exceeds the limits of a device."""
    _check_size(kernel, "grid", config._grid_in_blocks, limits.max_grid)
    _check_size(kernel, "block", config.block, limits.max_block)
    if config._threads_per_block > limits.threads_per_block:
        raise _invalid_launch(
            kernel.name,
            f"a block of {config._threads_per_block} threads; the maximum is {limits.threads_per_block}",
        )
    most_shared = limits.shared_memory_per_block
    if kernel.max_dynamic_shared_size_bytes is not None:
        most_shared = min(kernel.max_dynamic_shared_size_bytes, limits.shared_memory_per_block_optin)
    if not 0 <= config.shmem_size <= most_shared:
        raise _invalid_launch(
            kernel.name,
            f"{config.shmem_size} bytes of shared memory for a block; the maximum is {most_shared}, or "
            f"{limits.shared_memory_per_block_optin} with Kernel(max_dynamic_shared_size_bytes=...)",
        )
    if config.cluster is not None:
        _check_cluster(kernel, math.prod(config.cluster), limits)


def _check_size(
    kernel: Kernel[...], noun: str, sizes: tuple[int, int, int], most: tuple[int, int, int]
) -> None:
    if sizes[0] > most[0] or sizes[1] > most[1] or sizes[2] > most[2]:
        raise _invalid_launch(kernel.name, f"a {noun} of {_joined(sizes)}; the maximum is {_joined(most)}")


def _check_cluster(kernel: Kernel[...], size: int, limits: Profile) -> None:
    if not limits.blocks_per_cluster:
        raise CUDAError(
            f"CUDA_ERROR_NOT_SUPPORTED: kernel {kernel.name!r}: thread-block clusters need compute capability "
            f"9.0; this device has {_joined(limits.compute_capability, '.')}"
        )
    most = limits.blocks_per_cluster
    if kernel.non_portable_cluster_size_allowed:
        most = limits.blocks_per_cluster_optin
    if size > most:
        raise _invalid_launch(
            kernel.name,
            f"a cluster of {size} blocks; the maximum is {most}, or {limits.blocks_per_cluster_optin} with "
            "Kernel(non_portable_cluster_size_allowed=True)",
            "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        )


def _joined(sizes: tuple[int, ...], separator: str = " x ") -> str:
    return separator.join(map(str, sizes))


def _invalid_launch(kernel: str, detail: str, reason: str = "CUDA_ERROR_INVALID_VALUE") -> CUDAError:
    return CUDAError(f"{reason}: invalid configuration of kernel {kernel!r}: {detail}")
