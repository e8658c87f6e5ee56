"""What the dashboard costs a pipeline at 1,000 messages a second, with a page connected that reads everything.

A source emits 1,000 messages a second, three operators work on each for a while, and a sink takes them. The same
pipeline runs in turn: by itself, observed by a watcher that does nothing, and with a dashboard. A client in another
process confirms every update, as a page does. The figures, over all rounds:

- the processor time of the whole process, in percent of one core: what the dashboard takes from a pipeline that
  could use every core; and that of each of its threads, which varies less: the reader's, and those of the page.
  What is left is the recording, in the threads that compute;
- the time of a message from the source's compute to the sink's;
- the messages a second: whether the pipeline keeps its pace.

    python -m benchmarks.dashboard [--seconds 8] [--rounds 3] [--work 150] [--save]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import common, report
from headrace import Application, Operator, PeriodicCondition
from headrace.observe import Dashboard, Watcher, watch

RATE = 1000
_THREADS = {"headrace observe": "reader", "headrace-page": "page"}
_SETTLE = 3.0  # seconds until the client is there and the pipeline has caught up


class Source(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(time.perf_counter(), "out")


class Stage(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        began = op_input.receive("in")
        until = time.thread_time() + self.fragment.work
        while time.thread_time() < until:
            pass
        op_output.emit(began, "out")


class Sink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.fragment.latencies.append(time.perf_counter() - op_input.receive("in"))


class Pipeline(Application):
    def __init__(self, work: float) -> None:
        super().__init__(["benchmark"])
        self.work = work
        self.latencies: list[float] = []

    def compose(self) -> None:
        operators: list[Operator] = [Source(self, PeriodicCondition(self, f"{RATE}Hz"), name="source")]
        operators += [Stage(self, name=f"stage {number}") for number in (1, 2, 3)]
        operators.append(Sink(self, name="sink"))
        for before, after in pairwise(operators):
            self.add_flow(before, after)


def read_everything(url: str) -> None:
    """Read every update of a page and confirm it; print their number and size at the end."""
    import aiohttp

    async def work() -> None:
        base, _, query = url.partition("/?")
        count = size = 0
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{base}/ws?{query}", origin=base, max_msg_size=0) as socket,
        ):
            async for message in socket:
                kind = json.loads(message.data)["type"]
                if kind == "ended":
                    break
                if kind == "figures":
                    count, size = count + 1, size + len(message.data)
                    await socket.send_str('{"type": "shown"}')
        print(count, size, flush=True)

    asyncio.run(work())


def thread_times() -> dict[str, float]:
    """Return the seconds of processor time of headrace's threads, by what they are for."""
    found = {"reader": 0.0, "page": 0.0}
    for thread in threading.enumerate():
        kind = _THREADS.get(thread.name.partition(" the ")[0])
        if kind is not None:
            text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text()
            found[kind] += int(text.split()[0]) / 1e9
    return found


def run(seconds: float, work: float, kind: str) -> dict[str, float]:
    """Run for some seconds and return the figures."""
    app = Pipeline(work)
    dashboard = Dashboard(app, announce=lambda url: None) if kind == "page" else None
    if kind == "observed":
        watch(app, Watcher())
    future = app.run_async()
    client = None
    if dashboard is not None:
        while not dashboard.url:
            time.sleep(0.01)
        command = [sys.executable, "-m", "benchmarks.dashboard", "--client", dashboard.url]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    time.sleep(_SETTLE)
    before, first = thread_times(), len(app.latencies)
    began, processor = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    processor, passed, last = time.process_time() - processor, time.perf_counter() - began, len(app.latencies)
    shares = {kind: 100 * (after - before[kind]) / passed for kind, after in thread_times().items()}
    app.stop_execution()
    future.result()
    updates, size = map(int, client.communicate(timeout=30)[0].split()) if client is not None else (0, 0)
    latencies = sorted(app.latencies[first:last])
    return {
        "processor": 100 * processor / passed,
        **shares,
        "median": 1e6 * statistics.median(latencies),
        "tenth": 1e6 * latencies[len(latencies) // 10],
        "rate": (last - first) / passed,
        "updates": updates / (passed + _SETTLE),
        "kilobytes": size / 1e3 / max(updates, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=float, default=150, help="microseconds of each of the three stages")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--client", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        read_everything(options.client)
        return
    found: dict[str, list[dict[str, float]]] = {"alone": [], "observed": [], "page": []}
    for _ in range(options.rounds):
        for kind, rounds in found.items():
            rounds.append(run(options.seconds, options.work / 1e6, kind))
    best = {
        kind: {name: min(each[name] for each in rounds) for name in rounds[0]}
        for kind, rounds in found.items()
    }

    def row(name: str, key: str) -> list[str]:
        alone, observed, page = (best[kind][key] for kind in best)
        change = f"{100 * (page / alone - 1):+.1f} %" if alone else f"+{page:.1f}"
        return [name, f"{alone:.2f}", f"{observed:.2f}", f"{page:.2f}", change]

    # What a message takes longer, at a thousand a second, is a part of a core.
    recording = max(best["observed"]["tenth"] - best["alone"]["tenth"], 0) * RATE / 1e6 * 100
    parts = best["page"]["reader"], best["page"]["page"], recording
    text = (
        f"# A dashboard beside a pipeline of {RATE:,} messages a second\n\n"
        + report.table(
            ["the least of all rounds", "alone", "observed", "with a page", "change"],
            [
                row("processor time, % of one core", "processor"),
                row("of the reader's thread", "reader"),
                row("of the page's threads", "page"),
                row("time of a message, µs: median", "median"),
                row("time of a message, µs: least disturbed tenth", "tenth"),
                row("messages a second", "rate"),
            ],
        )
        + f"\n\nThe dashboard takes {sum(parts):.1f} % of one core, of which 3 are allowed: {parts[0]:.1f} in the "
        f"reader's thread, {parts[1]:.1f} in the page's threads, {parts[2]:.1f} for recording, which is what a "
        "message takes longer in its least disturbed tenth. The processor time of the whole process varies by more "
        f"than that. A page is sent {best['page']['updates']:.1f} updates a second of "
        f"{best['page']['kilobytes']:.1f} kB.\n\n"
        + f"{report.circumstances(common.machine())}; load {os.getloadavg()[0]:.1f} when it ended"
    )
    report.publish("dashboard", text)


if __name__ == "__main__":
    main()
