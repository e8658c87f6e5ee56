"""Frames between fragments whose processes are killed again and again: which arrive, which are counted as lost.

    python -m benchmarks.parts_losses [--total N] [--frames N] [--bytes N] [--ways W] [--jobs N] [--minutes M]
        [--save]

Sources in one fragment send to relays in two others, and these to sinks in a fourth: four chains of operators in
four processes. The processes of relays and sinks are killed with SIGKILL at random moments, sometimes two at once,
as often as their policy lets the run go on. Sources number their frames; relays and sinks check every element;
sinks append what they receive to a file. A frame that was sent must have been received, or be counted in the
outcome; frames that came twice must have been counted as sent again. Under the policy ``stop`` the run ends with
`PartLost`. The frames in the process that was killed end with it, as they would in one process: at most as many as
its queues have places. What was received must be whole and in order. After each run no process may be left.

With ``--bytes``, frames have up to so many, and sources pause now and then, so that senders are killed while they
copy.

With ``--ways ray``, the fragments are actors of Ray, which is started once; frames pass by TCP. Whether a process
is left is not known there, as Ray starts them without the mark of the run.

Programs run side by side (``--jobs``) until ``--total`` frames were sent, the same number for each policy and each
link. Needs no GPU. The exit status is 1 if a frame was lost without a count, wrong or out of order, or if fewer
frames than that were sent in time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.parts_soak import ROOT, processes_of, ray_cluster
from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, Fragment, Operator

CHAINS = 4
SIZE = 64
SMALLEST = 128  # bytes
BYTES = SMALLEST
LIMIT = 400.0  # seconds of a run
COUNTS = (
    "frames",
    "kills",
    "received",
    "counted",
    "ended",
    "uncounted",
    "wrong",
    "unordered",
    "twice",
    "repeated",
)
HEADS = {
    "counted": "lost, counted",
    "ended": "ended with the killed process",
    "uncounted": "lost, not counted",
    "unordered": "out of order",
    "repeated": "sent again",
}


def frame(chain: int, number: int) -> Any:
    """Return the frame of a number, whose elements all depend on it."""
    found = np.arange(number, number + length(number), dtype=np.int64)
    found[1] = chain
    return found


def length(number: int) -> int:
    """Return the elements of a frame: most have a few bytes less than `BYTES`, the others fewer."""
    return max(BYTES >> (number % 7 // 3), SMALLEST) // 8 - number % 3


def places() -> int:
    """Return the places of a queue: so few of large frames that they fit in memory."""
    return SIZE if BYTES == SMALLEST else 4


def is_whole(received: Any) -> bool:
    """Return whether a frame is as it was sent."""
    number = int(received[0])
    expected = np.arange(number + 2, number + length(number))
    return len(received) == length(number) and bool((received[2:] == expected).all())


class Source(Operator):
    """Emits numbered frames."""

    def __init__(self, *given: Any, chain: int, **more: Any) -> None:
        self.chain, self.number = chain, 0
        super().__init__(*given, **more)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if BYTES > SMALLEST and self.number % 5 == 0:
            time.sleep(0.002)  # until the receiver sleeps
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
            self.add_flow(sources, middle, {(f"source{chain}.out", f"relay{chain}.in")}, size=places())
            self.add_flow(middle, sinks, {(f"relay{chain}.out", f"sink{chain}.in")}, size=places())


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
    counts = {what: getattr(outcome, what) for what in ("lost", "repeated", "undelivered", "dropped")}
    sent = [outcome.operators[f"sources.source{chain}"].computes for chain in range(CHAINS)]
    Path(FOLDER, "outcome.json").write_text(json.dumps({"raised": raised, "sent": sent, **counts}))


# The other side: starts the programs, kills their processes and judges.


def run(policy: str, way: str, frames: int, seed: int, interval: float, folder: Path) -> dict[str, Any]:
    """Run the program once, and return what became of its frames."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir(), f"parts_soak-{os.geteuid()}")),
        "HEADRACE_DEVICE": "sim",
        "HEADRACE_LOG_LEVEL": "error",
        "HEADRACE_PROGRESS": "0",
        **(
            {"HEADRACE_CLUSTER": os.environ["PARTS_SOAK_RAY"]}
            if way == "ray"
            else {"HEADRACE_PROCESSES": "1", "HEADRACE_LINK": way}
        ),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PARTS_SOAK": str(folder),
    }
    command = [sys.executable, __file__, "--program", policy, str(frames), str(folder), str(BYTES)]
    with Path(folder, "output").open("w") as output:
        driver = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    kills, problems = 0, []
    try:
        kills = kill_now_and_then(driver, policy, folder, Random(f"{policy} {way} {seed}"), interval)
        driver.wait(3.0 if policy == "stop" and kills and way != "ray" else LIMIT)
    except subprocess.TimeoutExpired as error:
        problems.append(f"did not end within {error.timeout:g} s")
    finally:
        driver.kill()
        driver.wait()
    if left := processes_of(f"PARTS_SOAK={folder}"):
        problems.append(f"processes left: {left}")
    try:
        outcome = json.loads(Path(folder, "outcome.json").read_text())
    except OSError:
        return {"problems": [*problems, Path(folder, "output").read_text()[-2000:]], "kills": kills}
    found = judge(policy, kills, folder, outcome)
    return found | {"kills": kills, "problems": [*problems, *found["problems"]]}


def kill_now_and_then(
    driver: subprocess.Popen[bytes], policy: str, folder: Path, random: Random, interval: float
) -> int:
    """Kill processes of a program at random moments while it runs; return how many."""
    parts = ("relays0", "relays1", "sinks") if policy == "restart" else ("relays0",)
    killed: set[Path] = set()
    until = time.monotonic() + LIMIT
    while driver.poll() is None and time.monotonic() < until and not (killed and policy != "restart"):
        time.sleep(0.02)
        alive = {part: path for part in parts for path in folder.glob(f"{part}.*") if path not in killed}
        if len(alive) < len(parts):
            continue
        time.sleep(random.uniform(0.0, interval))
        for victim in random.sample(parts, 2 if policy == "restart" and random.random() < 0.2 else 1):
            try:
                os.kill(int(alive[victim].suffix[1:]), signal.SIGKILL)
            except ProcessLookupError:  # it has done its work
                continue
            killed.add(alive[victim])
    return len(killed)


def judge(policy: str, kills: int, folder: Path, outcome: dict[str, Any]) -> dict[str, Any]:
    """Return what became of the frames."""
    try:
        received = np.fromfile(Path(folder, "received"), np.int64)
    except FileNotFoundError:
        received = np.zeros(0, np.int64)
    received = received[: len(received) // 2 * 2].reshape(-1, 2)
    unordered = twice = missing = 0
    for chain, sent in enumerate(outcome["sent"]):
        numbers = received[received[:, 0] == chain, 1]
        _, first = np.unique(numbers, return_index=True)
        unordered += int((np.diff(first) < 0).sum())
        twice += len(numbers) - len(first)
        missing += sent - len(first)
    counted = sum(sum(outcome[what].values()) for what in ("lost", "undelivered", "dropped"))
    repeated = sum(outcome["repeated"].values())
    uncounted = max(missing - counted, 0)
    # A process that was killed under this policy ends the run, and what it had ends with it.
    # These are at most those in the queues before and behind half of the relays, and one in a compute of each.
    ended = min(uncounted, CHAINS // 2 * (2 * places() + 1)) if policy == "stop" else 0
    raised = outcome["raised"]
    has_ended_well = raised.startswith("PartLost") if policy == "stop" and kills else not raised
    return {
        "frames": sum(outcome["sent"]),
        "received": len(received),
        "counted": min(counted, missing),
        "ended": ended,
        "uncounted": uncounted - ended + max(twice - repeated, 0),
        "wrong": int((received[:, 1] < 0).sum()),
        "unordered": unordered,
        "twice": twice,
        "repeated": repeated,
        "problems": [] if has_ended_well else [f"raised {raised[:500]!r}"],
    }


class Tally:
    """What the runs so far have shown, by policy and link; any thread adds to it."""

    def __init__(self, pairs: list[tuple[str, str]], share: int) -> None:
        self.sums = {pair: dict.fromkeys(("runs", *COUNTS), 0) for pair in pairs}
        self.bad = 0
        self._share = share
        self._begun = dict.fromkeys(pairs, 0)
        self._lock = threading.Lock()

    def next(self) -> tuple[tuple[str, str], int] | None:
        """Return the policy and link that is furthest behind, and the number of its run; None if all are done."""
        with self._lock:
            open_ = [pair for pair, sums in self.sums.items() if sums["frames"] < self._share]
            if not open_:
                return None
            pair = min(open_, key=self._expected)
            self._begun[pair] += 1
            return pair, self._begun[pair] - 1

    def _expected(self, pair: tuple[str, str]) -> tuple[float, int]:
        """Return how many frames there will be when the runs under way are over, as far as is known."""
        sums, begun = self.sums[pair], self._begun[pair]
        each = sums["frames"] / sums["runs"] if sums["runs"] else self._share
        return sums["frames"] + (begun - sums["runs"]) * each, begun

    def add(self, pair: tuple[str, str], number: int, seen: dict[str, Any]) -> None:
        """Add a run."""
        is_bad = bool(seen["problems"] or any(seen.get(name) for name in ("wrong", "unordered", "uncounted")))
        with self._lock:
            sums = self.sums[pair]
            sums["runs"] += 1
            for name in COUNTS:
                sums[name] += seen.get(name, 0)
            self.bad += is_bad
            print(f"{' '.join(pair)} {number}: {seen}" + (" **wrong**" if is_bad else ""), flush=True)

    @property
    def is_complete(self) -> bool:
        """Whether every policy and link has had its frames."""
        return all(sums["frames"] >= self._share for sums in self.sums.values())


def main() -> int:
    """Run the program by each policy and link."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--total", type=int, default=1_000_000, help="frames of all runs")
    parser.add_argument("--frames", type=int, default=40_000, help="frames of each run, at most")
    parser.add_argument("--bytes", type=int, default=SMALLEST, help="of the largest frames")
    parser.add_argument("--jobs", type=int, default=max((os.cpu_count() or 1) * 3 // 4, 1))
    parser.add_argument("--minutes", type=float, default=7.5, help="begin no run after so many")
    parser.add_argument("--interval", type=float, default=1.0, help="the most seconds until the next kill")
    parser.add_argument("--policies", default="restart,go_on,stop")
    parser.add_argument("--ways", default="unix,tcp")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    global BYTES
    BYTES = max(options.bytes, SMALLEST)
    pairs = [(policy, way) for policy in options.policies.split(",") for way in options.ways.split(",")]
    tally = Tally(pairs, -(-options.total // len(pairs)))
    began = time.monotonic()

    def work() -> None:
        while time.monotonic() - began < 60 * options.minutes and (found := tally.next()) is not None:
            pair, number = found
            with tempfile.TemporaryDirectory() as folder:
                seen = run(*pair, options.frames, options.seed + number, options.interval, Path(folder))
            tally.add(pair, number, seen)

    uses_ray = "ray" in options.ways.split(",")
    with ray_cluster() if uses_ray else nullcontext(), ThreadPoolExecutor(options.jobs) as pool:
        for job in [pool.submit(work) for _ in range(options.jobs)]:
            job.result()
    sums = list(tally.sums.values())
    rows = [(*pair, *each.values()) for pair, each in tally.sums.items()]
    rows.append(("all", "", *(sum(each[name] for each in sums) for name in sums[0])))
    text = table(["on_loss", "link", "runs", *(HEADS.get(name, name) for name in COUNTS)], rows)
    seconds = time.monotonic() - began
    verdict = f"{tally.bad} runs were wrong" if tally.bad else "No run was wrong"
    verdict += "." if tally.is_complete else f", and fewer than {options.total} frames were sent in time."
    publish(
        "parts_losses_ray" if uses_ray else "parts_losses",
        f"# Frames and killed processes\n\n{circumstances('no GPU')}\n\n`python -m benchmarks.parts_losses "
        f"--total {options.total} --frames {options.frames} --bytes {BYTES} --jobs {options.jobs} "
        f"--ways {options.ways} --policies {options.policies} --seed {options.seed}`, {seconds:.0f} s.\n\n"
        f"{(__doc__ or '').split(chr(10) * 2)[2]}\n\n{text}\n\n{verdict}",
    )
    return 0 if tally.is_complete and not tally.bad else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        POLICY, FRAMES, FOLDER, BYTES = sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
        run_program()
    else:
        raise SystemExit(main())
