"""What is emitted arrives as it is; tensors arrive ordered after the work behind them, whoever made them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, IOSpec, TensorMap, as_tensor, gpu
from headrace.core import PortError
from headrace.tensor import DLDataType, TensorError
from headrace.tensor.tensor_map import map_of_arrays
from tests.harness import MS, SCHEDULERS, MakeScheduler, Step, greedy, launch, run
from tests.harness.producers import Library, Made
from tests.limits import pairs

pytestmark = pytest.mark.usefixtures("machine")

FRAMES = 5


class ByInterface:
    """An array whose library says on which stream it makes it, as Numba's do."""

    def __init__(self, memory: np.ndarray, stream: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": memory.shape,
            "typestr": memory.dtype.str,
            "data": (memory.ctypes.data, False),
            "strides": None,
            "version": 3,
            "stream": int(stream),
        }
        self.memory = memory


class ByHandshake:
    """An array whose library has streams of its own and orders whichever it is told, as JAX does."""

    def __init__(self, memory: np.ndarray, stream: Any) -> None:
        self.memory, self.stream = memory, stream
        self.told: list[int | None] = []
        self.made: list[Made] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None) -> Any:
        self.told.append(stream)
        gpu.Stream.from_handle(stream).wait(self.stream.stream)
        # NumPy's own capsule would say that the memory is the host's.
        raw = (ctypes.c_uint8 * self.memory.nbytes).from_buffer(self.memory)
        self.made.append(Made(self.memory.shape, dtype=DLDataType(0, 64, 1), device=(2, 0), memory=raw))
        return self.made[-1].capsule


def as_a_tensor(memory: np.ndarray, stream: Any) -> Any:
    return as_tensor(ByInterface(memory, stream))


@pytest.mark.parametrize("array", [ByInterface, ByHandshake, as_a_tensor])
def test_what_another_library_makes_on_its_own_stream_arrives_right(
    scheduler: MakeScheduler, array: Any
) -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def make(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.set_cuda_stream(context.allocate_cuda_stream("own"), "out")
            library = context.allocate_cuda_stream("the library's")
            memory = np.zeros(1, np.int64)
            launch(library, 2 * MS, lambda: memory.fill(7))
            op_output.emit(TensorMap(frame=array(memory, library)), "out")

        def read(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")["frame"]
            memory = frame.owner.memory
            launch(op_input.receive_cuda_stream("in"), MS / 10, lambda: app.seen.append(int(memory[0])))

        app.add_flow(
            Step(app, CountCondition(app, FRAMES), outputs=("out",), body=make, name="make"),
            Step(app, inputs=("in",), body=read, name="read"),
        )

    assert run(compose, scheduler).seen == [7] * FRAMES


def passing(
    sent: list[Any], stages: int = 0, receivers: int = 1, scheduler: MakeScheduler = greedy
) -> list[list[Any]]:
    """Emit objects one by one through so many operators; return what each receiver got."""
    got: list[list[Any]] = [[] for _ in range(receivers)]

    def compose(app: Any) -> None:
        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(sent[self.ticks - 1], "out")

        last = Step(app, CountCondition(app, len(sent)), outputs=("out",), body=send, name="send")
        for n in range(stages):
            stage = Step(
                app,
                inputs=("in",),
                outputs=("out",),
                body=lambda self, op_input, op_output, context: op_output.emit(op_input.receive("in"), "out"),
                name=f"stage{n}",
            )
            app.add_flow(last, stage)
            last = stage
        for n in range(receivers):
            keep = Step(
                app,
                inputs=("in",),
                body=lambda self, op_input, *_, n=n: got[n].append(op_input.receive("in")),
                name=f"keep{n}",
            )
            app.add_flow(last, keep)

    run(compose, scheduler)
    return got


DICTS: list[dict[Any, Any]] = [
    {},
    {"left": np.arange(6.0).reshape(2, 3), "right": np.ones(4, np.uint8)},
    {"frame": np.zeros(3), "number": 4},
    {0: np.zeros(3)},
    {"mean": np.float32(1), "n": np.int64(2)},
    {"masked": np.ma.masked_array([1.0], [True]), "labels": np.array(["a"])},
    {"nested": {"a": np.zeros(1)}, "none": None},
]


@pytest.mark.parametrize("receivers", [1, 2])
@pytest.mark.parametrize("data", DICTS, ids=str)
def test_a_dict_arrives_as_a_dict_whatever_is_in_it(data: dict[Any, Any], receivers: int) -> None:
    got = passing([data], stages=2, receivers=receivers)
    for [message] in got:
        assert type(message) is dict
        assert message is not data
        assert list(message) == list(data)
        assert all(message[key] is data[key] for key in data)
    assert len({id(message) for [message] in got}) == receivers


def test_a_sender_may_change_its_dict_after_it_emitted_it(scheduler: MakeScheduler) -> None:
    got: list[Any] = []

    def compose(app: Any) -> None:
        kept = {"number": 0}

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            kept["number"] = self.ticks
            op_output.emit(kept, "out")
            kept["number"] = -1

        app.add_flow(
            Step(app, CountCondition(app, FRAMES), outputs=("out",), body=send, name="send"),
            Step(app, inputs=("in",), body=lambda self, i, o, c: got.append(i.receive()), name="take"),
        )

    run(compose, scheduler)
    assert got == [{"number": n + 1} for n in range(FRAMES)]


def test_an_operator_may_say_what_is_sent_for_a_dict() -> None:
    class Tensors(Step):
        convert_dict = staticmethod(map_of_arrays)

    got: list[Any] = []

    def compose(app: Any) -> None:
        sent = [{"a": np.zeros(1)}, {"a": 1}, [np.zeros(1)]]
        source = Tensors(
            app,
            CountCondition(app, len(sent)),
            outputs=("out",),
            body=lambda self, i, o, c: o.emit(sent[self.ticks - 1]),
            name="send",
        )
        take = Step(app, inputs=("in",), body=lambda self, i, o, c: got.append(i.receive()), name="take")
        app.add_flow(source, take)

    run(compose)
    assert [type(one) for one in got] == [TensorMap, dict, list]


def test_a_tensor_and_a_map_of_tensors_can_be_emitted() -> None:
    tensor, other = as_tensor(np.zeros(3)), as_tensor(np.zeros(3))
    library, another = as_tensor(Library()), as_tensor(Library())
    [[first, second, third]] = passing([tensor, TensorMap(a=other, b=library), another])
    assert first is tensor
    assert type(second) is TensorMap
    assert second["a"] is other
    assert (second["b"].data, third.data) == (library.data, another.data)
    assert second["b"].stream is third.stream is None  # who received it is ordered after the work behind it


@pytest.mark.parametrize(
    ("size", "stamp", "kind", "scheduler"),
    pairs([1, 2, IOSpec.ANY_SIZE], [-1, 5], [dict, TensorMap], SCHEDULERS),
)
def test_what_a_receiver_does_to_its_map_is_its_own_business(
    size: Any, stamp: int, kind: Any, scheduler: MakeScheduler
) -> None:
    left: list[Any] = []

    def compose(app: Any) -> None:
        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(kind(a=np.zeros(1), b=np.ones(1)), "out", acq_timestamp=stamp)

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            message = op_input.receive("in")
            for one in message if isinstance(message, tuple) else [message]:
                left.append(sorted(one))
                one.clear()

        source = Step(app, CountCondition(app, 2), outputs=("out",), body=send, name="send")
        for n in range(3):
            app.add_flow(source, Step(app, inputs=(("in", {"size": size}),), body=take, name=f"take{n}"))

    run(compose, scheduler)
    assert left == 6 * [["a", "b"]]


class Lost:
    """Work that no stream can be ordered after."""

    stream_handle = stream = 7

    def order(self, stream: int) -> None:
        raise TensorError("it is lost")


@pytest.mark.parametrize(
    ("outputs", "port", "complaint"),
    [
        (("out",), "", "operator 'odd', output 'out': 'x': it is lost"),
        (("left", "right"), "right", "operator 'odd', output 'right': 'x': it is lost"),
        (("left", "right"), "", "operator 'odd' has the outputs 'left', 'right': name one"),
        ((), "", "operator 'odd' has the outputs"),
        (("out",), "nowhere", "operator 'odd' has no output 'nowhere'"),
    ],
)
def test_the_port_of_what_cannot_be_sent_is_the_one_that_was_meant(
    outputs: Any, port: str, complaint: str
) -> None:
    def compose(app: Any) -> None:
        def odd(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if outputs:
                op_output.set_cuda_stream(context.allocate_cuda_stream("mine"), outputs[-1])
            op_output.emit({"x": as_tensor(Library())._with_pending_work(Lost())}, port)

        app.add_operator(Step(app, CountCondition(app, 1), outputs=outputs, body=odd, name="odd"))

    with pytest.raises((TensorError, PortError)) as caught:
        run(compose)
    assert str(caught.value).startswith(complaint)
