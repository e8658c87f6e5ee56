"""What messages hold: tensors by name, and the items of batches.

A message with tensors is an array of any library, or a dict or TensorMap of arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace.core.calls import of_part
from headrace.core.errors import choices
from headrace.core.function import op
from headrace.core.operator import Operator
from headrace.tensor import Tensor, TensorMap, as_tensor


def place_of(operator: Operator, port: str) -> str:
    """Return an operator and its input, for the beginning of an error."""
    return f"operator {operator.name!r}, input {port!r}"


def tensors_of(message: Any, operator: Operator, port: str) -> dict[str, Tensor]:
    """Return the tensors of a message; an array by itself is named ""."""
    arrays = message if isinstance(message, Mapping) else {"": message}
    return {str(name): _tensor(array, name, operator, port) for name, array in arrays.items()}


def _tensor(array: Any, name: Any, operator: Operator, port: str) -> Tensor:
    if type(array) is Tensor:
        return array
    try:
        return as_tensor(array)
    except Exception as error:
        raise TypeError(
            f"{place_of(operator, port)}: expected an array of any library, or a dict or TensorMap of arrays; "
            f"{name!r} is a {type(array).__name__} ({error})"
        ) from error


def find_tensor(message: Any, name: str, operator: Operator, port: str) -> Tensor:
    """Return one tensor of a message: the one with a name, or the only one if the name is "".

    An array by itself has no name, so every name fits it.

    Raises
    ------
    ValueError
        If the message has no such tensor, or several and no name was asked for.
    """
    if type(message) is TensorMap and name in message:
        return message[name]
    if not isinstance(message, Mapping):
        message = {name: message}
    elif name not in message:
        where = f"{place_of(operator, port)}: the message has"
        if not message:
            raise ValueError(f"{where} no tensor")
        if name:
            raise ValueError(
                f"{where} no tensor {name!r}; it has {choices(message, name)}. Set in_tensor_name, or the name "
                "that the sender uses"
            )
        if len(message) > 1:
            raise ValueError(
                f"{where} {len(message)} tensors, {choices(message)}; set in_tensor_name to one of them"
            )
        name = next(iter(message))
    return _tensor(message[name], name, operator, port)


def gather(
    messages: Iterable[Any],
    needed: Mapping[str, str],
    unnamed: str | None,
    operator: Operator,
    port: str,
    kind: type[Exception] = ValueError,
) -> dict[str, Tensor]:
    """Return the tensors that are needed, from all messages that an input received.

    Parameters
    ----------
    messages
        The messages; None for a connection without one.
    needed
        The names of the tensors, and what needs each, for errors.
    unnamed
        The name that stands for a tensor without one, if it is the only tensor.
    operator, port
        The operator, and the input.
    kind
        The error that is raised if a tensor is missing or comes twice.
    """
    arrays: dict[str, Any] = {}
    twice: set[str] = set()
    for message in messages:
        named = message if isinstance(message, Mapping) else {} if message is None else {"": message}
        twice |= arrays.keys() & named.keys()
        arrays.update(named)
    if unnamed is not None and len(arrays) == 1 and "" in arrays and not twice:
        arrays = {unnamed: arrays[""]}
    for name, user in needed.items():
        where = f"{place_of(operator, port)}: {user} needs the tensor {name!r}"
        if name in twice or (name not in arrays and "" in twice):
            brought = name if name in twice else ""
            raise kind(f"{where}, and two messages brought the tensor {brought!r}; give them different names")
        if name not in arrays:
            raise kind(
                f"{where}; the messages have {choices(arrays, name)}. Name it so in the sender, or name another "
                "one in the operator"
            )
    return {name: _tensor(arrays[name], name, operator, port) for name in needed}


@op
def split_batch(batch: Any, *, context: Any) -> Iterator[Any]:
    """Emit each item of what it receives, a list or an array, as a message of its own.

    Each carries the metadata and the timestamp of what was received. If that stems from the messages of a batch,
    each item answers the call of its own message alone.
    """
    count = len(batch)
    for place in range(count):
        output = context.output
        output.calls = of_part(output.calls, place, count)
        yield batch[place]
