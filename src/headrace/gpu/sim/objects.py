"""What the simulated objects have in common: their error, their options, and that only the driver makes them."""

from __future__ import annotations

from typing import Any, TypeVar

_T = TypeVar("_T")


class CUDAError(Exception):
    """An error of the driver; the text begins with the name of its CUDA error code."""


class UnorderedAccessWarning(UserWarning):
    """Work on a simulated device read or wrote an array at another moment than the program meant."""


def capture_error(code: str, detail: str) -> CUDAError:
    """Return an error of stream capture; ``code`` is the end of its name."""
    return CUDAError(f"CUDA_ERROR_STREAM_CAPTURE_{code}: {detail}")


class MadeByDriver(type):
    """The type of classes that a program does not call, as it does not call cuda.core's.

    Such a class names in ``_made_by`` where its objects come from. The simulation makes them by ``_create``.
    """

    _made_by: str
    _refusal: type[Exception] = RuntimeError

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuse to make an object."""
        raise cls._refusal(f"{cls.__name__} objects cannot be created directly; use {cls._made_by}")

    def _create(cls: type[_T], *args: Any, **kwargs: Any) -> _T:
        made: _T = type.__call__(cls, *args, **kwargs)
        return made


def options_of(kind: type[_T], given: _T | dict[str, Any] | None, noun: str) -> _T:
    """Return options that are given as an options object, as a dict of its fields, or not at all."""
    if given is None:
        return kind()
    if isinstance(given, kind):
        return given
    if isinstance(given, dict):
        return kind(**given)
    raise TypeError(f"{noun} options must be {kind.__name__} or a dict of its fields, got {given!r}")
