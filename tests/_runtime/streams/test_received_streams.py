"""The streams that compute is given for what it received."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition, IOSpec
from headrace.core.errors import PortError, StreamError
from headrace.gpu import sim
from headrace.resources import CudaStreamPool
from tests._runtime.streams.pipelines import answers
from tests.harness import (
    MS,
    Producer,
    Step,
    run,
    source,
)


def test_the_stream_is_the_operators_own_and_stays_the_same() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        op_input.receive("in")
        (theirs,) = op_input.receive_cuda_streams("in")
        mine = op_input.receive_cuda_stream("in")
        again = op_input.receive_cuda_stream("in")
        assert isinstance(mine, int)
        assert mine.__cuda_stream__() == (0, int(mine))
        return int(mine), int(again), int(theirs)

    found = answers(body)
    assert len({pair[0] for pair in found}) == 1
    assert all(mine == again != theirs for mine, again, theirs in found)


def test_a_port_that_is_not_there_is_named() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        op_input.receive_cuda_stream("inn")

    with pytest.raises(PortError, match="'taker' has no input 'inn'; it has 'in'"):
        answers(body)


def test_a_receivers_port_gives_a_stream_for_each_message() -> None:
    def compose(app: Any) -> None:
        app.found = []

        def join(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("all")
            app.found.append(op_input.receive_cuda_streams("all"))

        taker = Step(app, inputs=(("all", {"size": IOSpec.ANY_SIZE}),), body=join, name="join")
        for name in "ab":
            app.add_flow(Producer(app, CountCondition(app, 1), name=name), taker, {("out", "all")})
        plain = source(app, [1], name="c")
        app.add_flow(plain, taker, {("out", "all")})

    (streams,) = run(compose).found
    assert len({int(stream) for stream in streams}) == 3


@pytest.mark.parametrize("sync", [False, True])
def test_sync_to_default_orders_the_default_stream_too(machine: sim.Machine, sync: bool) -> None:
    times: list[float] = []

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, 0, 1)  # flag 1: not ordered with the default stream by itself

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            op_input.receive_cuda_stream("in", sync_to_default=sync)
            sim.Device(0).default_stream.record().sync()
            times.append(machine.now)

        producer = Producer(app, CountCondition(app, 1), pool, name="producer")
        app.add_flow(producer, Step(app, pool, inputs=("in",), body=take, name="take"))

    run(compose)
    assert (times[0] >= MS) is sync  # the producer's kernel takes a millisecond


@pytest.mark.parametrize("caller", ["receive_cuda_stream", "receive_cuda_streams"])
@pytest.mark.parametrize("late", [1, 4])
def test_receive_comes_first_in_every_compute(caller: str, late: int) -> None:

    def compose(app: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.ticks == late:
                getattr(op_input, caller)("in")
            op_input.receive("in")

        ones = source(app, [1] * 5, name="s")
        app.add_flow(ones, Step(app, inputs=("in",), body=take, name="take"))

    with pytest.raises(StreamError, match=rf"'take': {caller}\('in'\) before receive\('in'\)"):
        run(compose)
