"""Whole programs in processes: runs one after the other, pauses, starvation, devices, the log."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.harness.processes import run_forked

PROGRAM = """
import logging
import os

from headrace import Application, Fragment, Operator, gpu, op

log = logging.getLogger("headrace.operator.mine")


@op
def numbers(*, count: int = 3, first: int = 0):
    while True:
        yield from range(first, first + count)
        if count < 100:
            return


class Join(Operator):
    def setup(self, spec):
        spec.input("one")
        spec.input("two")
        spec.output("out")

    def compute(self, op_input, op_output, context):
        one = op_input.receive("one")
        op_output.emit(op_input.receive("two"), "out")
        if one < 10:
            log.warning("joined %d on %d devices, cores %s", one, devices(), os.sched_getaffinity(0))


def devices():
    return len(gpu.Device.get_all_devices())


@op
def back(value):
    return value


class Loop(Fragment):
    def compose(self):
        self.add_operator(numbers(self, name="numbers"))
        self.add_operator(back(self, name="back"))


class Stuck(Application):
    def compose(self):
        loop, sink = Loop(self, "loop"), Sink(self, "sink")
        self.add_flow(loop, sink, {("numbers.out", "join.one"), ("back.out", "join.two")}, size=4)
        self.add_flow(sink, loop, {("join.out", "back.value")})


class Source(Fragment):
    def compose(self):
        self.add_operator(numbers(self, name="numbers", count=self.application.count))


class Sink(Fragment):
    def compose(self):
        self.add_operator(Join(self, name="join"))


class App(Application):
    def __init__(self, count=3):
        super().__init__()
        self.count = count

    def compose(self):
        one, two = Source(self, "one", gpus=1), Source(self, "two")
        sink = Sink(self, "sink", gpus=2, cpus=[min(os.sched_getaffinity(0))])
        self.add_flow(one, sink, {("numbers.out", "join.one")}, size=4)
        self.add_flow(two, sink, {("numbers.out", "join.two")}, size=4)


if __name__ == "__main__":
    for kind in (App, Stuck):
        for processes in (False, True):
            app = kind()
            outcome = app.run(processes=processes)
            print(outcome.ended_by, outcome.computes, outcome.undelivered, *outcome.starved)
            assert app.graph.find("sink.join").name in app.outcome.operators
    app = App(10**9)
    future = app.run_async(processes=True)
    assert app.wait_until_started()
    app.pause()
    assert app.wait_until_paused()
    app.resume()
    app.stop_execution()
    print("second:", future.result().ended_by)
"""


def test_a_program_runs_several_times_and_its_parts_know_their_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run_forked(
        *("-m", "headrace", "run", "program.py", "--log-format", "json", "--trace", "out.json"),
        cwd=tmp_path,
        HEADRACE_SIM_DEVICES="3",
    )
    assert done.returncode == 0, done.stderr
    out = done.stdout.splitlines()
    assert out[0] == out[1]
    assert out[0] == "finished 11 {}"
    back = "'loop.back' waits for a message at 'value' from 'sink.join' (waits for it in turn, after 0 "
    assert out[2].startswith(f"starved 4 {{'sink.join.one': 3}} {back}")
    # A part alone cannot tell that another one waits for it; it knows what is left at its own inputs.
    assert out[3] == out[2].replace(f"{back}computes), and never ran ", "")
    assert out[4:] == ["second: stopped"]
    records = [json.loads(line) for line in done.stderr.splitlines()]
    joined = [record for record in records if record["logger"] == "headrace.operator.mine"]
    assert {record["fragment"] for record in joined} == {"sink"}
    assert joined[-1]["message"].endswith(f"on 2 devices, cores {{{min(os.sched_getaffinity(0))}}}")
    # One trace for each run, in one process or in several.
    traces = {"out.json", *(f"out-{number}.json" for number in range(2, 6))}
    assert {name for name in os.listdir(tmp_path) if name.startswith("out")} == traces
