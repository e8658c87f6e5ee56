"""Requesting DLPack capsules from arrays.

A type that supports only the old form of the protocol is recognised by the TypeError that it raises. An error of
this package is not such an answer: an array that asks for a tensor of itself would be asked twice as often at every
level.
"""

from __future__ import annotations

from typing import Any

from headrace.tensor.errors import TensorError, type_name
from headrace.tensor.libraries import Library, library_of

# Types whose `__dlpack__` takes only a stream, as before DLPack 1.0.
_old_style: set[type] = set()


def request_capsule(
    array: Any, stream: int | None, max_version: tuple[int, int] | None, library: Library | None = None
) -> Any:
    """Return a capsule of an array, in the old form if its type supports no other."""
    kind: type = type(array)
    if stream is not None:
        stream = (library or library_of(kind)).stream_argument(stream)
    if max_version is None or kind in _old_style:
        return array.__dlpack__(stream=stream)
    try:
        return array.__dlpack__(stream=stream, max_version=max_version)
    except TensorError:
        raise
    except TypeError as refused:
        if not (isinstance(max_version, tuple) and len(max_version) == 2):
            raise  # a mistake of the consumer, unrelated to the type
        try:
            capsule = array.__dlpack__(
                stream=stream
            )  # if the form was not the reason, this raises the real error
        except Warning:  # warnings are errors, and this one only reports the old form
            raise refused from None
        _old_style.add(kind)
        return capsule


def request_copy(
    array: Any,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """Return a capsule of an array or of a copy of it, as its owner decides."""
    stream = library_of(type(array)).stream_argument(stream)
    wanted = {"dl_device": dl_device, "copy": copy}
    given = {name: value for name, value in wanted.items() if value is not None}
    try:
        return array.__dlpack__(stream=stream, max_version=max_version, **given)
    except TypeError as error:
        raise BufferError(
            f"{type_name(array)} does not support copying or another device in DLPack"
        ) from error
