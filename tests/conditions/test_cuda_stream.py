"""CudaStreamCondition: an operator waits until the work behind its messages is done."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition, IOSpec
from headrace.conditions import CudaStreamCondition
from headrace.gpu import sim
from tests.harness import (
    MS,
    MakeScheduler,
    Producer,
    Step,
    run,
)
from tests.harness.internals import input_queues

pytestmark = pytest.mark.usefixtures("machine")


def done_when_run(*conditions: Any, scheduler: MakeScheduler, **step: Any) -> list[bool]:
    """Run a slow producer into a step and return, for each compute, whether the device was done with its input."""
    found: list[bool] = []

    def compose(app: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            waiting = [message for queue in input_queues(self) for message in queue]
            found.append(all(message.is_done for message in waiting))
            for port in self.spec.inputs:
                op_input.receive(port)

        taker = Step(app, *(make(app) for make in conditions), body=take, name="taker", **step)
        for n in range(2 if len(step["inputs"]) == 2 or step["inputs"][0][0] == "all" else 1):
            producer = Producer(app, CountCondition(app, 12), name=f"producer{n}")
            producer.seconds = (1 + 2 * n) * MS
            port = step["inputs"][n if len(step["inputs"]) == 2 else 0]
            app.add_flow(producer, taker, {("out", port if isinstance(port, str) else port[0])})

    run(compose, scheduler)
    return found


def test_the_condition_holds_an_operator_back_until_the_work_is_done(scheduler: MakeScheduler) -> None:
    found = done_when_run(
        lambda app: CudaStreamCondition(app, receiver="in"), inputs=("in",), scheduler=scheduler
    )
    assert found == [True] * 12


@pytest.mark.parametrize(
    "inputs",
    [(("in", {"size": 3}),), (("all", {"size": IOSpec.ANY_SIZE}),), ("a", "b")],
    ids=["a queue of three", "a receivers port", "two ports"],
)
def test_the_condition_looks_at_every_message_that_would_be_taken(
    scheduler: MakeScheduler, inputs: tuple[Any, ...]
) -> None:
    names = [port if isinstance(port, str) else port[0] for port in inputs]
    found = done_when_run(
        lambda app: CudaStreamCondition(app, receivers=names), inputs=inputs, scheduler=scheduler
    )
    assert len(found) == (4 if names == ["in"] else 12)
    assert all(found)


@pytest.mark.parametrize("policy", ["FAULT", "POP"])
@pytest.mark.parametrize("size", [1, 3, -1])
def test_a_message_that_arrives_after_the_condition_looked_is_taken_when_it_is_done(
    machine: sim.Machine, size: int, policy: str
) -> None:
    """It is put there in the middle of the compute here, as another worker may between the look and the receive."""
    from headrace import ConditionType, IOSpec
    from headrace.conditions import CudaStreamCondition

    def compose(app: Any) -> None:
        app.done: list[bool] = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            queue, late = (input_queues(self, port)[-1] for port in ("in", "late"))
            if late:
                message = late.popleft()
                assert not message.is_done
                if size != 3:
                    queue.clear()  # a full queue drops its oldest; one for each connection may have been empty
                queue.append(message)
            waiting = {id(message.data): message for one in input_queues(self, "in") for message in one}
            began = machine.now
            got = op_input.receive("in")
            if policy == "FAULT" or size == 3:
                assert machine.now == began  # nothing was waited for here
            for data in () if got is None else got if isinstance(got, tuple) else (got,):
                app.done.append(waiting[id(data)].is_done)

        def setup(spec: Any) -> None:
            kinds = IOSpec.QueuePolicy
            spec.inputs["in"].policy = kinds.POP if policy == "POP" else kinds.FAULT
            spec.inputs["late"].condition(ConditionType.NONE)

        taker = Step(
            app,
            CudaStreamCondition(app, receiver="in"),
            inputs=(("in", {"size": size}), "late"),
            body=take,
            setup=setup,
            name="taker",
        )
        first = Producer(app, CountCondition(app, 6), name="first")
        app.add_flow(first, taker, {("out", "in")})
        slow = Producer(app, CountCondition(app, 3), name="slow")
        slow.seconds = 50 * MS
        app.add_flow(slow, taker, {("out", "late")})

    done = run(compose).done
    assert done
    assert all(done)
