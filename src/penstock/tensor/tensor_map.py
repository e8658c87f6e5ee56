"""TensorMap: tensors by name, which is what a message of several arrays is."""

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.tensor.conversion import as_ready, as_tensor, is_array
from penstock.tensor.errors import TensorError
from penstock.tensor.pending_work import Ready
from penstock.tensor.tensor import Tensor


class TensorMap(dict[str, Tensor]):
    """Tensors by name: a dict whose values are tensors, whatever arrays are put in.

    Programs that think of it as a message use :meth:`get` and :meth:`add`; where there is one tensor, it needs
    no name.

    Examples
    --------
    >>> message = TensorMap(frame=frame, mask=mask)
    >>> cupy.asarray(message["frame"])
    """

    __slots__ = ()

    def __init__(self, arrays: "Mapping[str, Any] | Iterable[tuple[str, Any]]" = (), /, **named: Any) -> None:
        super().__init__()
        self.update(arrays, **named)

    def __setitem__(self, name: str, array: Any) -> None:
        super().__setitem__(name, as_tensor(array))

    def setdefault(self, name: str, array: Any = None) -> Tensor:
        """Return a tensor by name, after adding an array under it if there is none."""
        if name not in self:
            self[name] = array
        return self[name]

    def update(self, arrays: Any = (), /, **named: Any) -> None:
        """Add arrays by name."""
        for name, array in dict(arrays, **named).items():
            self[name] = array

    def __ior__(self, arrays: Any) -> "TensorMap":  # type: ignore[override,misc]
        self.update(arrays)
        return self

    def copy(self) -> "TensorMap":
        """Return another map of the same tensors."""
        other = TensorMap.__new__(TensorMap)
        dict.update(other, self)  # which are tensors already
        return other

    def add(self, array: Any, name: str = "") -> None:
        """Add an array, under a name that is not taken."""
        if name in self:
            raise ValueError(
                f"there is a tensor {name!r} already; the names are {', '.join(map(repr, self))}"
            )
        self[name] = array

    def get(self, name: str = "", default: Any = None) -> Any:
        """Return a tensor by name; without a name the only one. None, or the default, where there is none."""
        if not name and len(self) == 1:
            return next(iter(self.values()))
        return super().get(name, default)

    def __repr__(self) -> str:
        return f"TensorMap({super().__repr__()})"


def as_message(data: Any, ready: Ready | None = None, sender: tuple[str, str] | None = None) -> Any:
    """Return what is sent when a dict, a TensorMap or a Tensor is emitted: tensors.

    A dict with anything in it that is no array is given back as it is.

    Parameters
    ----------
    data
        What is emitted.
    ready
        Where the sender has it made, if it says; otherwise each array is asked.
    sender
        The operator and the output that emit it; errors of the tensors name them, here and at the receiver.
    """
    if type(data) is Tensor:
        return data if ready is None else as_ready(data, ready)
    if type(data) is dict and not (data and all(map(is_array, data.values()))):
        return data
    message = TensorMap()
    for name, array in data.items():
        if type(name) is not str:
            return data
        try:
            tensor = as_tensor(array) if ready is None else as_ready(array, ready)
        except TensorError as error:
            raise TensorError(f"{name!r}: {error}") from error
        except Exception as error:
            error.add_note(f"raised while {name!r} was made a tensor")
            raise
        if sender is not None:
            sent_as = (*sender, name)
            if tensor is array and tensor._sent_as is not None and tensor._sent_as != sent_as:
                tensor = tensor._after(tensor._ready)  # the other one is in another message
            tensor._sent_as = sent_as
        dict.__setitem__(message, name, tensor)
    return message
