"""Measure a link between two processes beside the bare carrier: the least that can carry a frame in Python.

    python -m benchmarks.link

The bare carrier is a ring in a memfd whose slot numbers travel over a Unix socket, with blocking calls on both
sides. Both are measured in the same run, in turns, one way: from before the sender's call to when the receiving
thread has the array. The sender sends at a fixed rate, so queues are empty and caches are cold, as in a pipeline.
On the link, the receiving thread waits until the loop's thread tells it.
Throughput is measured with at most 4 frames under way. "In place" frames were made in memory of a `RingAllocator`,
and are sent at the rate and in the number of the small ones, which they are compared with.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from benchmarks.common import machine, table
from headrace.link.carrier import Carrier
from headrace.link.protocol import Sample, Terms
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.resources import RingAllocator

SLOTS = 4
SIZES = {"64 B": (64, 1000.0, 1000), "4 MiB": (4 << 20, 200.0, 300), "24 MiB": (24 << 20, 50.0, 100)}
_NOTE = struct.Struct("<Qq")
now = time.perf_counter_ns  # the same clock in all processes of a machine


# The receiving process.


def receive_bare(connected: socket.socket, size: int, count: int, results: Any) -> None:
    _, (descriptor,), _, _ = socket.recv_fds(connected, 1, 1)
    memory = mmap.mmap(descriptor, max(size, mmap.PAGESIZE) * SLOTS)
    taken = []
    results.send(None)
    begin = cpu()
    for _ in range(count):
        slot, sent = _NOTE.unpack(connected.recv(_NOTE.size))
        frame = np.frombuffer(memory, np.uint8, size, slot * max(size, mmap.PAGESIZE))
        taken.append(now() - sent)
        del frame
        connected.send(struct.pack("<Q", slot))
    results.send((taken, cpu() - begin))


def receive_link(connected: socket.socket, size: int, count: int, results: Any) -> None:
    arrived: SimpleQueue[None] = SimpleQueue()
    receiver = Receiver(Carrier(connected), Terms("bench", SLOTS), partial(arrived.put, None))
    taken: list[int] = []
    results.send(None)
    begin = cpu()
    while len(taken) < count:
        sample = receiver.take()
        if sample is None:
            arrived.get()
            continue
        assert sample.acq_timestamp is not None
        taken.append(now() - sample.acq_timestamp)
        del sample  # as the bare one: the memory goes back with the credit
        receiver.give_credits(1)
    results.send((taken, cpu() - begin))
    results.recv()  # before the sender has closed, this end must not
    receiver.close()


def receive_nothing(connected: socket.socket, size: int, count: int, results: Any) -> None:
    receiver = Receiver(Carrier(connected), Terms("bench", SLOTS), lambda: None)
    time.sleep(1.0)
    begin = cpu()
    time.sleep(10.0)
    results.send(([], cpu() - begin))
    results.recv()
    receiver.close()


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def unix_sockets() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX)


@contextmanager
def peer(
    target: Callable[..., None],
    size: int,
    count: int,
    sockets: Callable[[], tuple[socket.socket, socket.socket]] = unix_sockets,
) -> Iterator[tuple[socket.socket, Any]]:
    """Start the receiving process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = sockets()
    results, theirs_results = context.Pipe()
    process = context.Process(target=target, args=(theirs, size, count, theirs_results), daemon=True)
    process.start()
    theirs.close()
    theirs_results.close()
    try:
        yield ours, results
    finally:
        results.close()
        process.join(5)
        process.kill()


# The sending process.


def paced(count: int, rate: float) -> Iterator[None]:
    """Yield at a rate; 0 for as fast as the caller can."""
    next_time = time.perf_counter()
    for _ in range(count):
        if rate:
            next_time = max(next_time + 1 / rate, time.perf_counter())
            time.sleep(max(next_time - time.perf_counter(), 0))
        yield


def run_bare(size: int, rate: float, count: int, in_place: bool = False) -> tuple[np.ndarray, float, float]:
    with peer(receive_bare, size, count) as (connected, results):
        descriptor = os.memfd_create("bench")
        stride = max(size, mmap.PAGESIZE)
        os.ftruncate(descriptor, stride * SLOTS)
        memory = mmap.mmap(descriptor, stride * SLOTS)
        slots = [np.frombuffer(memory, np.uint8, size, number * stride) for number in range(SLOTS)]
        socket.send_fds(connected, [b"x"], [descriptor])
        frame = np.ones(size, np.uint8)
        free = list(range(SLOTS))
        results.recv()
        begin, begin_cpu = time.perf_counter(), cpu()
        for _ in paced(count, rate):
            while not free or rate:
                try:
                    (slot,) = struct.unpack("<Q", connected.recv(8, 0 if not free else socket.MSG_DONTWAIT))
                except BlockingIOError:
                    break
                free.append(slot)
            sent = now()
            slot = free.pop()
            if not in_place:
                slots[slot][:] = frame
            connected.send(_NOTE.pack(slot, sent))
        taken, peer_cpu = results.recv()
        seconds = time.perf_counter() - begin
        return np.array(taken) / 1000, count / seconds, (cpu() - begin_cpu + peer_cpu) / count * 1e6


def run_link(size: int, rate: float, count: int, in_place: bool = False) -> tuple[np.ndarray, float, float]:
    with peer(receive_link, size, count) as (connected, results):
        room: SimpleQueue[None] = SimpleQueue()
        sender = Sender(Carrier(connected), Terms("bench", SLOTS), partial(room.put, None))
        allocator = RingAllocator()
        frame: Any = np.ones(size, np.uint8)
        results.recv()
        begin, begin_cpu = time.perf_counter(), cpu()
        for _ in paced(count, rate):
            if in_place:
                frame = None
                frame = allocator.allocate_tensor(size, np.uint8)
            sent = now()
            while not sender.send(Sample(frame, sent)):
                room.get()
                if sender.failure:
                    raise sender.failure
        taken, peer_cpu = results.recv()
        seconds = time.perf_counter() - begin
        used = (cpu() - begin_cpu + peer_cpu) / count * 1e6
        sender.end()
        sender.close()
        results.send(None)
        return np.array(taken) / 1000, count / seconds, used


def run_idle() -> tuple[float, float]:
    """Return the CPU time, in per cent of one core, that each end of an idle link uses."""
    with peer(receive_nothing, 0, 0) as (connected, results):
        sender = Sender(Carrier(connected), Terms("bench", SLOTS), lambda: None)
        time.sleep(1.5)
        begin = cpu()
        _, theirs = results.recv()
        ours = cpu() - begin
        sender.close()
        results.send(None)
    return ours * 10, theirs * 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", choices=SIZES, action="append")
    parser.add_argument("--no-idle", action="store_true")
    arguments = parser.parse_args()
    print(machine())
    rows = []
    kinds = [("bare", run_bare, False), ("link", run_link, False), ("link, in place", run_link, True)]
    for name in arguments.size or SIZES:
        size, rate, count = SIZES[name]
        measured: dict[str, list[Any]] = {kind: [] for kind, _, _ in kinds}
        for _ in range(arguments.rounds):
            for kind, measure, in_place in kinds:
                if in_place and size < 1 << 20:
                    continue
                at, frames = SIZES["64 B"][1:] if in_place else (rate, count)
                latencies, _, _ = measure(size, at, frames, in_place)
                _, per_second, used = measure(size, 0.0, max(count, 500), in_place)
                p50, p99 = np.percentile(latencies[frames // 10 :], (50, 99))
                measured[kind].append((p50, p99, per_second, used))
        base = np.median(measured["bare"], axis=0)
        for kind, values in measured.items():
            if values:
                p50, p99, per_second, used = np.median(values, axis=0)
                spread = " ".join(f"{value[0]:.0f}" for value in values)
                rows.append(
                    [name, kind, p50, p50 / base[0], p99, spread, per_second, per_second / base[2], used]
                )
    table(
        "One way, and throughput with 4 frames under way",
        [
            "frame",
            "by",
            "p50 µs",
            "x bare",
            "p99 µs",
            "p50 by round",
            "per s",
            "x bare",
            "CPU µs a frame, both",
        ],
        rows,
    )
    if not arguments.no_idle:
        ours, theirs = run_idle()
        print(f"\nidle link: {ours:.2f} % of a core at the sender, {theirs:.2f} % at the receiver")


if __name__ == "__main__":
    main()
