"""Run a random program, and return what was seen."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headrace import watch
from headrace.core.errors import FeedClosedError
from tests.harness import PATIENCE
from tests.random_programs.building import FRAMES, PlannedError, RandomApp, Record, number_of
from tests.random_programs.program import Program

try:
    import mcap
except ImportError:
    mcap = None


def run_program(program: Program, traffic: Any = None, **settings: Any) -> Record:
    """Run a program to its end."""
    app = RandomApp(program, traffic, **settings)
    if program.records and mcap is not None and traffic is None:  # frames of a device are not compared
        return _run_recorded(app)
    return run_app(app)


def _run_recorded(app: RandomApp) -> Record:
    """Run a program, and read back what was recorded."""
    from headrace.observe import PortRecorder, Recording  # which need mcap

    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.mcap"
        watch(app, PortRecorder(path))
        record = run_app(app)
        record.recorded = defaultdict(list)
        with Recording(path) as recording:
            for message in recording:
                record.recorded[f"{message.port.operator}.{message.port.port}"].append(message.data)
        return record


def run_replay(program: Program) -> Record:
    """Record the sources of a program in a run, and play them in another one, of which the record is."""
    from headrace.observe import PortRecorder, replay

    sources = [stage for stage in program.stages if stage.is_source]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.mcap"
        watch(first := RandomApp(program), PortRecorder(path, [program.path(each) for each in sources]))
        sent = run_app(first).computes
        again = RandomApp(program)
        replay(again, path, "fast" if program.seed % 2 else "recorded")
        record = run_app(again)
    for stage in sources:  # which did not run, but their players
        assert stage.name not in record.computes
        played = record.outcome.operators[program.path(stage)].computes
        is_followed = any(stage.name in each.after for each in program.stages)
        recorded = [each for each in sent[stage.name] if each.sent or is_followed]
        record.computes[stage.name] = recorded[:played]
    return record


def run_app(app: RandomApp) -> Record:
    """Run the application of a program to its end."""
    program = app.program
    goals = {ends: app.expect("->".join(ends), max="1s") for ends in program.goals()}
    limits: dict[str, Any] = {}
    if program.max_messages:
        limits["max_messages"] = program.max_messages
    if program.duration:
        limits["duration"] = f"{program.duration}ns"
    with app.track() if program.track else nullcontext() as tracker:
        error = None
        try:
            if program.block:
                _run_block(app, limits)
            else:
                app.run(**limits)
        except PlannedError as planned:
            error = planned
        record = app.record
        record.error, record.goals = error, goals
        if tracker is not None:
            record.statistics = tracker.statistics
    record.outcome = app.outcome
    if app.resuming is not None:
        app.resuming.join(PATIENCE)
        assert not app.resuming.is_alive(), "a run that is over is still paused"
    return record


def _run_block(app: RandomApp, limits: dict[str, Any]) -> None:
    program = app.program
    feeds = [stage.name for stage in program.stages if stage.kind == "feed"]
    results = [stage.name for stage in program.stages if stage.kind == "results"]

    def put(name: str) -> None:
        with suppress(FeedClosedError, PlannedError), app.feed(name) as feed:
            for turn in range(FRAMES):
                app.traffic.put(feed, number_of(name, turn))
                app.record.put[name.rpartition(".")[2]].append(number_of(name, turn))

    async def call(name: str) -> None:
        values = [number_of(name, turn) for turn in range(FRAMES)]
        with suppress(PlannedError), app.feed(name) as feed:
            calls = [asyncio.ensure_future(feed.call(value)) for value in values]
            await asyncio.sleep(0)  # all are put in
            feed.close()  # a batch is complete then, whatever it has
            found = await asyncio.gather(*calls, return_exceptions=True)
            app.record.answers += zip(values, found, strict=True)

    def take(name: str) -> None:
        taken = app.results(name)
        app.traffic.take_from(taken)
        with suppress(PlannedError):
            for value in taken:
                if program.calls:  # which is noted already
                    continue
                app.record.results[name.rpartition(".")[2]].append(app.traffic.open(name, value))

    threads: list[threading.Thread] = []
    future: Any = None
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        stack.enter_context(_handling_interrupts(app))
        future = stack.enter_context(app.running())
        feeding = (lambda name: asyncio.run(call(name))) if program.calls else put
        threads += [threading.Thread(target=feeding, args=(_path(app, name),), daemon=True) for name in feeds]
        threads += [threading.Thread(target=take, args=(_path(app, name),), daemon=True) for name in results]
        for thread in threads:
            thread.start()
        if program.block in ("raise", "twice"):
            app.is_left = True
            raise KeyboardInterrupt
        if program.block == "drain":
            for thread in threads:
                thread.join(PATIENCE)
    if future is not None:  # else the interrupt came before the block
        app.record.was_over = future.done()
    for thread in (each for each in threads if each.ident is not None):
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a feed or a result is waited for after the run"


@contextmanager
def _handling_interrupts(app: RandomApp) -> Iterator[None]:
    """Note when an interrupt has come that the program sends itself, and raise as Python does."""
    if app.program.block != "twice":
        yield
        return

    def on_interrupt(number: int, frame: Any) -> None:
        app.interrupted.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _path(app: RandomApp, name: str) -> str:
    return app.made[name].name
