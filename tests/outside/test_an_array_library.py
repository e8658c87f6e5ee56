"""A program registers its own array library; its arrays then pass through pipelines like those of any other."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, Tensor, TensorMap, as_tensor, gpu, op
from headrace.gpu import sim
from headrace.tensor import Library, register_library
from tests.harness import MS, App, MakeScheduler, run
from tests.harness.libraries import fresh_registry

# The library. It knows nothing of headrace but the simulated device.


class Memory:
    """The memory of arrays, which the pool of the device gives out again when this object is gone."""

    def __init__(self, stream: Any) -> None:
        self.buffer = gpu.Device(0).allocate(16, stream=stream)


class Array:
    """Numbers on the device; a view has the same memory."""

    def __init__(self, memory: Memory, start: int = 0) -> None:
        self.memory, self.start = memory, start

    def __getitem__(self, start: int) -> Array:
        return Array(self.memory, start)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        address = int(self.memory.buffer.handle) + 8 * self.start
        return {"shape": (2 - self.start,), "typestr": "<i8", "data": (address, False), "version": 3}


class Current(threading.local):
    """The current stream of each thread."""

    stream: Any = None


current = Current()


def launch(seconds: float, work: Any, array: Array) -> None:
    numbers = sim.host_view(array.memory.buffer).view(np.int64)[array.start :]
    kernel = sim.Kernel("toy", seconds, lambda: work(numbers))
    sim.launch(current.stream, sim.LaunchConfig(grid=1, block=32), kernel)


def full(number: int) -> Array:
    """Return a new array, which a slow kernel fills with a number."""
    array = Array(Memory(current.stream))
    launch(MS, lambda numbers: numbers.fill(number), array)
    return array


# What headrace has to know about it.


class Toy(Library):
    name = "Toy"
    types = (Array,)
    works_on_simulated_streams = True

    def current_stream(self, device_id: int) -> int:
        return 1 if current.stream is None else int(current.stream.handle)  # 1 is the default stream

    def read_stream(self) -> Any:
        return current.stream

    def set_stream(self, state: Any) -> None:
        current.stream = state

    def stream_state(self, handle: gpu.StreamHandle) -> Any:
        return handle.stream

    def owner(self, array: Array) -> Memory:
        return array.memory

    def stream(self, handle: gpu.StreamHandle) -> Any:
        return ("a stream of Toy", int(handle))

    def from_tensor(self, tensor: Any) -> Array:
        array = tensor.owner
        return array if isinstance(array, Array) else Array(array)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch, machine: sim.Machine) -> Toy:
    fresh_registry(monkeypatch)
    library = Toy()
    register_library(library)
    return library


@pytest.mark.parametrize(
    "sends",
    [lambda array: {"frame": array}, lambda array: TensorMap(frame=array), lambda array: [array[1]]],
)
def test_arrays_pass_on_streams_and_live_until_they_are_read(
    toy: Toy, scheduler: MakeScheduler, sends: Any
) -> None:
    seen: list[int] = []
    streams: set[int] = set()

    numbers = iter(range(1, 7))

    @op(outputs=("out",))
    def camera() -> Any:
        streams.add(int(current.stream.handle))
        return sends(full(next(numbers)))

    @op
    def show(frame: Any) -> None:
        streams.add(int(current.stream.handle))
        array = frame["frame"] if isinstance(frame, dict) else frame[0]
        if isinstance(array, Tensor):
            array = toy.from_tensor(array)
        # It is read when the function has returned and the array is gone, so that the pool could reuse its memory.
        launch(5 * MS, lambda read: seen.append(int(read[0])), array)

    def compose(app: App) -> None:
        app.stream_per = "operator"
        app.add_flow(camera(app, CountCondition(app, 6)), show(app))

    run(compose, scheduler)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert len(streams) == 2, "each operator has a stream of its own"
    assert current.stream is None, "and leaves the library as it was"


def test_an_array_becomes_a_tensor_that_knows_its_stream(toy: Toy) -> None:
    stream = gpu.Device(0).create_stream()
    with gpu.use_stream(stream):
        array = full(3)
        tensor = as_tensor(array[1])
    assert tensor.shape == (1,)
    assert tensor.owner.memory is array.memory
    assert tensor.stream == int(stream.handle)
    assert toy.from_tensor(tensor).start == 1


def test_a_handle_gives_the_librarys_own_object() -> None:
    handle = gpu.StreamHandle(gpu.Device(0).create_stream())
    assert handle.of_library("tests") == ("a stream of Toy", int(handle))
    assert handle.of_library("tests") is handle.of_library("tests")
    with pytest.raises(ImportError, match="no array library 'nobody'"):
        handle.of_library("nobody")


def test_an_error_of_the_library_leaves_the_others_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Library):
        types = ("broken.Array",)
        works_on_simulated_streams = True

        def read_stream(self) -> Any:
            return None

        def set_stream(self, state: Any) -> None:
            raise RuntimeError("out of streams")

        def stream_state(self, handle: gpu.StreamHandle) -> Any:
            return handle

    register_library(Broken())
    with pytest.raises(RuntimeError, match="out of streams"), gpu.use_stream(gpu.Device(0).create_stream()):
        pass
    assert current.stream is None
    assert gpu.current_stream() is None
