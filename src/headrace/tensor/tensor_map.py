"""TensorMap: tensors by name, the form of a message with several arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.tensor.conversion import as_pending_tensor, as_tensor, is_array
from headrace.tensor.description import PendingWork
from headrace.tensor.tensor import Tensor
from headrace.tensor.types import TensorError


class TensorMap(dict[str, Tensor]):
    """Tensors by name: a dict that converts the arrays of any library to tensors.

    :meth:`get` and :meth:`add` serve programs that treat it as a message. A single tensor needs no name.

    Examples
    --------
    >>> message = TensorMap(frame=frame, mask=mask)
    >>> cupy.asarray(message["frame"])
    """

    __slots__ = ()

    def __init__(self, arrays: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **named: Any) -> None:
        super().__init__()
        self.update(arrays, **named)

    def __setitem__(self, name: str, array: Any) -> None:
        super().__setitem__(name, as_tensor(array))

    def setdefault(self, name: str, array: Any = None) -> Tensor:
        """Return the tensor with that name; if there is none, add the array first."""
        if name not in self:
            self[name] = array
        return self[name]

    def update(self, arrays: Any = (), /, **named: Any) -> None:
        """Add arrays by name."""
        for name, array in dict(arrays, **named).items():
            self[name] = array

    def __ior__(self, arrays: Any) -> TensorMap:  # type: ignore[override,misc]
        self.update(arrays)
        return self

    def copy(self) -> TensorMap:
        """Return another map of the same tensors."""
        other = TensorMap.__new__(TensorMap)
        dict.update(other, self)  # the values are tensors already
        return other

    def add(self, array: Any, name: str = "") -> None:
        """Add an array under a name that is not in use."""
        if name in self:
            raise ValueError(
                f"there is already a tensor {name!r}; the names are {', '.join(map(repr, self))}"
            )
        self[name] = array

    def get(self, name: str = "", default: Any = None) -> Any:
        """Return the tensor with that name, or without a name the only tensor; the default if there is none."""
        if not name and len(self) == 1:
            return next(iter(self.values()))
        return super().get(name, default)

    def __repr__(self) -> str:
        return f"TensorMap({super().__repr__()})"

    def _repr_html_(self) -> str:
        from headrace.notebook import paragraph

        return "".join(paragraph(name) + tensor._repr_html_() for name, tensor in self.items())


def map_of_arrays(data: dict[Any, Any]) -> Any:
    """Return a dict of arrays as a TensorMap, and any other dict unchanged.

    For operators that send tensors wherever a program emits arrays (`Operator.convert_dict`). The arrays are not
    converted here but by `as_message`, as results of the sender's work.
    """
    if not data or not all(type(name) is str and is_array(array) for name, array in data.items()):
        return data
    message = TensorMap.__new__(TensorMap)
    dict.update(message, data)
    return message


MAPPINGS = frozenset((dict, TensorMap))
"""The types of messages of which each receiver has its own copy."""


def as_message(
    data: Any, pending_work: PendingWork | None = None, sender: tuple[str, str] | None = None
) -> Any:
    """Return the message for an emitted Tensor, TensorMap or dict: an object of the same type.

    The tensors in it are the results of the sender's work. Other values of a dict stay what they are.

    Parameters
    ----------
    data
        The emitted object.
    pending_work
        The sender's work that produces the data; by default each tensor names its own.
    sender
        The operator and the output that emit it; the tensors' errors name them, at the sender and the receiver.
    """
    if type(data) is Tensor:
        return data if pending_work is None else as_pending_tensor(data, pending_work)
    is_map = type(data) is TensorMap
    message = (
        dict.copy(data) if not is_map else TensorMap.__new__(TensorMap)
    )  # not by `__init__`, which converts
    for name, value in data.items():
        if is_map or type(value) is Tensor:
            dict.__setitem__(message, name, _as_entry(name, value, pending_work, sender))
    return message


def _as_entry(
    name: Any, array: Any, pending_work: PendingWork | None, sender: tuple[str, str] | None
) -> Tensor:
    """Return the tensor that is sent as one entry of a message."""
    try:
        tensor = as_tensor(array) if pending_work is None else as_pending_tensor(array, pending_work)
    except TensorError as error:
        raise TensorError(f"{name!r}: {error}") from error
    except Exception as error:
        error.add_note(f"raised while {name!r} was converted to a tensor")
        raise
    if sender is not None:
        sent_as = (*sender, name)
        if tensor is array and tensor._sent_as is not None and tensor._sent_as != sent_as:
            tensor = tensor._with_pending_work(tensor._pending_work)  # the original stays in its own message
        tensor._sent_as = sent_as
    return tensor
