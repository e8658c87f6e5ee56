"""Measure frames on a device between two processes: right or wrong, how long, and what a killed process leaves.

    python -m benchmarks.device_link [frames] [section ...]

Needs a GPU; the sections `frames`, `times` and `kills` also run on a simulated device. Each measurement has two new
processes with a Unix socket between them. Frames are checked on the device, by a kernel that counts wrong elements.
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import machine, table
from headrace import gpu
from headrace.gpu.backend import active
from headrace.link import device as link_device
from headrace.link.carrier import Carrier
from headrace.link.protocol import Sample, Terms
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.resources.memory_block import StreamUse
from headrace.tensor.description import StreamWork
from headrace.tensor.tensor import Tensor
from headrace.tensor.types import DLDataType, DLDevice, DLDeviceType

MIB = 1 << 20
FILL = gpu.kernel(
    "fill",
    source=r"""
extern "C" __global__ void fill(int* out, int count, int value, long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) out[i] = value;
}""",
    seconds=lambda out, count, value, nanoseconds: nanoseconds * 1e-9,
    effect=lambda out, count, value, nanoseconds: out.view(np.int32).fill(value),
)
CHECK = gpu.kernel(
    "check",
    source=r"""
extern "C" __global__ void check(const int* in, int count, int value, int* wrong, long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        if (in[i] != value) { atomicAdd(wrong, 1); break; }
}""",
    seconds=lambda data, count, value, wrong, nanoseconds: nanoseconds * 1e-9,
    effect=lambda data, count, value, wrong, nanoseconds: _count_wrong(data, value, wrong),
)


def _count_wrong(data: np.ndarray, value: int, wrong: np.ndarray) -> None:
    wrong.view(np.int32)[0] += int((data.view(np.int32) != value).any())


class Bench:
    """A device of this process, a stream on it, and a counter of wrong frames."""

    def __init__(self, is_green: bool = False) -> None:
        self.device = gpu.Device(0)
        self.device.set_current()
        self.config = gpu.LaunchConfig(grid=32, block=256)
        self.parts = gpu.partition(self.device, {"own": 16}) if is_green else None
        if self.parts is None:
            self.stream = self.device.create_stream()
        else:
            self.stream = self.parts["own"].create_stream()
        self.handle = gpu.StreamHandle(self.stream)
        self.wrong = self.device.allocate(4, stream=self.stream)
        self.wrong.fill(0, stream=self.stream)

    def frame(self, size: int) -> Tensor:
        buffer = self.device.allocate(size, stream=self.stream)
        described = (
            int(buffer.handle),
            (size // 4,),
            (4,),
            DLDataType(0, 32),
            DLDevice(DLDeviceType.CUDA, 0),
            False,
        )
        return Tensor._at(described, buffer)._with_pending_work(StreamWork(self.handle))

    def fill(self, tensor: Tensor, value: int, nanoseconds: int) -> None:
        arguments = (tensor.owner, np.int32(tensor.size), np.int32(value), np.int64(nanoseconds))
        gpu.launch(self.stream, self.config, FILL.on(self.device), *arguments)

    def check(self, tensor: Tensor, value: int, nanoseconds: int) -> None:
        owner = tensor.owner
        if hasattr(owner, "add_user"):
            owner.add_user(StreamUse.of(self.handle, 0))
        data = getattr(owner, "buffer", owner)
        arguments = (data, np.int32(tensor.size), np.int32(value), self.wrong, np.int64(nanoseconds))
        gpu.launch(self.stream, self.config, CHECK.on(self.device), *arguments)

    def count(self) -> int:
        host = gpu.LegacyPinnedMemoryResource().allocate(4)
        self.wrong.copy_to(host, stream=self.stream)
        self.stream.sync()
        return int(np.from_dlpack(host).view(np.int32)[0])


# The two processes of a link.


def terms(size: int) -> Terms:
    return Terms("writer -> reader", 4, max_bytes=8 * size)


def write(
    connected: socket.socket, size: int, count: int, pause: float, is_green: bool, work: int = 100_000
) -> None:
    """Send frames that are filled with their number."""
    bench, event = Bench(is_green), threading.Event()
    sender = Sender(Carrier(connected), terms(size), event.set)
    frames = [bench.frame(size) for _ in range(4)]
    last: list[Any] = [None] * 4
    for number in range(count):
        frame = frames[number % 4]
        if last[number % 4] is not None:  # the copy into the slot has read it
            while sender.sent - len(sender._outbox) <= last[number % 4]:
                time.sleep(0)
        bench.fill(frame, number, work)
        begin = time.monotonic_ns()
        while True:
            event.clear()
            if sender.send(Sample(frame, begin)):
                break
            if not event.wait(20):
                sys.exit("the writer waits for ever")
        last[number % 4] = number
        if pause:
            time.sleep(pause)
    sender.end()
    sender.close()
    while not sender._is_released:
        time.sleep(0.001)


def read(
    connected: socket.socket, size: int, count: int, late: int, is_green: bool, is_mapped: bool = True
) -> dict[str, Any]:
    """Check frames a while after they came; return what was found."""
    bench, event = Bench(is_green), threading.Event()
    if not is_mapped:

        def refuse(*_: Any) -> Any:
            raise RuntimeError("the benchmark wants the way through the host")

        link_device.DeviceSegment.from_peer = refuse  # type: ignore[method-assign,assignment]
    receiver = Receiver(Carrier(connected), terms(size), event.set)
    taken, number, begin = [], 0, 0.0
    while True:
        event.clear()
        sample = receiver.take()
        if sample is None:
            if receiver.has_ended or receiver.failure is not None:
                break
            event.wait(20)
            continue
        begin = begin or time.monotonic()
        taken.append((time.monotonic_ns() - sample.acq_timestamp) / 1000)
        bench.check(sample.data, number, late)
        number += 1
        del sample
        receiver.give_credits(1)
    seconds = time.monotonic() - begin
    found = {"frames": number, "wrong": bench.count(), "us": seconds / max(number, 1) * 1e6}
    receiver.close()
    taken.sort()
    found |= {"p50": statistics.median(taken), "p99": taken[int(0.99 * len(taken))]} if taken else {}
    return found


# Processes that are killed.


def doomed_writer(connected: socket.socket, point: str) -> None:
    """Send frames, and be killed at a point."""
    bench, event = Bench(), threading.Event()
    size = 4 * MIB
    sender = Sender(Carrier(connected), terms(size), event.set)
    for number in range(100):
        frame = bench.frame(size)
        is_last = number == 5
        if is_last and point == "before the copy":
            os.kill(os.getpid(), signal.SIGKILL)
        # The frame at which the process ends takes long to make.
        bench.fill(frame, number, 300_000_000 if is_last and point == "while it copies" else 100_000)
        while not sender.send(Sample(frame)):
            event.wait(0.01)
            if sender.failure is not None:
                raise sender.failure
        if is_last and point == "while it copies":
            time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGKILL)
        if is_last and point in ("when the reader has it", "while the reader reads"):
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)


def survivor_reader(connected: socket.socket, point: str) -> dict[str, Any]:
    """Read frames of a writer that is killed; check them also after it is gone."""
    bench, event = Bench(), threading.Event()
    receiver = Receiver(Carrier(connected), terms(4 * MIB), event.set)
    kept: list[Any] = []
    while receiver.failure is None:
        event.clear()
        sample = receiver.take()
        if sample is None:
            event.wait(0.05)
            continue
        if point == "while the reader reads":
            bench.check(sample.data, len(kept), 400_000_000 if len(kept) == 5 else 0)
        kept.append(sample.data)
        receiver.give_credits(1)
    began = time.monotonic()
    for number, tensor in enumerate(kept):  # its memory is still there
        bench.check(tensor, number, 0)
    wrong = bench.count()
    return _after(bench, receiver.failure, began) | {"frames": len(kept), "wrong": wrong}


def doomed_reader(connected: socket.socket, point: str) -> None:
    """Read frames, and be killed at a point."""
    bench, event = Bench(), threading.Event()
    receiver = Receiver(Carrier(connected), terms(4 * MIB), event.set)
    if point == "before it maps":
        os.kill(os.getpid(), signal.SIGKILL)
    kept = []
    while True:
        event.clear()
        sample = receiver.take()
        if sample is None:
            event.wait(0.05)
            continue
        kept.append(sample.data)
        if len(kept) == 4:
            if point == "while it reads":
                bench.check(sample.data, 3, 400_000_000)
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGKILL)
        receiver.give_credits(1)


def survivor_writer(connected: socket.socket, point: str) -> dict[str, Any]:
    """Send frames to a reader that is killed."""
    bench, event = Bench(), threading.Event()
    sender = Sender(Carrier(connected), terms(4 * MIB), event.set)
    number = 0
    while sender.failure is None:
        frame = bench.frame(4 * MIB)
        bench.fill(frame, number, 100_000)
        event.clear()
        try:
            if sender.send(Sample(frame)):
                number += 1
            else:
                event.wait(0.02)
        except Exception:
            break
    began = time.monotonic()
    sender.close()
    return _after(bench, sender.failure, began) | {"frames": number, "wrong": bench.count()}


def _after(bench: Bench, failure: Any, began: float) -> dict[str, Any]:
    """Return whether the device of a survivor still works."""
    frame = bench.frame(MIB)
    bench.fill(frame, 7, 0)
    bench.check(frame, 7, 0)
    bench.stream.sync()
    return {"told": type(failure).__name__, "device works": True, "ms": 1000 * (time.monotonic() - began)}


# Events of the driver between processes, which the link does not use.


def _driver(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status):
        raise RuntimeError(str(status))
    return values[0] if len(values) == 1 else tuple(values)


def events_here(connected: socket.socket, count: int) -> dict[str, float]:
    """Measure what an IPC event costs the process that records it, and send descriptors to the other."""
    from cuda.bindings import driver

    bench = Bench()
    options = gpu.EventOptions(ipc_enabled=True)
    made = []
    begin = time.perf_counter()
    for _ in range(count):
        event = bench.stream.record(options=options)
        made.append((event, pickle.dumps(event.ipc_descriptor)))
    new = (time.perf_counter() - begin) / count
    flags = int(driver.CUevent_flags.CU_EVENT_INTERPROCESS) | int(
        driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
    )
    event = _driver(driver.cuEventCreate(flags))
    handle = _driver(driver.cuIpcGetEventHandle(event))
    begin = time.perf_counter()
    for _ in range(count):
        driver.cuEventRecord(event, driver.CUstream(int(bench.stream.handle)))
    again = (time.perf_counter() - begin) / count
    connected.send(pickle.dumps(([text for _, text in made[:200]], bytes(handle.reserved))))
    there = pickle.loads(connected.recv(1 << 20))
    return {"record new": new * 1e6, "record again": again * 1e6} | there


def events_there(connected: socket.socket, count: int) -> None:
    """Measure what an IPC event costs the process that imports it."""
    from cuda.bindings import driver

    bench = Bench()
    texts, reserved = pickle.loads(connected.recv(1 << 20))
    begin = time.perf_counter()
    for text in texts:
        event = gpu.Event.from_ipc_descriptor(pickle.loads(text))
        bench.stream.wait(event)
        event.close()
    new = (time.perf_counter() - begin) / len(texts)
    handle = driver.CUipcEventHandle()
    handle.reserved = reserved
    event = _driver(driver.cuIpcOpenEventHandle(handle))
    begin = time.perf_counter()
    for _ in range(count):
        driver.cuStreamWaitEvent(driver.CUstream(int(bench.stream.handle)), event, 0)
    again = (time.perf_counter() - begin) / count
    bench.stream.sync()
    connected.send(pickle.dumps({"import, wait, close new": new * 1e6, "wait again": again * 1e6}))


# One device for two processes, with and without MPS.


def small_kernels(connected: socket.socket, count: int) -> dict[str, float]:
    """Measure the time of a small kernel while another process runs long ones."""
    bench = Bench()
    frame = bench.frame(MIB)
    bench.fill(frame, 0, 0)
    bench.stream.sync()
    connected.send(b"go")
    connected.recv(2)
    took = []
    for _ in range(count):
        begin = time.perf_counter()
        bench.fill(frame, 0, 0)
        bench.stream.sync()
        took.append((time.perf_counter() - begin) * 1e6)
        time.sleep(0.0005)
    connected.send(b"ok")
    took.sort()
    return {"p50": statistics.median(took), "p99": took[int(0.99 * len(took))]}


def long_kernels(connected: socket.socket, count: int) -> None:
    """Run kernels of 2 ms one after the other until told to end."""
    bench = Bench()
    frame = bench.frame(MIB)
    bench.fill(frame, 0, 0)
    bench.stream.sync()
    connected.recv(2)
    connected.send(b"go")
    while not select.select([connected], [], [], 0)[0]:
        bench.fill(frame, 0, 2_000_000)
        bench.stream.sync()


ROLES: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(write, read, doomed_writer, survivor_reader, doomed_reader, survivor_writer),
        *(events_here, events_there, small_kernels, long_kernels),
    )
}


def pair(
    answers: tuple[Any, ...],
    silent: tuple[Any, ...],
    timeout: float = 60.0,
    environment: dict[str, str] | None = None,
) -> Any:
    """Run two roles in two processes; return the result of the first."""
    ends = socket.socketpair(socket.AF_UNIX)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    results, writing = os.pipe()
    started = []
    for (role, *arguments), end in zip((answers, silent), ends, strict=True):
        command = [
            sys.executable,
            "-m",
            "benchmarks.device_link",
            "--role",
            role,
            str(end.fileno()),
            str(writing),
        ]
        started.append(
            subprocess.Popen(
                [*command, pickle.dumps(arguments).hex()],
                pass_fds=[end.fileno(), writing],
                env=os.environ | (environment or {}),
            )
        )
        end.close()
    os.close(writing)
    try:
        if not select.select([results], [], [], timeout)[0]:
            return {"hangs": f"for {timeout:g} s"}
        text = os.read(results, 1 << 20)
        return pickle.loads(text) if text else {"ended": "without a result"}
    finally:
        os.close(results)
        for process in started:
            try:
                if process.wait(5) == -signal.SIGABRT:
                    print("a process was aborted:", process.args)
            except subprocess.TimeoutExpired:
                process.kill()


# The sections.


def frames(count: int) -> None:
    rows = []
    for size, number, green in [
        (4, count, (False, False)),
        (24, count // 10, (False, False)),
        (4, count // 5, (True, False)),
        (4, count // 5, (False, True)),
        (4, count // 5, (True, True)),
    ]:
        found = pair(
            ("read", size * MIB, number, 1_000_000, green[1]), ("write", size * MIB, number, 0.0, green[0])
        )
        ends = {
            (False, False): "none",
            (True, False): "writer",
            (False, True): "reader",
            (True, True): "both",
        }[green]
        rows.append([f"{size} MiB", ends, *[found.get(key, found) for key in ("frames", "wrong", "us")]])
    table(
        "Frames that are checked 1 ms after they came",
        ["size", "green contexts of 16 SMs", "frames", "wrong", "µs a frame"],
        rows,
    )


def times(count: int) -> None:
    rows = []
    for size in (4, 24):
        for is_mapped in (True, False):
            for pause in (0.005, 0.0):
                number = min(400, count)
                found = pair(
                    ("read", size * MIB, number, 0, False, is_mapped),
                    ("write", size * MIB, number, pause, False, 0),
                )
                rows.append(
                    [
                        f"{size} MiB",
                        "by IPC" if is_mapped else "through pinned memory",
                        "200 Hz" if pause else "as fast as possible",
                        *[found.get(key, found) for key in ("p50", "p99", "us", "wrong")],
                    ]
                )
    table(
        "From the sender's call, before the copy, to the receiver's take",
        ["size", "way", "rate", "p50 µs", "p99 µs", "µs a frame", "wrong"],
        rows,
    )


def kills(count: int) -> None:
    rows = []
    for point in ("before the copy", "while it copies", "when the reader has it", "while the reader reads"):
        found = pair(("survivor_reader", point), ("doomed_writer", point), 20)
        rows.append(["writer", point, *_kill_row(found)])
    for point in ("before it maps", "when it has a frame", "while it reads"):
        found = pair(("survivor_writer", point), ("doomed_reader", point), 20)
        rows.append(["reader", point, *_kill_row(found)])
    table(
        "kill -9",
        ["killed", "when", "the survivor is told", "frames", "wrong", "its device works", "ms until then"],
        rows,
    )


def _kill_row(found: dict[str, Any]) -> list[Any]:
    return [found.get(key, found) for key in ("told", "frames", "wrong", "device works", "ms")]


def events(count: int) -> None:
    found = pair(("events_here", 1000), ("events_there", 1000))
    table(
        "IPC events of the driver (the link uses none)",
        ["what", "µs"],
        [list(item) for item in found.items()],
    )


def mps(count: int) -> None:
    rows = [["no", *pair(("small_kernels", 300), ("long_kernels", 0)).values()]]
    folder = f"/tmp/device_link_mps_{os.getpid()}"
    os.makedirs(folder, exist_ok=True)
    environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    try:
        subprocess.run(
            ["nvidia-cuda-mps-control", "-d"], env=os.environ | environment, check=True, timeout=20
        )
        rows.append(
            ["yes", *pair(("small_kernels", 300), ("long_kernels", 0), environment=environment).values()]
        )
    except Exception as error:
        rows.append(["yes", f"does not start: {error}", ""])
    finally:
        try:
            subprocess.run(
                ["nvidia-cuda-mps-control"],
                input=b"quit\n",
                env=os.environ | environment,
                check=False,
                timeout=20,
            )
        except Exception as error:
            print("MPS:", error)
    table("A small kernel beside kernels of 2 ms of another process", ["MPS", "p50 µs", "p99 µs"], rows)


def copies(count: int) -> None:
    """Copy from the pools of CuPy and PyTorch into a pool with IPC; ask for the legacy handles of their blocks."""
    import cupy
    import torch
    from cuda.bindings import driver

    bench = Bench()
    rows = []
    for size in (4 * MIB, 24 * MIB):
        begin = time.perf_counter()
        segment = link_device.DeviceSegment.create(size, 0)
        made = (time.perf_counter() - begin) * 1000
        arrays = {
            "CuPy": cupy.zeros(size, cupy.uint8),
            "PyTorch": torch.zeros(size, dtype=torch.uint8, device="cuda"),
        }
        for name, array in arrays.items():
            address = array.data.ptr if name == "CuPy" else array.data_ptr()
            status, _ = driver.cuIpcGetMemHandle(address)
            timed = bench.device.create_event(gpu.EventOptions(timing_enabled=True))
            end = bench.device.create_event(gpu.EventOptions(timing_enabled=True))
            for _ in range(3):
                active().copy(bench.handle, segment.address, address, size)
            bench.stream.record(timed)
            for _ in range(20):
                active().copy(bench.handle, segment.address, address, size)
            bench.stream.record(end)
            end.sync()
            rows.append([name, f"{size // MIB} MiB", (end - timed) / 20 * 1000, str(status), made])
    table(
        "Copies into a pool with IPC",
        [
            "from the memory of",
            "size",
            "µs",
            "legacy handle of its block",
            "ms to make the pool and its buffer",
        ],
        rows,
    )


def pinned(count: int) -> None:
    """Copy from pinned memory with IPC, and from a memfd that was registered, to the device."""
    from cuda import core

    bench, size = Bench(), 24 * MIB
    target = bench.frame(size)
    memory = np.frombuffer(_memfd(size), np.uint8)
    begin = time.perf_counter()
    is_registered = active().pin(memory)
    rows = []
    took = (time.perf_counter() - begin) * 1000
    sources: dict[str, Any] = {"a memfd, registered" if is_registered else "a memfd": int(memory.ctypes.data)}
    begin = time.perf_counter()
    try:
        resource = core.PinnedMemoryResource(core.PinnedMemoryResourceOptions(ipc_enabled=True))
        buffer = resource.allocate(size, stream=bench.stream)
        bench.stream.sync()
        sources["PinnedMemoryResource with IPC"] = int(buffer.handle)
    except Exception as error:
        rows.append(["PinnedMemoryResource with IPC", str(error)[:100], ""])
    took = {0: took, 1: (time.perf_counter() - begin) * 1000}
    for place, (name, address) in enumerate(sources.items()):
        first, last = (bench.device.create_event(gpu.EventOptions(timing_enabled=True)) for _ in range(2))
        active().copy(bench.handle, target.data, address, size)
        bench.stream.record(first)
        for _ in range(10):
            active().copy(bench.handle, target.data, address, size)
        bench.stream.record(last)
        last.sync()
        rows.append([name, 10 * size / (last - first) / 1e6, took[place]])
    active().unpin(memory)
    table("From the host to the device, 24 MiB", ["from", "GB/s", "ms to make it"], rows)


def _memfd(size: int) -> mmap.mmap:
    file = os.memfd_create("pinned")
    os.ftruncate(file, size)
    return mmap.mmap(file, size)


def handles(count: int) -> None:
    """Export memory of the driver's virtual memory management, and ask for fabric handles."""
    from cuda.bindings import driver

    Bench()
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    properties.requestedHandleTypes = kind
    memory = _driver(driver.cuMemCreate(32 * MIB, properties, 0))
    begin = time.perf_counter()
    descriptor = _driver(driver.cuMemExportToShareableHandle(memory, kind, 0))
    exported = (time.perf_counter() - begin) * 1e6
    begin = time.perf_counter()
    again = _driver(driver.cuMemImportFromShareableHandle(int(descriptor), kind))
    imported = (time.perf_counter() - begin) * 1e6
    driver.cuMemRelease(again)
    driver.cuMemRelease(memory)
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
    fabric = _driver(driver.cuDeviceGetAttribute(attribute, 0))
    rows = [
        ["export, µs", exported],
        ["import, µs", imported],
        ["fabric handles are supported", bool(fabric)],
    ]
    table("Virtual memory management, 32 MiB by a file descriptor", ["what", ""], rows)


SECTIONS = {
    function.__name__: function for function in (frames, times, kills, events, copies, pinned, handles, mps)
}


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "--role":
        _, _, role, end, writing, arguments = sys.argv
        found = ROLES[role](socket.socket(fileno=int(end)), *pickle.loads(bytes.fromhex(arguments)))
        if found is not None:
            os.write(int(writing), pickle.dumps(found))
        return
    numbers = [int(text) for text in sys.argv[1:] if text.isdigit()]
    names = [text for text in sys.argv[1:] if text in SECTIONS] or list(SECTIONS)
    print(f"{machine()}, {gpu.Device(0).name}, {active().description}")
    for name in names:
        try:
            SECTIONS[name](numbers[0] if numbers else 10_000)
        except Exception as error:
            print(f"\n{name}: {type(error).__name__}: {error}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
