"""Frames between fragments whose processes are killed again and again: which arrive, which are counted as lost.

    python -m benchmarks.parts_losses [--frames N] [--rounds N] [--save]

Sources in one fragment send to relays in two others, and these to sinks in a fourth: four chains of operators in
four processes. The processes of relays and sinks are killed with SIGKILL at random moments, as often as their
policy lets the run go on. Sources number their frames; relays and sinks check every element; sinks append what they
receive to a file. A frame must have been received, or be counted as lost; frames that came twice must have been
counted as sent again. Under the policy ``stop`` the run ends with the error, and what was received before must be
whole and in order. After each run no process may be left. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.parts_soak import ROOT, processes_of
from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, Fragment, Operator

CHAINS = 4
SIZE = 64
LENGTH = 16
LIMIT = 1200.0


def frame(chain: int, number: int) -> Any:
    """Return the frame of a number, whose elements all depend on it."""
    found = np.arange(number, number + LENGTH, dtype=np.int64)
    found[1] = chain
    return found


def is_whole(received: Any) -> bool:
    """Return whether a frame is as it was sent."""
    number = int(received[0])
    return len(received) == LENGTH and bool((received[2:] == np.arange(number + 2, number + LENGTH)).all())


class Source(Operator):
    """Emits numbered frames."""

    def __init__(self, *given: Any, chain: int, **more: Any) -> None:
        self.chain, self.number = chain, 0
        super().__init__(*given, **more)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(frame(self.chain, self.number), "out")
        self.number += 1


class Relay(Operator):
    """Checks frames and passes them on."""

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        note_process(self.fragment.name)
        received = op_input.receive("in")
        assert is_whole(received), received
        op_output.emit(received, "out")


class Sink(Operator):
    """Appends what it receives to a file, which outlives its process."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.file = os.open(Path(FOLDER, "received"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        note_process(self.fragment.name)
        received = op_input.receive("in")
        number = int(received[0]) if is_whole(received) else -1
        os.write(self.file, np.array([received[1], number], np.int64).tobytes())


@cache
def note_process(part: str) -> None:
    """Tell who may be killed: a process that is lost before its run has begun is not replaced."""
    Path(FOLDER, f"{part}.{os.getpid()}").touch()


class Sources(Fragment):
    """The sources."""

    def compose(self) -> None:
        for chain in range(CHAINS):
            limit = CountCondition(self, FRAMES // CHAINS)
            self.add_operator(Source(self, limit, chain=chain, name=f"source{chain}"))


class Relays(Fragment):
    """Half of the relays."""

    def compose(self) -> None:
        for chain in range(CHAINS):
            if chain % 2 == int(self.name[-1]):
                self.add_operator(Relay(self, name=f"relay{chain}"))


class Sinks(Fragment):
    """The sinks."""

    def compose(self) -> None:
        for chain in range(CHAINS):
            self.add_operator(Sink(self, name=f"sink{chain}"))


class Chains(Application):
    """Sources, relays and sinks."""

    def compose(self) -> None:
        sources, sinks = Sources(self, "sources"), Sinks(self, "sinks", on_loss=POLICY)
        relays = [Relays(self, f"relays{half}", on_loss=POLICY) for half in range(2)]
        for chain in range(CHAINS):
            middle = relays[chain % 2]
            self.add_flow(sources, middle, {(f"source{chain}.out", f"relay{chain}.in")}, size=SIZE)
            self.add_flow(middle, sinks, {(f"relay{chain}.out", f"sink{chain}.in")}, size=SIZE)


def run_program() -> None:
    """Run the chains, and write the outcome to a file."""
    app = Chains()
    raised = ""
    try:
        app.run()
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
    outcome = app.outcome
    assert outcome is not None, raised
    counts = {
        what: getattr(outcome, what) for what in ("lost", "repeated", "undelivered", "dropped", "computes")
    }
    Path(FOLDER, "outcome.json").write_text(json.dumps({"raised": raised, **counts}))


# The other side: starts the program, kills its processes and judges.


def run(policy: str, way: str, frames: int, seed: int, interval: float, folder: Path) -> dict[str, Any]:
    """Run the program once, and return what became of its frames."""
    random = Random(seed)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir(), f"parts_soak-{os.geteuid()}")),
        "HEADRACE_DEVICE": "sim",
        "HEADRACE_LOG_LEVEL": "error",
        "HEADRACE_PROCESSES": "1",
        "HEADRACE_PROGRESS": "0",
        "HEADRACE_LINK": way,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "PARTS_SOAK": str(folder),
    }
    command = [sys.executable, __file__, "--program", policy, str(frames), str(folder)]
    driver = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    kills, problems = 0, []
    parts = ("relays0", "relays1", "sinks") if policy == "restart" else ("relays0",)
    alive: dict[str, Path] = {}
    killed: set[Path] = set()
    until = time.monotonic() + LIMIT
    killed_at = 0.0
    while driver.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
        alive = {part: path for part in parts for path in folder.glob(f"{part}.*") if path not in killed}
        if len(alive) < len(parts) or (kills and policy != "restart"):
            continue
        time.sleep(random.uniform(0.0, interval))
        for victim in random.sample(parts, 2 if policy == "restart" and random.random() < 0.2 else 1):
            try:
                os.kill(int(alive[victim].suffix[1:]), signal.SIGKILL)
            except ProcessLookupError:  # it has done its work
                continue
            killed.add(alive[victim])
            kills, killed_at = kills + 1, time.monotonic()
    if driver.poll() is None:
        problems.append(f"did not end in {LIMIT:g} s")
        driver.kill()
    out, _ = driver.communicate()
    if policy == "stop" and kills and time.monotonic() - killed_at > 3:
        problems.append("did not stop at once")
    if left := processes_of(f"PARTS_SOAK={folder}"):
        problems.append(f"processes left: {left}")
    try:
        outcome = json.loads(Path(folder, "outcome.json").read_text())
    except OSError:
        return {"problems": [*problems, out[-2000:]], "kills": kills}
    return judge(policy, frames, folder, outcome) | {"kills": kills, "problems": problems}


def judge(policy: str, frames: int, folder: Path, outcome: dict[str, Any]) -> dict[str, Any]:
    """Return what became of the frames."""
    received = np.fromfile(Path(folder, "received"), np.int64)
    received = received[: len(received) // 2 * 2].reshape(-1, 2)
    found = {"received": len(received), "wrong": int((received[:, 1] < 0).sum())}
    unordered = twice = missing = 0
    for chain in range(CHAINS):
        numbers = received[received[:, 0] == chain, 1]
        _, first = np.unique(numbers, return_index=True)
        unordered += int((np.diff(first) < 0).sum())
        twice += len(numbers) - len(first)
        missing += frames // CHAINS - len(first)
    lost, repeated = (sum(outcome[what].values()) for what in ("lost", "repeated"))
    lost += sum(outcome["undelivered"].values()) if policy == "go_on" else 0
    raised = outcome["raised"].startswith("PartLost") if policy == "stop" else not outcome["raised"]
    uncounted = 0 if policy == "stop" else max(missing - lost, 0)
    return found | {
        "unordered": unordered,
        "twice": twice,
        "repeated": repeated,
        "missing": missing,
        "lost": lost,
        "uncounted": uncounted + max(twice - repeated, 0),
        "raised": raised,
        "text": outcome["raised"][:500],
    }


def main() -> int:
    """Run the program by each policy and link."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=100_000, help="of each run")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--interval", type=float, default=1.0, help="the most seconds until the next kill")
    parser.add_argument("--policies", default="restart,go_on,stop")
    parser.add_argument("--ways", default="unix,tcp")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    columns = ("kills", "received", "wrong", "unordered", "twice", "repeated", "missing", "lost", "uncounted")
    sums: dict[tuple[str, str], list[int]] = {}
    bad = 0
    for number in range(options.rounds):
        for policy in options.policies.split(","):
            for way in options.ways.split(","):
                with tempfile.TemporaryDirectory() as folder:
                    seen = run(
                        policy, way, options.frames, options.seed + number, options.interval, Path(folder)
                    )
                counts = [seen.get(name, 0) for name in columns]
                total = sums.setdefault((policy, way), [0] * (len(columns) + 2))
                total[:] = [a + b for a, b in zip(total, [1, options.frames, *counts], strict=True)]
                wrong = bool(
                    seen["problems"]
                    or not seen.get("raised")
                    or seen.get("wrong")
                    or seen.get("unordered")
                    or seen.get("uncounted")
                )
                bad += wrong
                print(f"{number} {policy} {way}: {seen}" + (" **wrong**" if wrong else ""), flush=True)
    heads = ("on_loss", "link", "runs", "sent", *columns)
    headings = [{"repeated": "sent again", "lost": "counted as lost"}.get(head, head) for head in heads]
    text = table(headings, [(*key, *total) for key, total in sums.items()])
    publish(
        "parts_losses",
        f"# Frames and killed processes\n\n{circumstances('no GPU')}\n\n`python -m benchmarks.parts_losses "
        f"--frames {options.frames} --rounds {options.rounds}`. {(__doc__ or '').split(chr(10) * 2)[2]}\n\n{text}",
    )
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        POLICY, FRAMES, FOLDER = sys.argv[2], int(sys.argv[3]), sys.argv[4]
        run_program()
    else:
        raise SystemExit(main())
