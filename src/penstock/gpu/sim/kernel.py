"""Kernels of a simulated device: so many blocks of so long each, and what they do.

A simulated device cannot run CUDA code. What it needs to know of a kernel is its *model*: how long a block
takes, and, if anybody looks at the result, a Python function with the same effect. A program that compiles
its kernels with ``Program`` runs here unchanged if the model of each was declared beside its source
(:func:`penstock.gpu.kernel`): ``get_kernel`` finds the model by source and name.
"""

import math
import operator
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.gpu.kernels import declared
from penstock.gpu.sim.errors import CUDAError, invalid_launch
from penstock.gpu.sim.lanes import CallHost, Execute
from penstock.gpu.sim.memory import Buffer
from penstock.gpu.sim.options import options_of
from penstock.gpu.sim.processors import Grid, indices_of
from penstock.gpu.sim.profiles import Profile
from penstock.gpu.sim.stream import Stream, SupportsStream, stream_of


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Kernel:
    """A simulated kernel.

    Attributes
    ----------
    name : str
        What it is called in the source.
    seconds : float or callable
        How long one block runs: a number, or a function of the launch's arguments.
    effect : callable, optional
        Called with the launch's arguments when the last block ends. Device buffers arrive as NumPy arrays of
        bytes; :func:`launched` tells it about the launch.
    max_dynamic_shared_size_bytes : int, optional
        How much shared memory its launches may ask for, where that is more than every kernel may have. On a real
        device ``cuKernelSetAttribute`` sets it.
    non_portable_cluster_size_allowed : bool
        Whether it may be launched in clusters of more blocks than every device takes; set likewise.
    """

    name: str
    seconds: float | Callable[..., float]
    effect: Callable[..., object] | None = None
    max_dynamic_shared_size_bytes: int | None = None
    non_portable_cluster_size_allowed: bool = False

    def block_time(self, args: tuple[Any, ...]) -> int:
        """Return the nanoseconds that a block of this launch runs."""
        seconds = self.seconds(*args) if callable(self.seconds) else self.seconds
        if seconds < 0:
            raise ValueError(f"kernel {self.name!r}: a block cannot run for {seconds} s")
        return round(seconds * 1e9)


class LaunchConfig:
    """How many blocks of how many threads."""

    __slots__ = (
        "block",
        "cluster",
        "grid",
        "is_cooperative",
        "programmatic_stream_serialization",
        "shmem_size",
    )

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
        """The grid in blocks; with a cluster, ``grid`` counts clusters, so it is divisible by what one has."""
        if self.cluster is None:
            return self.grid
        (x, y, z), (a, b, c) = self.grid, self.cluster
        return x * a, y * b, z * c

    @property
    def _blocks(self) -> int:
        return math.prod(self._grid_in_blocks)

    @property
    def _threads(self) -> int:
        return math.prod(self.block)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LaunchConfig):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self) -> str:
        return f"LaunchConfig({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


def launch(stream: Stream | SupportsStream, config: LaunchConfig, kernel: Kernel, *kernel_args: Any) -> None:
    """Launch a simulated kernel on a stream."""
    if not isinstance(config, LaunchConfig):
        raise TypeError(f"launch takes a LaunchConfig, got {type(config).__name__}")
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"launch on a simulated device takes a simulated kernel, got {type(kernel).__name__}; "
            "declare it with penstock.gpu.kernel and launch kernel.on(device)"
        )
    lane = stream_of(stream)._lane
    context = lane.context
    device = context.device
    device.machine.check()
    if not _is_plain(config, device.profile):
        _check_limits(kernel, config, device.profile)
    operation = Execute(  # made before the lock is taken: it asks the program how long a block runs
        device.processors,
        context.sms,
        blocks=config._blocks,
        threads=config._threads,
        period=kernel.block_time(kernel_args),
        overhead=device.overhead,
        effect=_effect(kernel, config, kernel_args, device.machine.fail),
    )
    with lane.timeline.lock:
        lane.submit(operation)


def _is_plain(config: LaunchConfig, limits: Profile) -> bool:
    """Return whether a configuration is within the limits of every kernel; what nearly all are, so it is quick."""
    x, y, z = config.grid
    a, b, c = config.block
    most_x, most_y, most_z = limits.max_grid
    most_a, most_b, most_c = limits.max_block
    return (
        config.cluster is None
        and x <= most_x
        and y <= most_y
        and z <= most_z
        and a <= most_a
        and b <= most_b
        and c <= most_c
        and a * b * c <= limits.threads_per_block
        and 0 <= config.shmem_size <= limits.shared_memory_per_block
    )


def _check_limits(kernel: Kernel, config: LaunchConfig, limits: Profile) -> None:
    """Raise what the driver does for a configuration that CUDA's limits forbid."""
    for noun, sizes, most in (
        ("grid", config._grid_in_blocks, limits.max_grid),
        ("block", config.block, limits.max_block),
    ):
        if any(map(operator.gt, sizes, most)):
            raise invalid_launch(kernel.name, f"a {noun} of {_by(sizes)}; {_by(most)} is the most")
    if config._threads > limits.threads_per_block:
        raise invalid_launch(
            kernel.name, f"a block of {config._threads} threads; {limits.threads_per_block} is the most"
        )
    most_shared = limits.shared_memory_per_block
    if kernel.max_dynamic_shared_size_bytes is not None:
        most_shared = min(kernel.max_dynamic_shared_size_bytes, limits.shared_memory_per_block_optin)
    if not 0 <= config.shmem_size <= most_shared:
        raise invalid_launch(
            kernel.name,
            f"{config.shmem_size} bytes of shared memory for a block; {most_shared} is the most, or "
            f"{limits.shared_memory_per_block_optin} with Kernel(max_dynamic_shared_size_bytes=...)",
        )
    if config.cluster is not None:
        _check_cluster(kernel, math.prod(config.cluster), limits)


def _check_cluster(kernel: Kernel, size: int, limits: Profile) -> None:
    if not limits.blocks_per_cluster:
        raise CUDAError(
            f"CUDA_ERROR_NOT_SUPPORTED: kernel {kernel.name!r}: thread-block clusters need compute capability "
            f"9.0; this device has {_by(limits.compute_capability, '.')}"
        )
    most = limits.blocks_per_cluster
    if kernel.non_portable_cluster_size_allowed:
        most = limits.blocks_per_cluster_optin
    if size > most:
        raise invalid_launch(
            kernel.name,
            f"a cluster of {size} blocks; {most} is the most, or {limits.blocks_per_cluster_optin} with "
            "Kernel(non_portable_cluster_size_allowed=True)",
            "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        )


def _by(sizes: tuple[int, ...], sign: str = " x ") -> str:
    return sign.join(map(str, sizes))


def launch_host(stream: Stream | SupportsStream, function: Callable[[], object]) -> None:
    """Have the host call a function when the stream gets there; the stream goes on when it returns."""
    lane = stream_of(stream)._lane
    lane.context.device.machine.check()
    with lane.timeline.lock:
        lane.submit(CallHost(function))


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch, as its effect sees it.

    Attributes
    ----------
    config : LaunchConfig
        Its grid and blocks.
    sms : tuple of int
        The SMs that its blocks ran on.
    start, end : float
        When its first block began and its last one ended, in seconds of the machine's time.
    """

    config: LaunchConfig
    sms: tuple[int, ...]
    start: float
    end: float


_running = threading.local()


def launched() -> Launch:
    """Return the launch whose effect this is; only a kernel's ``effect`` may ask."""
    launch: Launch | None = getattr(_running, "launch", None)
    if launch is None:
        raise RuntimeError("no simulated kernel has its effect on this thread now")
    return launch


def _effect(
    kernel: Kernel, config: LaunchConfig, args: tuple[Any, ...], fail: Callable[[str, BaseException], None]
) -> Callable[[Grid], None] | None:
    effect = kernel.effect
    if effect is None:
        return None
    # The memory itself, not the buffer: freeing the buffer does not stop a kernel that was launched.
    given = [arg._open() if isinstance(arg, Buffer) else arg for arg in args]

    def happen(grid: Grid) -> None:
        sms = tuple(indices_of(grid.used))
        _running.launch = Launch(config, sms, grid.first_block / 1e9, grid.ended / 1e9)
        try:
            effect(*given)
        except Exception as error:
            fail(f"the effect of kernel {kernel.name!r}", error)
        finally:
            _running.launch = None

    return happen


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


# The fields of cuda.core's own.
_PROGRAM_OPTIONS = """
name arch relocatable_device_code extensible_whole_program debug lineinfo device_code_optimize
ptxas_options max_register_count ftz prec_sqrt prec_div fma use_fast_math extra_device_vectorization
link_time_optimization gen_opt_lto define_macro undefine_macro include_path use_bundled_headers
pre_include no_source_include std builtin_move_forward builtin_initializer_list disable_warnings restrict
device_as_default_execution_space device_int128 optimization_info no_display_error_number diag_error
diag_suppress diag_warn brief_diagnostics time split_compile fdevice_syntax_only minimal no_cache
fdevice_time_trace device_float128 frandom_seed ofast_compile pch create_pch use_pch pch_dir pch_verbose
pch_messages instantiate_templates_in_pch extra_sources use_libdevice numba_debug
""".split()  # noqa: SIM905 - 55 lines of names would say no more


class ProgramOptions:
    """A compiler's options; a simulated device has no compiler, so they are kept and not used."""

    def __init__(self, **options: Any) -> None:
        for name in options:
            if name not in _PROGRAM_OPTIONS:
                raise TypeError(f"ProgramOptions has no option {name!r}")
        self.__dict__.update(dict.fromkeys(_PROGRAM_OPTIONS), **options)


class Program:
    """CUDA source whose kernels were declared with models."""

    def __init__(
        self, code: str, code_type: str, options: "ProgramOptions | dict[str, Any] | None" = None
    ) -> None:
        if code_type not in ("c++", "ptx", "nvvm"):
            raise ValueError(f"code_type must be 'c++', 'ptx' or 'nvvm', got {code_type!r}")
        options_of(ProgramOptions, options, "Program")
        self._code = code

    def compile(self, target_type: str, name_expressions: tuple[str, ...] = ()) -> "ObjectCode":
        """Return something to get kernels from."""
        if target_type not in ("cubin", "ptx", "ltoir"):
            raise ValueError(f"target_type must be 'cubin', 'ptx' or 'ltoir', got {target_type!r}")
        return ObjectCode._of(self._code)


class ObjectCode:
    """A compiled program, as far as a simulated device can have one."""

    _code: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("ObjectCode objects cannot be made directly; use Program.compile")

    @classmethod
    def _of(cls, code: str) -> "ObjectCode":
        self = cls.__new__(cls)
        self._code = code
        return self

    def get_kernel(self, name: str) -> Kernel:
        """Return the model that was declared for a kernel of this source."""
        kernel = declared(self._code, name)
        if kernel is None:
            raise CUDAError(
                f"CUDA_ERROR_NOT_FOUND: no model of kernel {name!r} was declared for this source; "
                "a simulated device needs one: penstock.gpu.kernel(name, source=..., seconds=...)"
            )
        return kernel.model
