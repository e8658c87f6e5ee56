"""Slices of the simulated device, and operators that run on them."""

from __future__ import annotations

from typing import Any

from headrace import CountCondition
from headrace.resources import CudaGreenContextPool
from tests.harness import App, MakeScheduler, Step, greedy, run

NAMED = {"control": 16, "vision": 40}


def sms_of(*args: Any, prepare: Any = None, scheduler: MakeScheduler = greedy, **kwargs: Any) -> int:
    """Run one operator with these arguments and return the number of SMs that its stream may use."""
    found: list[int] = []

    def compose(app: Any) -> None:
        if prepare is not None:
            prepare(app)

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(context.allocate_cuda_stream("s").stream.resources.sm.sm_count)

        step = Step(
            app, CountCondition(app, 2), body=body, name="step", **{k: v(app) for k, v in kwargs.items()}
        )
        for make in args:
            step.add_arg(make(app))
        app.add_operator(step)

    run(compose, scheduler)
    assert found[0] == found[1]
    return found[0]


def green_pool(app: Any, **kwargs: Any) -> CudaGreenContextPool:
    """Return a pool of two slices, unless it is said otherwise."""
    kwargs.setdefault("sms_per_partition", [16, 40])
    return CudaGreenContextPool(app, 0, **kwargs)


def composed(*args: Any, **kwargs: Any) -> App:
    """Compose, without running it, an application whose operator 'step' was given these."""

    def compose(app: Any) -> None:
        step = Step(app, CountCondition(app, 1), body=lambda *_: None, name="step", **kwargs)
        for make in args:
            step.add_arg(make(app))
        app.add_operator(step)

    app = App(compose)
    app.compose_graph()
    return app
