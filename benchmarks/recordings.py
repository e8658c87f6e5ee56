"""Measure what recording and reading a message takes, and what MCAP's own writer would take.

    python -m benchmarks.recordings [--path /dev/shm/recording.mcap]

The time of the thread that writes, per message, for 4K frames of 25 MB and for small numbers: the least of several
rounds. A file in memory (tmpfs) leaves out the disk.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mcap.writer import CompressionType, Writer

from benchmarks.common import machine
from headrace.observe import RecordedMessage, RecordedPort, RecordedRun, Recording
from headrace.observe.recordings.payloads import pack
from headrace.observe.recordings.recording_writer import RecordingWriter

PORT = RecordedPort("camera", "out")


def write(path: str, data: Any, count: int) -> None:
    writer = RecordingWriter(path)
    writer.begin(RecordedRun("benchmark", [PORT], []))
    for number in range(count):
        writer.carry(RecordedMessage(PORT, number, number, number, None, None, data))
    writer.end(True)


def write_with_mcap(path: str, data: Any, count: int, compression: CompressionType) -> None:
    with open(path, "wb") as file:
        writer = Writer(file, compression=compression)
        writer.start()
        channel = writer.register_channel(
            "camera.out", "cdr", writer.register_schema("Message", "ros2msg", b"")
        )
        for number in range(count):
            parts = {"step": number, "acq_timestamp": None, "metadata": None, "data": data}
            writer.add_message(channel, number, b"".join(pack(parts, time=number)[1]), number, number)
        writer.finish()


def read(path: str) -> None:
    with Recording(path) as recording:
        for _ in recording:
            pass


def least(rounds: int, count: int, work: Callable[[], None]) -> float:
    """Return the time of a message in milliseconds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times) / count * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", default="/dev/shm/headrace-recording.mcap")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    path, rounds = options.path, options.rounds
    frame = np.random.default_rng(0).integers(0, 255, (2160, 3840, 3), dtype=np.uint8)
    print(machine())
    try:
        for name, data, count in (("4K frame", frame, 10), ("small number", 5, 10_000)):
            print(f"{name}: written in {least(rounds, count, lambda: write(path, data, count)):.4f} ms")  # noqa: B023
            print(f"{name}: read in {least(rounds, count, lambda: read(path)):.4f} ms")
            for kind in CompressionType:
                took = least(1 if rounds < 3 else 2, count, lambda: write_with_mcap(path, data, count, kind))  # noqa: B023
                print(f"{name}: by mcap's writer, compression {kind.name.lower()}, in {took:.4f} ms")
    finally:
        os.unlink(path)


if __name__ == "__main__":
    main()
