"""Pipelines, operators and frames for tests.

A test composes a pipeline in a function, runs it, and looks at what came out::

    def test_a_sink_receives_what_a_source_emits(scheduler: MakeScheduler) -> None:
        taken: list[int] = []

        def compose(app: App) -> None:
            app.add_flow(source(app, [1, 2, 3]), sink(app, taken))

        run(compose, scheduler)
        assert taken == [1, 2, 3]

The fixture `scheduler` (``conftest.py``) runs a test under each scheduler; without it a pipeline is greedy.
Time is virtual: it jumps to the next moment at which something happens, so that no test waits. A test that takes
the fixture `machine` has a simulated device whose kernels take virtual time, too::

    def test_a_consumer_reads_what_a_producer_wrote(machine: sim.Machine) -> None:
        def compose(app: Any) -> None:
            app.consumer = Consumer(app, name="consumer")
            app.add_flow(Producer(app, CountCondition(app, 3), name="producer"), app.consumer)

        assert run(compose).consumer.seen == [0, 1, 2]

`Step` is an operator whose compute is a function of the test, which takes the context if it has a fourth parameter.

The other modules are imported by name: `segments` (operators that can be captured), `processes` (programs that run
in a process of their own), `internals` (what tests look at inside the runtime), `logs` (logging as a program finds
it), `sources` (the trees of our files), and stand-ins: `producers` (arrays of libraries that are not installed) and
`gpumat` (OpenCV with CUDA).
"""

from __future__ import annotations

from tests.harness.application import (
    SCHEDULERS,
    App,
    MakeScheduler,
    event_based,
    greedy,
    multi_thread,
    run,
    threaded,
)
from tests.harness.frames import (
    FRAME_BYTES,
    MS,
    Consumer,
    Doubler,
    Producer,
    frame,
    launch,
    read_frame,
    write,
    write_frame,
)
from tests.harness.operators import Step, once, sink, source, through
from tests.harness.threads import PATIENCE, switching_often, wait_until

__all__ = [
    "FRAME_BYTES",
    "MS",
    "PATIENCE",
    "SCHEDULERS",
    "App",
    "Consumer",
    "Doubler",
    "MakeScheduler",
    "Producer",
    "Step",
    "event_based",
    "frame",
    "greedy",
    "launch",
    "multi_thread",
    "once",
    "read_frame",
    "run",
    "sink",
    "source",
    "switching_often",
    "threaded",
    "through",
    "wait_until",
    "write",
    "write_frame",
]
