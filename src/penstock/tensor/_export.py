"""Asking an array for a DLPack capsule, in the form it understands."""

from typing import Any

# Types whose `__dlpack__` takes a stream and nothing else, as it was before DLPack 1.0.
_old_style: set[type] = set()


def request_capsule(array: Any, stream: int | None, max_version: tuple[int, int] | None) -> Any:
    """Return a capsule of an array; of a type that knows only the old form, that one."""
    if max_version is None or type(array) in _old_style:
        return array.__dlpack__(stream=stream)
    try:
        return array.__dlpack__(stream=stream, max_version=max_version)
    except TypeError:
        if not (isinstance(max_version, tuple) and len(max_version) == 2):
            raise  # the consumer's fault, from which nothing follows for the type
        capsule = array.__dlpack__(stream=stream)  # if the form was not the reason, this says what was
        _old_style.add(type(array))
        return capsule


def request_elsewhere(
    array: Any,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """Return a capsule of an array, or of a copy of it, as its owner decides."""
    asked: dict[str, Any] = {"stream": stream, "max_version": max_version}
    if dl_device is not None:
        asked["dl_device"] = dl_device
    if copy is not None:
        asked["copy"] = copy
    try:
        return array.__dlpack__(**asked)
    except TypeError as error:
        kind = type(array)
        raise BufferError(
            f"{kind.__module__}.{kind.__qualname__} cannot copy or change device for DLPack"
        ) from error
