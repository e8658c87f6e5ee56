"""Random graphs, cut at random: in one process and in several, by each kind of link, and what each stage received.

    python -m benchmarks.parts_soak [--programs N] [--first N] [--kinds orderly,unruly,faulty] [--ways ray] [--save]

Orderly programs must have the same frames in the same order, and the same outcome, in every way to run them. In the
others, queues drop frames: each frame must have been received once and in order, or be counted. After each run, no
process may be left. Needs no GPU. The parts are actors with ``--ways ray``, of one cluster that is started for all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.parts_program import plan_of
from benchmarks.report import circumstances, publish, table
from tests.parts.plans import flows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = str(Path(__file__).with_name("parts_program.py"))
ROOT = Path(__file__).parents[1]
LIMIT = 300.0
WAYS = ("one process", "unix", "tcp", "driver and worker")


def processes_of(marker: str) -> list[str]:
    """Return the processes, zombies too, that have a text in their environment."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes()
            if marker.encode() in environment:
                found.append(name)
        except OSError:
            continue
    return found


def run(way: str, kind: str, seed: int, folder: Path) -> dict[str, Any]:
    """Run a program; return the outcome and what its stages saw, or what went wrong."""
    folder.mkdir()
    marker = f"PARTS_SOAK={folder}"
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir(), f"parts_soak-{os.geteuid()}")),
        "HEADRACE_DEVICE": "sim",
        "HEADRACE_LOG_LEVEL": "error",
        "HEADRACE_PROGRESS": "0",
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "PARTS_SOAK": str(folder),
    }
    options, workers = [], []
    if way in ("unix", "tcp"):
        options = ["--processes"]
        environment["HEADRACE_LINK"] = way
    elif way == "driver and worker":
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        environment["HEADRACE_TOKEN"] = "a-token-of-the-soak-0123456789abcdef"
        options = ["--driver", "--address", address]
        workers = [["--worker", "--address", address]]
    elif way == "ray":
        options = ["--cluster", os.environ["PARTS_SOAK_RAY"]]
    headrace = [
        sys.executable,
        "-c",
        "import sys; from headrace.cli import main; sys.exit(main())",
        "run",
        PROGRAM,
    ]
    arguments = ["--", kind, str(seed), str(folder)]
    quiet: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    driver = subprocess.Popen([*headrace, *options, *arguments], env=environment, **quiet)
    others = []
    for each in workers:
        if not await_listener(address, driver):
            break
        others.append(subprocess.Popen([*headrace, *each, *arguments], env=environment, **quiet))
    problems = []
    try:
        out, _ = driver.communicate(timeout=LIMIT)
        if driver.returncode not in (0, 3):
            problems.append(f"status {driver.returncode}: {out[-2000:]}")
    except subprocess.TimeoutExpired:
        problems.append(f"did not end in {LIMIT:g} s")
        driver.kill()
        driver.wait()
    for other in others:
        try:
            other.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            problems.append("a worker did not end with its driver")
            other.kill()
            other.wait()
    left = processes_of(marker)
    if left:
        problems.append(f"processes left: {left}")
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    found["problems"] = problems
    return found


@contextlib.contextmanager
def ray_cluster() -> Iterator[None]:
    """Start Ray on this machine, for the way ``ray``: small, and closed to strangers."""
    before = dict(os.environ)
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0"}
    import ray

    folder = tempfile.mkdtemp(prefix="parts-soak-ray-")
    try:
        found = ray.init(
            address="local",
            include_dashboard=False,
            num_cpus=8,
            object_store_memory=80 << 20,
            log_to_driver=False,
            _temp_dir=folder,
        )
        os.environ["PARTS_SOAK_RAY"] = found.address_info["gcs_address"]
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.clear()
        os.environ.update(before)


def await_listener(address: str, driver: subprocess.Popen[str]) -> bool:
    """Wait until the driver listens; looking does not connect."""
    port = f":{int(address.rpartition(':')[2]):04X} "
    until = time.monotonic() + LIMIT
    while time.monotonic() < until and driver.poll() is None:
        if any(port in line and " 0A " in line for line in Path("/proc/net/tcp").read_text().splitlines()):
            return True
        time.sleep(0.01)
    return False


def judge(kind: str, seed: int, seen: dict[str, Any], alone: dict[str, Any]) -> list[str]:
    """Return what is wrong with a run."""
    plan, places, _, _ = plan_of(kind, seed)
    problems = list(seen["problems"])
    outcome = seen.get("outcome")
    if outcome is None:
        return [*problems, "no outcome"]
    if any(str(n) not in seen for n in range(len(places))):
        return [*problems, f"stages that did not stop; {outcome}"]
    if kind == "orderly":
        if outcome != alone["outcome"]:
            problems.append(f"outcome {outcome}, and in one process {alone['outcome']}")
        problems += [
            f"stage {n}: {seen[str(n)]}, and in one process {alone[str(n)]}"
            for n in range(len(places))
            if seen[str(n)] != alone[str(n)]
        ]
        return problems
    expected = "ZeroDivisionError" if kind == "faulty" else ""
    if outcome["raised"].partition(":")[0] not in ("", expected):
        problems.append(f"raised {outcome['raised']}")
    for target, port in sorted({(target, port) for _, target, port in flows_of(plan)}):
        sources = [source for source, *to in flows_of(plan) if to == [target, port]]
        name = f"p{places[target]}.s{target}.{port}"
        kept = [tuple(each) for each in seen[str(target)]["received"][port]]
        for source in sources:
            numbers = [number for origin, number in kept if origin == source]
            if numbers != sorted(set(numbers)):
                problems.append(f"{name}: out of order, or twice: {numbers}")
        sent = sum(len(seen[str(source)]["emitted"]) for source in sources)
        dropped, left = outcome["dropped"].get(name, 0), outcome["undelivered"].get(name, 0)
        if sent != len(kept) + dropped + left:
            problems.append(
                f"{name}: {sent} sent, {len(kept)} received, {dropped} dropped, {left} undelivered"
            )
    if any(seen[str(n)]["overlapped"] for n in range(len(places))):
        problems.append("a stage ran twice at once")
    return problems


def main() -> int:
    """Run the programs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first program")
    parser.add_argument("--kinds", default="orderly,unruly,faulty")
    parser.add_argument("--ways", default=",".join(WAYS[1:]))
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    with ray_cluster() if "ray" in options.ways.split(",") else contextlib.nullcontext():
        return soak(options)


def soak(options: argparse.Namespace) -> int:
    """Run the programs in all ways."""
    until = time.monotonic() + 60 * options.minutes
    counts: dict[tuple[str, str], list[int]] = {}
    for seed in range(options.first, options.first + options.programs):
        for kind in options.kinds.split(","):
            if time.monotonic() > until:
                break
            with tempfile.TemporaryDirectory() as folder:
                alone: dict[str, Any] = {}
                for way in (*WAYS[: kind == "orderly"], *options.ways.split(",")):
                    seen = run(way, kind, seed, Path(folder, way))
                    alone = alone or seen
                    problems = judge(kind, seed, seen, alone)
                    count = counts.setdefault((kind, way), [0, 0, 0])
                    received = [seen[name]["received"] for name in seen if name.isdecimal()]
                    count[0] += 1
                    count[1] += sum(len(kept) for ports in received for kept in ports.values())
                    count[2] += bool(problems)
                    for problem in problems:
                        print(f"{kind} {seed}, {way}: {problem}", flush=True)
        print(f"{seed}: {sum(count[2] for count in counts.values())} wrong so far", flush=True)
    rows = [(kind, way, *count) for (kind, way), count in counts.items()]
    text = table(("programs", "run", "runs", "frames received", "wrong"), rows)
    publish(
        "parts_soak",
        f"# Random programs, cut at random\n\n{circumstances('no GPU')}\n\n"
        f"`python -m benchmarks.parts_soak --minutes {options.minutes:g} --first {options.first}`: graphs of 2 to "
        "9 stages in three parts. In one process, in three by Unix sockets (`--processes`), by TCP "
        "(`HEADRACE_LINK=tcp`), by `--driver` and `--worker` on the loopback interface, or as actors of Ray "
        "(`--cluster ADDRESS`). Messages are tuples, "
        f"arrays, or tensors of a simulated device, whose elements are compared.\n\n{text}",
    )
    return 1 if any(count[2] for count in counts.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
