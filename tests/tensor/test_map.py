"""TensorMap is a dict of tensors by name, whatever arrays are put in; as_message keeps the type of what is sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import Tensor, TensorMap, as_tensor
from headrace.tensor import TensorError, as_message, description
from headrace.tensor.tensor_map import map_of_arrays
from tests.harness.producers import CUDA, Interface, Library, Work

a, b, c = np.zeros(1), np.zeros((2, 2)), np.arange(3)


def owners(tensors: TensorMap) -> dict[str, Any]:
    assert all(type(tensor) is Tensor for tensor in tensors.values())
    return {name: tensor.owner for name, tensor in tensors.items()}


def test_whatever_way_arrays_come_in_they_are_tensors() -> None:
    ways: list[TensorMap] = [TensorMap(a=a, b=b), TensorMap({"a": a}, b=b), TensorMap([("a", a), ("b", b)])]
    ways += [TensorMap(ways[0]), ways[0].copy(), TensorMap(), TensorMap(), TensorMap(a=a), TensorMap()]
    ways[5].update({"a": a}, b=b)
    ways[6]["a"] = a
    ways[6].add(b, "b")
    ways[7] |= {"b": b}
    assert ways[8].setdefault("a", a).owner is a
    assert ways[8].setdefault("a", b).owner is a
    ways[8].setdefault("b", b)
    for way in ways:
        assert type(way) is TensorMap
        assert isinstance(way, dict)
        assert owners(way) == {"a": a, "b": b}
    assert owners(TensorMap.fromkeys("ab", a)) == {"a": a, "b": a}


def test_what_is_no_array_does_not_go_in() -> None:
    tensors = TensorMap(a=a)
    for put in (
        lambda: TensorMap(x=3),
        lambda: tensors.update(x="text"),
        lambda: tensors.setdefault("x"),
        lambda: tensors.add(None, "x"),
        lambda: tensors.__setitem__("x", [1]),
    ):
        with pytest.raises(TensorError, match="cannot be a tensor"):
            put()
    assert owners(tensors) == {"a": a}


def test_a_name_is_added_once() -> None:
    tensors = TensorMap(a=a, b=b)
    with pytest.raises(ValueError, match=r"there is already a tensor 'a'; the names are 'a', 'b'"):
        tensors.add(c, "a")
    tensors.add(c)
    assert owners(tensors) == {"a": a, "b": b, "": c}


def test_the_only_tensor_needs_no_name() -> None:
    assert TensorMap(x=a).get().owner is a
    assert TensorMap(x=a).get("").owner is a
    assert TensorMap(x=a).get("y") is None
    assert TensorMap().get() is None
    assert TensorMap(x=a, y=b).get() is None
    assert TensorMap(x=a, y=b).get("y").owner is b
    assert TensorMap(x=a, y=b).get("z", 5) == 5
    unnamed = TensorMap({"": a, "x": b})
    assert unnamed.get().owner is a


# -- as_message --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [{}, {"a": a, "b": b}, {"a": a, "n": 2}, {1: a}, {("a",): None}, {"nested": {"a": a}}], ids=str
)
def test_a_dict_is_sent_as_another_with_the_same_keys_and_values(data: dict[Any, Any]) -> None:
    for message in (as_message(data), as_message(data, Work())):
        assert type(message) is dict
        assert message is not data
        assert list(message) == list(data)
        assert all(message[key] is data[key] for key in data)


def test_tensors_in_a_dict_are_results_of_the_senders_work(waits: list[tuple[int, int]]) -> None:
    work, host, device = Work(), as_tensor(a), as_tensor(Interface(stream=0x45))
    message = as_message({1: device, "host": host, "n": 3, "array": b}, work, ("camera", "out"))
    assert type(message) is dict
    assert message["host"] is host
    assert message["array"] is b
    assert message[1]._pending_work is work
    assert waits == [(7, 0x45)]
    assert device.stream == 0x45  # the sender's own is as it was
    assert message[1]._error_prefix() == "operator 'camera', output 'out': 1: "


# -- map_of_arrays ------------------------------------------------------------------------------------


def test_a_dict_of_arrays_can_be_made_a_map() -> None:
    arrays = {"a": a, "b": as_tensor(b), "c": Interface()}
    message = as_message(map_of_arrays(arrays))
    assert type(message) is TensorMap
    assert list(message) == ["a", "b", "c"]
    assert message["b"].owner is b
    assert type(arrays) is dict


class Lazy:
    @property
    def __array_interface__(self) -> Any:
        raise RuntimeError("not loaded")


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"a": a, "n": 2},
        {"a": a, "text": "x"},
        {"a": a, "none": None},
        {1: a},
        {"a": a, 1: b},
        {("a",): a},
        {"a": a, "scalar": np.float32(1)},
        {"mean": np.float64(1), "count": np.int64(3)},
        {"kind": np.ndarray},
        {"nested": {"a": a}},
        {"list": [a]},
    ],
    ids=str,
)
def test_a_dict_with_anything_else_in_it_stays_a_dict(data: Any) -> None:
    assert map_of_arrays(data) is data


def test_an_array_that_cannot_be_a_tensor_is_told_by_its_entry() -> None:
    with pytest.raises(TensorError, match=r"^'labels': numpy\.ndarray cannot be a tensor"):
        as_message(map_of_arrays({"a": a, "labels": np.array(["x"])}))
    with pytest.raises(TensorError, match=r"^'lazy': .*Lazy cannot be a tensor .*not loaded"):
        as_message(map_of_arrays({"lazy": Lazy()}))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Which stream was made to wait for which."""
    found: list[tuple[int, int]] = []

    def stream_of(handle: int) -> Any:
        return SimpleNamespace(handle=handle, wait=lambda other: found.append((handle, other.handle)))

    monkeypatch.setattr(description, "stream_of", stream_of)
    return found


def test_the_senders_stream_is_ordered_behind_what_is_made_elsewhere(waits: list[tuple[int, int]]) -> None:
    work, library = Work(), Library()
    interface = Interface(stream=0x44)
    tensor = as_tensor(Interface(stream=0x45))
    arrays = {"host": a, "library": library, "interface": interface, "tensor": tensor}
    message = as_message(map_of_arrays(arrays), work)
    assert library.asked == [{"stream": 7, "max_version": (1, 1)}]  # it does the ordering itself
    assert waits == [(7, 0x44), (7, 0x45)]
    assert message["host"].stream is None
    for name in ("library", "interface", "tensor"):
        assert message[name].device == CUDA
        assert message[name].stream == 7
        assert message[name]._pending_work is work
    assert tensor.stream == 0x45  # the sender's own is as it was
    assert work.ordered == []


def test_what_is_on_the_senders_stream_already_is_not_ordered(waits: list[tuple[int, int]]) -> None:
    arrays = {"interface": Interface(stream=7), "tensor": as_tensor(Interface(stream=7))}
    as_message(map_of_arrays(arrays), Work())
    assert waits == []


def test_a_tensor_is_sent_as_one(waits: list[tuple[int, int]]) -> None:
    host, device = as_tensor(a), as_tensor(Interface(stream=0x45))
    assert as_message(host) is host
    assert as_message(host, Work()) is host
    assert as_message(device) is device
    sent = as_message(device, Work())
    assert (sent.stream, sent.data, sent.owner) == (7, device.data, device.owner)
    assert waits == [(7, 0x45)]


def test_a_map_is_sent_as_another_so_that_the_senders_may_change() -> None:
    tensors = TensorMap(a=a)
    message = as_message(tensors)
    assert type(message) is TensorMap
    assert message is not tensors
    assert message["a"] is tensors["a"]
    assert type(as_message(TensorMap())) is TensorMap
