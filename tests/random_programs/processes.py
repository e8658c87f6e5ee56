"""Random programs in real processes: their parts, as a driver runs them, and replicas of a stage.

``python -m headrace run processes.py -- FOLDER SEED...`` runs the programs of some seeds one after the other. Each
part is a process, which leaves in a folder what its operators have seen. The driver leaves what became of the run.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headrace import CountCondition, Operator
from tests.harness.processes import run_forked
from tests.random_programs.building import Record, results_of
from tests.random_programs.making import make
from tests.random_programs.parts import Part, PartsApp, by_stage, places_of
from tests.random_programs.program import Program, Stage, is_capturable
from tests.random_programs.running import run_program


class Leaving(Operator):
    """Leaves what the operators of its part have seen, when all of them have ended."""

    def __init__(self, fragment: Any, *args: Any, path: Path, names: list[str], **kwargs: Any) -> None:
        self._path, self._names = path, names
        super().__init__(fragment, *args, **kwargs)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        raise AssertionError("it never computes")

    def stop(self) -> None:
        computes = self.fragment.application.record.computes
        self._path.write_bytes(pickle.dumps({name: computes[name] for name in self._names}))


class LeavingPart(Part):
    """The stages of one part, which leave what they have seen."""

    def compose(self) -> None:
        super().compose()
        app: Any = self._app
        names = [stage.name for stage in app.program.stages if app.part_of(stage.name) == self.name]
        path = app.folder / f"{app.program.seed} {self.name}"
        self.add_operator(Leaving(self, CountCondition(self, 0), path=path, names=names, name="leaving"))


class ProcessesApp(PartsApp):
    """The application of a program whose parts are processes."""

    part = LeavingPart

    def __init__(self, program: Program, folder: Path) -> None:
        super().__init__(program, places_of(program))
        self.folder = folder


def run_in_processes(programs: Iterable[Program], folder: Path) -> list[Record]:
    """Run programs by the command, and return what was seen in all processes of each."""
    seeds = [program.seed for program in programs]
    done = run_forked("-m", "headrace", "run", __file__, "--", folder, *seeds)
    assert done.returncode == 0, done.stderr
    records = []
    for seed in seeds:
        record = Record()
        record.outcome = pickle.loads((folder / f"{seed} outcome").read_bytes())
        for path in folder.glob(f"{seed} p*"):
            record.computes.update(pickle.loads(path.read_bytes()))
        records.append(record)
    return records


def _main(folder: Path, seeds: Iterable[int]) -> None:
    for seed in seeds:
        app = ProcessesApp(make(seed), folder)
        outcome = app.run(processes=True)
        left = SimpleNamespace(
            ended_by=str(outcome.ended_by),
            operators={},
            dropped=by_stage(outcome.dropped),
            undelivered=by_stage(outcome.undelivered),
        )
        (folder / f"{seed} outcome").write_bytes(pickle.dumps(left))


class ReplicaOfStage(Operator):
    """An operator that computes what a stage does, in another process, where nobody notes it."""

    def __init__(self, fragment: Any, *args: Any, stage: Stage, **kwargs: Any) -> None:
        self.stage = stage
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input(self.stage.ports[0].name)
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        name = self.stage.ports[0].name
        (result,) = results_of(self.stage, {name: [op_input.receive(name)]}, 0)
        op_output.emit(result, "out")


def with_process_replicas(program: Program) -> Program | None:
    """Return a program of which a stage has replicas in processes, or None if none can have them.

    The stage computes each message alone, and nobody sets it.
    """
    are_set = {setting.stage for setting in program.settings}
    stages = [each for each in program.stages if is_capturable(program, each) and each.name not in are_set]
    if not stages:
        return None
    replicated = replace(stages[-1], on_processes=True)
    return replace(program, stages=[replicated if each is stages[-1] else each for each in program.stages])


def run_with_process_replicas(program: Program) -> tuple[Program, Record] | None:
    """Run a program of which a stage has replicas in processes, if one can."""
    other = with_process_replicas(program)
    return other and (other, run_program(other, on_processes=ReplicaOfStage))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), map(int, sys.argv[2:]))
