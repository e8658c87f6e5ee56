"""Random graphs, cut at random: in one process and in several, by each kind of link, and what each stage received.

    python -m benchmarks.parts_soak [--programs N] [--first N] [--jobs N] [--seconds S] [--kinds orderly,...]
        [--ways ray] [--save]

``orderly`` and ``looped`` programs must have the same frames in the same order, and the same outcome, in every
way to run them; in looped ones messages come back through other parts. So must ``frozen`` ones, in which a
process, perhaps the driver, is stopped for less than its deadline. In ``killed`` ones a process is killed, perhaps
two, whose parts are restarted, given up or end the run. In ``unruly`` and ``faulty`` ones, queues drop frames and
stages fail: each frame must have been received once and in order, or be counted. After each run, no process and no
file of the run may be left. Needs no GPU. The parts are actors with ``--ways ray``, of one cluster that is started
for all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from benchmarks.parts_graphs import flows_of, in_order
from benchmarks.parts_program import KINDS, plan_of, policies_of
from benchmarks.report import circumstances, publish, table

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = str(Path(__file__).with_name("parts_program.py"))
ROOT = Path(__file__).parents[1]
WAYS = ("one process", "unix", "tcp", "driver and worker")
SAME = ("orderly", "looped", "frozen")
"""The kinds of programs that do the same in every way to run them."""
FREEZE = 2.2  # seconds that no deadline of a process is shorter than, whenever it last said that it lives


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


def run(way: str, kind: str, seed: int, folder: Path, limit: float) -> dict[str, Any]:
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
        "XDG_RUNTIME_DIR": str(folder / "runtime"),
    }
    (folder / "runtime").mkdir(mode=0o700)
    options, workers = [], []
    if way in ("unix", "tcp"):
        options = ["--processes"]
        environment["HEADRACE_LINK"] = way
    elif way == "driver and worker":
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        environment["HEADRACE_TOKEN"] = "a-token-of-the-soak-0123456789abcdef"
        options = ["--driver", "--address", address]
        workers = [["--worker", "--fragments", "all", "--address", address]]
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
        if not await_listener(address, driver, limit):
            break
        others.append(subprocess.Popen([*headrace, *each, *arguments], env=environment, **quiet))
    problems: list[str] = []
    signalling = None
    if kind in ("frozen", "killed") and way != "one process":
        signalling = threading.Thread(target=send_signals, args=(kind, seed, folder, driver))
        signalling.start()
    try:
        out, _ = driver.communicate(timeout=limit)
        if driver.returncode not in (0, 3):
            problems.append(f"status {driver.returncode}: {out[-2000:]}")
    except subprocess.TimeoutExpired:
        problems.append(f"did not end in {limit:g} s")
        driver.kill()
        driver.wait()
    for other in others:
        try:
            other.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            problems.append("a worker did not end with its driver")
            other.kill()
            other.wait()
    if signalling is not None:
        signalling.join()
    left = [
        *processes_of(marker),
        *(str(path) for path in (folder / "runtime").rglob("*") if not path.is_dir()),
    ]
    if left:
        problems.append(f"left: {left}")
    found: dict[str, Any] = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    found["problems"] = problems
    found["started"] = [int(path.stem) for path in folder.glob("*.started")]
    found["killed"] = [path.stem[1:] for path in folder.glob("*.killed")]
    return found


def send_signals(kind: str, seed: int, folder: Path, driver: subprocess.Popen[str]) -> None:
    """Freeze a process of a run for a while, or kill some, at a random moment after they have started."""
    random = Random(f"signals {kind} {seed}")
    parts = sorted({f"p{place}" for place in plan_of(kind, seed)[1]})
    for turn in range(1 if kind == "frozen" else random.choice([1, 1, 2])):
        found: dict[str, int] = {}
        while len(found) < len(parts) and driver.poll() is None:
            time.sleep(0.005)
            found = {
                path.stem: int(path.suffix[1:]) for path in folder.glob("p*.*") if path.suffix != ".killed"
            }
        time.sleep(random.uniform(0.0, 0.15))
        if kind == "frozen":
            targets = random.sample([*found.values(), driver.pid], k=1 + (random.random() < 0.2))
            for pid in targets:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            time.sleep(random.uniform(0.3, FREEZE))
            for pid in targets:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            return
        for part in random.sample(sorted(found), k=min(len(found), 1 + (random.random() < 0.25))):
            (folder / f"{part}.{found[part]}").rename(folder / f"{turn}{part}.killed")
            with contextlib.suppress(ProcessLookupError):
                os.kill(found[part], signal.SIGKILL)


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


def await_listener(address: str, driver: subprocess.Popen[str], limit: float) -> bool:
    """Wait until the driver listens; looking does not connect."""
    port = f":{int(address.rpartition(':')[2]):04X} "
    until = time.monotonic() + limit
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
    killed = {n for n, place in enumerate(places) if f"p{place}" in seen.get("killed", ())}
    absent = {n for n in range(len(places)) if str(n) not in seen}
    missing = sorted(absent & {*seen["started"]} - killed)
    if missing or (kind in SAME and absent):
        return [*problems, f"stages {missing or absent} did not stop; {outcome}"]
    if kind in SAME:
        if outcome != alone["outcome"]:
            problems.append(f"outcome {outcome}, and in one process {alone['outcome']}")
        for n in range(len(places)):
            here, there = (_as_always(plan, n, each[str(n)]) for each in (seen, alone))
            if here != there:
                problems.append(f"stage {n}: {here}, and in one process {there}")
        return problems
    expected = {"faulty": "ZeroDivisionError", "killed": "PartLost"}.get(kind, "")
    if outcome["raised"].partition(":")[0] not in ("", expected):
        problems.append(f"raised {outcome['raised']}")
    if kind == "killed" and outcome["raised"]:
        policies = policies_of(kind, seed)
        if "stop" not in {policies[places[n]] for n in killed} and "started" not in outcome["raised"]:
            problems.append(f"raised {outcome['raised']}, and the policies are {policies}")
    for target, port in sorted({(target, port) for _, target, port in flows_of(plan)}):
        sources = [source for source, *to in flows_of(plan) if to == [target, port]]
        name = f"p{places[target]}.s{target}.{port}"
        if (killed | absent) & {target, *sources}:
            continue
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
    overlapped = [n for n in range(len(places)) if str(n) in seen and seen[str(n)]["overlapped"]]
    if overlapped:
        problems.append(f"stages {overlapped} ran twice at once")
    return problems


def _as_always(plan: Any, number: int, seen: dict[str, Any]) -> dict[str, Any]:
    """Return what a stage has seen, as far as it does not depend on who of several was faster."""
    ports = {port: in_order(plan, number, port, kept) for port, kept in seen["received"].items()}
    return {**seen, "received": ports}


def main() -> int:
    """Run the programs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first program")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=2, help="programs at once")
    parser.add_argument("--ways", default=",".join(WAYS[1:]))
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no program after so many")
    parser.add_argument("--limit", type=float, default=120.0, help="the most seconds of a run")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    with ray_cluster() if "ray" in options.ways.split(",") else contextlib.nullcontext():
        return soak(options)


def soak(options: argparse.Namespace) -> int:
    """Run the programs in all ways."""
    began = time.monotonic()
    counts: dict[tuple[str, str], list[int]] = {}
    lock = threading.Lock()

    def check(seed: int, kind: str) -> None:
        if time.monotonic() - began > options.seconds:
            return
        with tempfile.TemporaryDirectory() as folder:
            alone: dict[str, Any] = {}
            for way in (*WAYS[: kind in SAME], *options.ways.split(",")):
                if time.monotonic() - began > options.seconds:
                    return
                seen = run(way, kind, seed, Path(folder, way.replace(" ", "")), options.limit)
                alone = alone or seen
                problems = judge(kind, seed, seen, alone)
                received = [seen[name]["received"] for name in seen if name.isdecimal()]
                with lock:
                    count = counts.setdefault((kind, way), [0, 0, 0, 0])
                    count[0] += 1
                    count[1] += sum(len(kept) for ports in received for kept in ports.values())
                    count[2] += len(seen.get("killed", ()))
                    count[3] += bool(problems)
                    for problem in problems:
                        print(f"{kind} {seed}, {way}: {problem}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        seeds = range(options.first, options.first + options.programs)
        for job in [pool.submit(check, seed, kind) for seed in seeds for kind in options.kinds.split(",")]:
            job.result()
    rows = [(kind, way, *count) for (kind, way), count in sorted(counts.items())]
    rows.append(("all", "", *(sum(count[n] for count in counts.values()) for n in range(4))))
    text = table(("programs", "run", "runs", "frames received", "killed", "wrong"), rows)
    publish(
        "parts_soak",
        f"# Random programs, cut at random\n\n{circumstances('no GPU')}\n\n"
        f"`python -m benchmarks.parts_soak --first {options.first} --jobs {options.jobs}`, "
        f"{time.monotonic() - began:.0f} s: graphs of 2 to 20 stages in three parts. In one process, in three by "
        "Unix sockets (`--processes`), by TCP (`HEADRACE_LINK=tcp`), by `--driver` and `--worker` on the loopback "
        "interface, or as actors of Ray (`--cluster ADDRESS`). Messages are tuples, arrays, or tensors of a "
        "simulated device, whose elements, times and metadata are compared.\n\n"
        f"{(__doc__ or '').split(chr(10) * 2)[2]}\n\n{text}",
    )
    return 1 if any(count[3] for count in counts.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
