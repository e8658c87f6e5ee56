"""The array libraries: one file for each library that differs from others, and the registry that finds it.

Everything else in headrace asks here, by the type of an array (:func:`library_of`) or by the name of a library
(:func:`library_named`), and names no library itself. A library is recognised by the modules of its types. Its file
is imported when the first of its arrays comes by; the library has been imported by then. So importing headrace
imports none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any
from weakref import WeakMethod

from headrace.gpu import StreamHandle, array_libraries
from headrace.tensor.libraries.library import Library as Library
from headrace.tensor.types import DLDevice

# The libraries that headrace knows, by the types that they are for.
_KNOWN = {
    "numpy.ndarray": "numpy",
    "cupy.ndarray": "cupy",
    "torch.Tensor": "torch",
    "torch.UntypedStorage": "torch",
    "jax": "jax",
    "jaxlib": "jax",
    "tensorflow": "tensorflow",
    "pyarrow": "pyarrow",
    "numba.DeviceNDArray": "numba",
    "numba_cuda.DeviceNDArray": "numba",
    "cvcuda.Tensor": "cvcuda",
    "cuda.Buffer": "cuda_core",
    "headrace.Buffer": "cuda_core",
    "headrace.Tensor": "headrace",
    "headrace.Array": "simulated",
}


_OWN_FILE = ("cupy", "torch", "simulated")  # the others share one


@dataclass(slots=True)
class _Registry:
    """What has been registered and found so far.

    Attributes
    ----------
    by_type, by_name
        The registered libraries by the entries of their `types`, and all libraries in use by name.
    not_imported
        The libraries with a current stream that have not been imported yet.
    being_imported
        Those of them whose import has begun.
    on_gpu, on_simulated
        The libraries with a current stream that work on streams of a GPU, or of a simulated device.
    when_registered
        Called when a library is registered.
    """

    by_type: dict[type | str, Library] = field(default_factory=dict)
    by_name: dict[str, Library] = field(default_factory=dict)
    not_imported: list[str] = field(default_factory=lambda: ["cupy", "torch"])
    being_imported: set[str] = field(default_factory=set)
    on_gpu: list[Library] = field(default_factory=list)
    on_simulated: list[Library] = field(default_factory=list)
    when_registered: list[Callable[[], None]] = field(default_factory=list)


_registry = _Registry()
# The libraries of the types that were asked for.
_found: dict[type, Library] = {}

hidden_users: dict[type, Callable[[Sequence[Any]], int]] = {}
"""For types of owners: a function that counts the users of owners that Python's reference counts hide, and returns
the largest number."""

NEVER_ALLOCATED: set[type] = set()
"""Types of owners that are never on memory of headrace's allocators, nor on that of a captured segment."""

ANY_LIBRARY = Library()
"""The library of all types that no other is for."""


def library_of(kind: type) -> Library:
    """Return the library that a type belongs to."""
    try:
        return _found[kind]
    except KeyError:
        found = _found[kind] = find_library(kind)
        return found


def find_library(kind: type) -> Library:
    """Return the library that a type belongs to, without remembering it."""
    for base in kind.__mro__:
        root = str(base.__module__).partition(".")[0]
        names: tuple[type | str, ...] = (base, f"{root}.{base.__name__}", root)
        for name in names:
            library = _registry.by_type.get(name)
            if library is None and name in _KNOWN:
                library = library_named(str(name))
            if library is not None:
                return library.for_type(kind)
    return ANY_LIBRARY


def library_named(name: str) -> Library:
    """Return the library whose types are in the module of a name.

    Raises
    ------
    ImportError
        If there is no such library, or it is not installed.
    """
    name = _KNOWN.get(name, name)
    library = _registry.by_name.get(name)
    if library is None:
        if name not in _KNOWN.values():
            raise ImportError(f"there is no array library {name!r}")
        file = import_module(f"{__name__}.{name if name in _OWN_FILE else 'others'}")
        library = file.LIBRARIES[name]
        _registry.by_name[name] = library
    return library


def library_of_module(module: str) -> Library:
    """Return the library that a module belongs to, such as the module of a function that asks for a capsule."""
    try:
        return library_named(module.partition(".")[0])
    except ImportError:
        return ANY_LIBRARY


def register_library(library: Library) -> None:
    """Make headrace work with the arrays of a library as it says.

    A later registration of a type replaces an earlier one.

    Parameters
    ----------
    library
        An instance of a subclass of :class:`Library`. Its `types` name the arrays.
    """
    if not isinstance(library, Library) or not library.types:
        raise TypeError(
            "register_library takes an instance of a subclass of Library that names its types, such as "
            f"types = (Array,), not {library!r}"
        )
    replaced = [_registry.by_type.get(name) for name in library.types]
    _registry.by_type |= dict.fromkeys(library.types, library)
    _registry.by_name[library.module] = library
    _registry.on_gpu = [other for other in _registry.on_gpu if other not in replaced]
    _registry.on_simulated = [other for other in _registry.on_simulated if other not in replaced]
    _add_current_stream(library)
    _found.clear()
    for forget in _registry.when_registered:
        forget()
    _import_notice.tell()


def when_registered(forget: Callable[[], None]) -> None:
    """Call a function whenever a library is registered, for caches by type."""
    _registry.when_registered.append(forget)


def usual_module(device: DLDevice) -> str:
    """Return the module that programs usually work with on memory of a device, for advice."""
    return "cupy" if device.is_cuda else "numpy"


@cache
def computing_library() -> Library:
    """Return the library that computes on memory of a GPU: CuPy or, where it is not installed, PyTorch.

    Raises
    ------
    ImportError
        If neither is installed, or neither finds the GPU.
    """
    for name in ("cupy", "torch"):
        try:
            library = library_named(name)
        except ImportError:
            continue
        if library.is_in_use():
            return library
    raise ImportError(
        "indexing and arithmetic with a tensor in memory of a GPU need CuPy (pip install cupy-cuda12x, or "
        "cupy-cuda13x) or PyTorch with CUDA (pip install torch)"
    )


def private_memories(device_id: int, runs_cuda: bool) -> list[Callable[[], AbstractContextManager[Any]]]:
    """Return, for each library in use with pools, a function whose contexts make it allocate from a new pool."""
    found = [library.private_memory(device_id) for library in _libraries_with_streams(runs_cuda)]
    return [context for context in found if context is not None]


# What `headrace.gpu` asks.


def _libraries_with_streams(runs_cuda: bool) -> list[Library]:
    """Return the libraries in use that have a current stream; every compute on a stream of its own asks."""
    if not runs_cuda:
        return _registry.on_simulated
    for name in _registry.not_imported:
        if name in sys.modules:
            _registry.not_imported = [other for other in _registry.not_imported if other != name]
            _add_current_stream(library_named(name))
    return _registry.on_gpu


def _add_current_stream(library: Library) -> None:
    if type(library).set_stream is not Library.set_stream and library.is_in_use():
        if library.works_on_cuda_streams:
            _registry.on_gpu = [*_registry.on_gpu, library]
        if library.works_on_simulated_streams:
            _registry.on_simulated = [*_registry.on_simulated, library]


class _ImportNotice:
    """Tells whoever asked that a library with a current stream is imported or registered.

    It finds no modules itself.

    It stands first among the finders of `sys.meta_path` while somebody asks. Decided against: comparing the number
    of imported modules in every compute, which every program would pay for.
    """

    def __init__(self) -> None:
        # Weak: a run that was left alone because it does not end must not be kept for ever.
        self._notices: list[WeakMethod[Callable[[], None]]] = []

    def add(self, notice: Callable[[], None]) -> Callable[[], None]:
        """Call a method from now on, as long as its object lives; return what ends this."""
        reference = WeakMethod(notice, self._forget)
        if not self._notices:
            sys.meta_path.insert(0, self)
        self._notices.append(reference)
        return lambda: self._forget(reference)

    def _forget(self, reference: WeakMethod[Callable[[], None]]) -> None:
        if reference in self._notices:
            self._notices.remove(reference)
        if not self._notices and self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Return nothing, as a finder that does not know a module."""
        if name in _registry.not_imported and PathFinder.find_spec(name, path) is not None:
            _registry.being_imported.add(name)
            self.tell()

    def tell(self) -> None:
        """Call the functions: there may be another library."""
        for reference in tuple(self._notices):
            notice = reference()
            if notice is not None:
                notice()


_import_notice = _ImportNotice()


def _use_library(name: str) -> None:
    library = library_named(name)
    if library not in _registry.on_simulated:
        _add_current_stream(library)
        _import_notice.tell()


def _make_stream(name: str, handle: StreamHandle) -> Any:
    return library_named(name).stream(handle)


array_libraries.with_streams = _libraries_with_streams
array_libraries.make_stream = _make_stream
array_libraries.use_library = _use_library
array_libraries.when_imported = _import_notice.add
array_libraries.tell = _import_notice.tell
array_libraries.is_being_imported = lambda: not _registry.being_imported.isdisjoint(_registry.not_imported)
