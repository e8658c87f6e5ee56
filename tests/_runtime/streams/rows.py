"""Graphs of operators in plain code of a library, whose frames are right only if order and lifetimes are."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from headrace import CountCondition, gpu
from headrace.resources import CudaStreamPool
from headrace.tensor import Library
from tests.harness import Step, frame, launch, read_frame, write

ROW = ("first", "one", "two", "three", "last")
FRAMES = 60


class Here(threading.local):
    """The current stream of a library, of each thread."""

    stream: Any = None


here = Here()


class Plain(Library):
    name = "Plain"
    types = ("plain.Array",)
    works_on_simulated_streams = True

    def read_stream(self) -> Any:
        return here.stream

    def set_stream(self, state: Any) -> None:
        here.stream = state

    def stream_state(self, handle: gpu.StreamHandle) -> Any:
        return handle


def stage(self: Any, op_input: Any, op_output: Any) -> None:
    """Add one to a frame, or begin with the number of the compute; `state` counts on the device."""
    app, stream = self.fragment, here.stream
    app.streams.setdefault(self.name, []).append(int(stream))
    seconds = app.seconds if isinstance(app.seconds, float) else app.seconds(self.name, self.ticks)
    if not seconds:
        stream.stream.sync()  # in virtual time, the device catches up only when it is waited for
    if self.name == "last":
        read_frame(stream, seconds, op_input.receive("in"), app.seen)
        return
    result = frame(stream)
    if self.name == "first":
        launch(stream, seconds, lambda out, number=self.ticks: write(out, number), result)
    else:
        if self.ticks == 1:
            self.state = frame(stream)
            launch(stream, 0.0, lambda out: write(out, 0), self.state)
        data = op_input.receive("in")
        if hasattr(app, "ask"):
            app.ask(op_input, self)
        launch(stream, seconds, _add, result, data, self.state)
    op_output.emit(result, "out")


def _add(out: Any, source: Any, state: Any) -> None:
    count = int(state.view("int64")[0]) + 1
    write(state, count)
    write(out, int(source.view("int64")[0]) + 1000 * count)


def compose_row(
    app: Any,
    seconds: Any,
    per: str = "auto",
    pool_size: int = 0,
    frames: int = FRAMES,
    bodies: Any = None,
    **more: Any,
) -> None:
    app.streams, app.seen, app.seconds, app.stream_per = {}, [], seconds, per
    vars(app).update(more)
    pool = CudaStreamPool(app, **({"max_size": pool_size} if pool_size else {}))
    before = Step(app, CountCondition(app, frames), pool, outputs=["out"], body=stage, name="first")
    for name in ROW[1:]:
        outputs = [] if name == "last" else ["out"]
        body = (bodies or {}).get(name, stage)
        after = Step(app, pool, inputs=["in"], outputs=outputs, body=body, name=name)
        app.add_flow(before, after)
        before = after


def right(frames: int) -> list[int]:
    return [number + 3 * 1000 * number for number in range(1, frames + 1)]


RIGHT = right(FRAMES)


def node(self: Any, op_input: Any, op_output: Any) -> None:
    """Add what was received now and in the compute before, or begin with the number of the compute."""
    app, stream = self.fragment, here.stream
    app.streams.setdefault(self.name, []).append(int(stream))
    if not app.seconds:
        stream.stream.sync()  # in virtual time, the device catches up only when it is waited for
    received = [op_input.receive(name) for name in self.spec.inputs]
    if self.name == "last":
        read_frame(stream, app.seconds, received[0], app.seen)
        return
    result = frame(stream)
    launch(stream, app.seconds, partial(_sum, self.ticks), result, *received, *getattr(self, "before", ()))
    self.before = received  # read once more, and released after that
    op_output.emit(result, "out")


def _sum(number: int, out: Any, *sources: Any) -> None:
    write(out, sum(int(source.view("int64")[0]) for source in sources) if sources else number)


FLOWS = (
    *(("first", "left"), ("first", "right"), ("first", "beside"), ("left", "join"), ("right", "join")),
    *(("left", "also"), ("join", "last")),
)


def compose_net(app: Any, seconds: float, frames: int = FRAMES, **more: Any) -> None:
    app.streams, app.seen, app.seconds = {}, [], seconds
    vars(app).update(more)
    pool = CudaStreamPool(app)
    names = dict.fromkeys(name for flow in FLOWS for name in flow)
    inputs = {name: [f"from_{a}" for a, b in FLOWS if b == name] for name in names}
    made = {
        name: Step(
            app,
            *([] if inputs[name] else [CountCondition(app, frames)]),
            pool,
            inputs=inputs[name],
            outputs=[] if name == "last" else ["out"],
            body=node,
            name=name,
        )
        for name in names
    }
    for one, other in FLOWS:
        app.add_flow(made[one], made[other], {("out", f"from_{one}")})


def right_sums(frames: int) -> list[int]:
    """Return what arrives: number + (number - 1) on each side, both sides added twice over."""
    side = [number + max(number - 1, 0) for number in range(frames + 1)]
    return [2 * (side[n] + side[n - 1]) for n in range(1, frames + 1)]
