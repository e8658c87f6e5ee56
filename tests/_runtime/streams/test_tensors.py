"""Any library takes a tensor that arrived after the work behind it, and no sooner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, Tensor, as_tensor, gpu
from headrace.gpu import sim
from headrace.resources import CudaStreamPool
from headrace.tensor.tensor_map import map_of_arrays
from tests.harness import MS, Step, launch, run
from tests.harness.producers import CUDA, Library

FRAMES = 12


def first_of(array: Library) -> np.ndarray[Any, Any]:
    return np.frombuffer(array.memory, np.int64, 1)


class Frames:
    """A sender that fills a frame with 1, 2, 3 and so on, slowly, and a receiver that does what it is told.

    `seen` is what was read, a while after it was asked for, on the stream that was given to `read`.
    """

    def __init__(
        self, receive: Any, number: int = FRAMES, emit: Any = lambda array: map_of_arrays({"frame": array})
    ) -> None:
        self.seen: list[int] = []
        self.sender: Any = None
        self._emit = emit

        def take(operator: Any, op_input: Any, op_output: Any, context: Any) -> None:
            message = op_input.receive("in")
            receive(self, message["frame"] if isinstance(message, dict) else message, op_input, context)

        def compose(app: Any) -> None:
            given = [CountCondition(app, number), *self.resources(app)]
            source = Step(app, *given, outputs=("out",), body=self._send, name="send")
            app.add_flow(source, Step(app, inputs=("in",), body=take, name="take"))

        run(compose)
        finish()

    def resources(self, app: Any) -> list[Any]:
        """Return what the sender is given."""
        return []

    def _send(self, operator: Any, op_input: Any, op_output: Any, context: Any) -> None:
        self.sender = context.allocate_cuda_stream("own")
        op_output.set_cuda_stream(self.sender, "out")
        array = Library()
        self.write(array, operator.ticks, self.sender)
        op_output.emit(self._emit(array), "out")

    def write(self, array: Library, value: int, stream: Any) -> None:
        launch(stream, MS, lambda: first_of(array).__setitem__(0, value))

    def read(self, array: Library, stream: Any) -> None:
        launch(stream, MS / 10, lambda: self.seen.append(int(first_of(array)[0])))


ALL = list(range(1, FRAMES + 1))


THEIRS: list[gpu.StreamHandle] = []


def foreign() -> gpu.StreamHandle:
    """A stream of another library, which keeps it."""
    device = sim.Device(0)
    device.set_current()  # which nobody may have done yet on the thread of a worker
    THEIRS.append(gpu.StreamHandle(device.create_stream()))
    return THEIRS[-1]


def finish() -> None:
    """Wait for the streams that no pipeline waits for."""
    gpu.LEGACY_DEFAULT_STREAM.sync()
    while THEIRS:
        THEIRS.pop().stream.sync()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Any]]:
    """Which streams were told to wait, and for what."""
    seen: list[tuple[int, Any]] = []
    original = sim.Stream.wait

    def wait(stream: Any, other: Any) -> None:
        seen.append((stream.handle, other))
        original(stream, other)

    monkeypatch.setattr(sim.Stream, "wait", wait)
    return seen


@pytest.mark.parametrize("size", [1, 2])
def test_a_received_tensor_is_ready_on_the_stream_of_its_receiver(size: int) -> None:
    told: list[Any] = []

    def compose(app: Any) -> None:
        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.set_cuda_stream(context.allocate_cuda_stream("own"), "out")
            launch(context.allocate_cuda_stream("own"), MS, lambda: None)
            op_output.emit(map_of_arrays({"frame": Library()}), "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            message = op_input.receive("in")
            for one in message if size > 1 else [message]:
                tensor = one["frame"]
                told.append((tensor.stream, tensor.__cuda_array_interface__["stream"]))

        source = Step(app, CountCondition(app, FRAMES), outputs=("out",), body=send, name="send")
        app.add_flow(source, Step(app, inputs=(("in", {"size": size}),), body=take, name="take"))

    run(compose)
    assert told == [(None, None)] * FRAMES


def test_a_tensor_that_is_kept_beyond_the_run_has_nothing_left_to_wait_for(
    waits: list[tuple[int, Any]],
) -> None:
    kept: list[Tensor] = []
    Frames(lambda frames, tensor, op_input, context: kept.append(tensor))
    waits.clear()
    for tensor in kept:
        assert tensor.stream is tensor.__cuda_array_interface__["stream"] is None
        tensor.__dlpack__(stream=int(foreign()))
    assert not waits
    # Sent in another run too, whose receiver waits for each message once.
    Frames(lambda *_: None, number=2, emit=lambda array: kept.pop())
    assert len(waits) == 2


@pytest.mark.parametrize("follows", [False, True])
def test_a_foreign_stream_waits_for_the_work_behind_a_tensor(follows: bool) -> None:
    def receive(frames: Frames, tensor: Tensor, op_input: Any, context: Any) -> None:
        if follows:
            op_input.receive_cuda_stream("in")
        stream = foreign()
        tensor.__dlpack__(stream=int(stream))
        frames.read(tensor.owner, stream)

    assert Frames(receive).seen == ALL


def test_a_foreign_stream_waits_for_what_the_receiver_has_done_since() -> None:
    def receive(frames: Frames, tensor: Tensor, op_input: Any, context: Any) -> None:
        frames.write(tensor.owner, 77, op_input.receive_cuda_stream("in"))
        stream = foreign()
        tensor.__dlpack__(stream=int(stream))
        frames.read(tensor.owner, stream)

    assert Frames(receive).seen == [77] * FRAMES


def test_a_buffer_of_a_simulated_device_travels_as_a_tensor() -> None:
    told: list[Any] = []
    buffers: list[Any] = []

    def receive(frames: Frames, tensor: Tensor, op_input: Any, context: Any) -> None:
        told.append((tensor.data, tensor.shape, tensor.device, tensor.stream, tensor.owner))
        with pytest.raises(BufferError, match="the host cannot read device memory"):
            tensor.__dlpack__(stream=-1)

    def emit(array: Library) -> dict[str, Any]:
        buffers.append(sim.Device(0).allocate(64, stream=sim.LEGACY_DEFAULT_STREAM))
        return {"frame": as_tensor(buffers[-1])}

    Frames(receive, number=1, emit=emit)
    (buffer,) = buffers
    assert told == [(buffer.handle, (64,), CUDA, None, buffer)]


def test_the_senders_library_is_asked_to_order_the_senders_stream() -> None:
    asked: list[tuple[int, int]] = []

    def receive(frames: Frames, tensor: Tensor, op_input: Any, context: Any) -> None:
        assert tensor.device == CUDA
        asked.extend((request["stream"], int(frames.sender)) for request in tensor.owner.asked)

    Frames(receive)
    assert len(asked) == FRAMES
    assert all(named == senders for named, senders in asked)


class WithoutAChoice(Frames):
    """Frames that are written on two streams, one after the other, and emitted without `set_cuda_stream`."""

    def resources(self, app: Any) -> list[Any]:
        # CUDA does not order these streams with the default stream, which the array names.
        return [CudaStreamPool(app, stream_flags=1)]

    def _send(self, operator: Any, op_input: Any, op_output: Any, context: Any) -> None:
        first, second = (context.allocate_cuda_stream(name) for name in ("first", "second"))
        array = Library()
        self.write(array, -1, first)
        context.synchronize_streams([first], second)
        self.write(array, operator.ticks, second)
        op_output.emit(self._emit(array), "out")


@pytest.mark.parametrize("emit", [lambda array: {"frame": as_tensor(array), "n": 1}, as_tensor])
def test_a_tensor_comes_after_the_streams_of_a_sender_that_set_none(emit: Any) -> None:
    def by_dlpack(frames: Frames, tensor: Tensor, op_input: Any, context: Any) -> None:
        stream = foreign()
        tensor.__dlpack__(stream=stream)
        frames.read(tensor.owner, stream)

    def on_its_own(frames: Frames, tensor: Tensor, op_input: Any, context: Any) -> None:
        assert tensor.__cuda_array_interface__["stream"] is None
        frames.read(tensor.owner, op_input.receive_cuda_stream("in"))

    assert WithoutAChoice(by_dlpack, emit=emit).seen == ALL
    assert WithoutAChoice(on_its_own, emit=emit).seen == ALL
