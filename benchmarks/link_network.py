"""Measure a link over TCP and TLS on the loopback interface, beside the bare socket.

    python -m benchmarks.link_network [--save]

The bare socket has blocking calls on both sides, receives straight into a new array, and returns eight bytes for
each frame. Bare and link are measured in the same run, in turns, as in `benchmarks.link`.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import struct
import time
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.common import machine
from benchmarks.link import SIZES, SLOTS, cpu, now, paced, peer
from headrace.link.carrier import Carrier
from headrace.link.protocol import Sample, Terms
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.link.tls import ServerIdentity, TlsCarrier, client_context

_NOTE = struct.Struct("<Q")
_TERMS = Terms("bench", SLOTS)


def tcp_sockets() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far = listening.accept()[0]
    for each in near, far:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


def secured(connected: socket.socket, by: str, is_server: bool) -> socket.socket:
    if by != "TLS":
        return connected
    context: ssl.SSLContext = ServerIdentity.make().context if is_server else client_context()
    return context.wrap_socket(connected, server_side=is_server)


def carrier_of(connected: socket.socket) -> Carrier:
    if isinstance(connected, ssl.SSLSocket):
        return TlsCarrier(connected)
    return Carrier(connected)


# The receiving process.


def fill(connected: socket.socket, target: memoryview) -> None:
    while target:
        target = target[connected.recv_into(target) :]


def receive_bare(connected: socket.socket, size: int, count: int, results: Any, by: str) -> None:
    connected = secured(connected, by, True)
    note = memoryview(bytearray(_NOTE.size))
    taken = []
    results.send(None)
    begin = cpu()
    for _ in range(count):
        fill(connected, note)
        frame = np.empty(size, np.uint8)
        fill(connected, frame.data)
        taken.append(now() - _NOTE.unpack(note)[0])
        connected.sendall(note)
    results.send((taken, cpu() - begin))
    results.recv()


def receive_link(connected: socket.socket, size: int, count: int, results: Any, by: str) -> None:
    connected = secured(connected, by, True)
    arrived: SimpleQueue[None] = SimpleQueue()
    receiver = Receiver(carrier_of(connected), _TERMS, partial(arrived.put, None))
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
        receiver.give_credits(1)
        del sample
    results.send((taken, cpu() - begin))
    results.recv()
    receiver.close()


# The sending process.


def run_bare(by: str, size: int, rate: float, count: int) -> tuple[Any, float, float]:
    with peer(partial(receive_bare, by=by), size, count, tcp_sockets) as (plain, results):
        connected = secured(plain, by, False)
        frame = np.ones(size, np.uint8)
        note = memoryview(bytearray(_NOTE.size))
        results.recv()
        begin, begin_cpu = time.perf_counter(), cpu()
        under_way = 0
        for _ in paced(count, rate):
            while under_way == SLOTS:
                fill(connected, note)
                under_way -= 1
            connected.sendall(_NOTE.pack(now()))
            connected.sendall(frame)
            under_way += 1
        taken, peer_cpu = results.recv()
        seconds = time.perf_counter() - begin
        results.send(None)
        return np.array(taken) / 1000, count / seconds, (cpu() - begin_cpu + peer_cpu) / count * 1e6


def run_link(by: str, size: int, rate: float, count: int) -> tuple[Any, float, float]:
    with peer(partial(receive_link, by=by), size, count, tcp_sockets) as (plain, results):
        carrier = carrier_of(secured(plain, by, False))
        room: SimpleQueue[None] = SimpleQueue()
        sender = Sender(carrier, _TERMS, partial(room.put, None))
        frame = np.ones(size, np.uint8)
        results.recv()
        begin, begin_cpu = time.perf_counter(), cpu()
        for _ in paced(count, rate):
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", choices=SIZES, action="append")
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.size or SIZES:
        size, rate, count = SIZES[name]
        for by, slower in ("TCP", 5), ("TLS", 2):
            # Slower than the socket, so that no frame waits for the one before.
            rate, count = rate / slower, max(count // 3, 30)
            measured: dict[str, list[Any]] = {"bare": [], "link": []}
            for _ in range(arguments.rounds):
                for kind, measure in ("bare", run_bare), ("link", run_link):
                    latencies, _, _ = measure(by, size, rate, count)
                    _, per_second, used = measure(by, size, 0.0, count)
                    p50, p99 = np.percentile(latencies[count // 10 :], (50, 99))
                    measured[kind].append((p50, p99, per_second, used))
            base = np.median(measured["bare"], axis=0)
            for kind, values in measured.items():
                p50, p99, per_second, used = np.median(values, axis=0)
                cells = [p50, p50 / base[0], p99, per_second, per_second / base[2], used]
                rows.append([name, f"{by}, {kind}", *[f"{cell:.4g}" for cell in cells]])
    columns = ["frame", "by", "p50 µs", "x bare", "p99 µs", "per s", "x bare", "CPU µs a frame, both ends"]
    report.publish(
        "link_network",
        "# A link over TCP and TLS on loopback, beside the bare socket\n\n"
        f"{report.circumstances(machine())}\n\n"
        "One way at a fixed rate, and frames per second with 4 under way. "
        f"Load of the machine: {os.getloadavg()[0]:.0f};\non a busy one only the CPU times repeat.\n\n"
        + report.table(columns, rows),
    )


if __name__ == "__main__":
    main()
