"""Asking an array for a DLPack capsule, in the form it understands."""

from typing import Any

from penstock.tensor._libraries import library_of

# Types whose `__dlpack__` takes a stream and nothing else, as it was before DLPack 1.0.
_old_style: set[type] = set()


def request_capsule(array: Any, stream: int | None, max_version: tuple[int, int] | None) -> Any:
    """Return a capsule of an array; of a type that knows only the old form, that one."""
    kind: type = type(array)
    stream = library_of(kind).told(stream)
    if max_version is None or kind in _old_style:
        return array.__dlpack__(stream=stream)
    try:
        return array.__dlpack__(stream=stream, max_version=max_version)
    except TypeError as refused:
        if not (isinstance(max_version, tuple) and len(max_version) == 2):
            raise  # the consumer's fault, from which nothing follows for the type
        try:
            capsule = array.__dlpack__(stream=stream)  # if the form was not the reason, this says what was
        except Warning:  # unless it only says that the form is old, where warnings are errors
            raise refused from None
        _old_style.add(kind)
        return capsule


def request_elsewhere(
    array: Any,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """Return a capsule of an array, or of a copy of it, as its owner decides."""
    kind: type = type(array)
    stream = library_of(kind).told(stream)
    asked: dict[str, Any] = {"stream": stream, "max_version": max_version}
    if dl_device is not None:
        asked["dl_device"] = dl_device
    if copy is not None:
        asked["copy"] = copy
    try:
        return array.__dlpack__(**asked)
    except TypeError as error:
        raise BufferError(
            f"{kind.__module__}.{kind.__qualname__} cannot copy or change device for DLPack"
        ) from error
