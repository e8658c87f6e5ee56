"""Trace with CUPTI which driver calls a pipeline of CuPy and PyTorch stages makes.

    python -m benchmarks.gpu_trace [--save]        needs a GPU, CuPy, PyTorch and cupti-python

Five stages, CuPy and PyTorch in turn, pass one array on as a tensor. While frames flow, the trace counts calls
that make the host wait (for a stream, an event, the context), and operations on the default stream (it waits, or
an event is recorded on it for a wait). Two other pipelines show that the trace works: one passes the libraries'
own arrays, which are ordered through the libraries' current streams; the other takes tensors without having asked
for a stream.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from typing import Any

import cupy
import torch
from cupti import cupti

from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, Operator
from headrace.resources import CudaStreamPool
from headrace.tensor.tensor_map import map_of_arrays

WARM, FRAMES = 50, 500
STOPS = "calls that make the host wait"
QUERIES = "calls that ask whether work is done"
ON_DEFAULT = "waits and events on the default stream"
BETWEEN = "waits between other streams"


class Trace:
    """The records of CUPTI: calls by name, with their time, and the waits of streams, with the stream."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str]] = []
        self.waits: list[tuple[int, int]] = []
        self.events: list[int] = []
        cupti.activity_register_callbacks(lambda: (8 << 20, 0), self._take)
        for kind in ("DRIVER", "RUNTIME", "SYNCHRONIZATION", "CUDA_EVENT"):
            cupti.activity_enable(cupti.ActivityKind[kind])

    def _take(self, records: Any) -> None:
        wait = cupti.ActivitySynchronizationType.STREAM_WAIT_EVENT
        for record in records:
            match cupti.ActivityKind(record.kind).name:
                case "DRIVER":
                    self.calls.append((record.start, cupti.driver_api_trace_cbid(record.cbid).name))
                case "RUNTIME":
                    self.calls.append((record.start, cupti.runtime_api_trace_cbid(record.cbid).name))
                case "SYNCHRONIZATION" if record.type == wait:
                    self.waits.append((record.start, record.stream_id))
                case "CUDA_EVENT":
                    self.events.append(record.stream_id)

    def between(self, start: int, end: int, default: int) -> Counter[str]:
        """Count the records; those of events have no time, so they are counted over the whole run."""
        found: Counter[str] = Counter({ON_DEFAULT: self.events.count(default)})
        for when, name in self.calls:
            if start <= when <= end:
                found[STOPS] += "Synchronize" in name
                found[QUERIES] += "Query" in name
        for when, stream in self.waits:
            if start <= when <= end:
                found[ON_DEFAULT if stream == default else BETWEEN] += 1
        return found

    def clear(self) -> None:
        cupti.activity_flush_all(1)
        self.calls.clear()
        self.waits.clear()
        self.events.clear()


class Stage(Operator):
    """Adds one with CuPy or with PyTorch; the first stage makes the array, the last passes nothing on."""

    convert_dict = staticmethod(map_of_arrays)  # what is emitted in a dict is sent as tensors

    def __init__(self, *args: Any, place: int, last: int, way: str, **kwargs: Any) -> None:
        self.place, self.last, self.way = place, last, way
        super().__init__(*args, **kwargs)

    def setup(self, spec: Any) -> None:
        if self.place:
            spec.input("in")
        if self.place < self.last:
            spec.output("out")

    def start(self) -> None:
        self.count = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if self.place:
            received = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in") if self.way != "no stream asked for" else None
        else:
            stream = context.allocate_cuda_stream("own")
            op_output.set_cuda_stream(stream, "out")
            received = FIRST
            self.count += 1
            if self.count in (WARM, WARM + FRAMES):
                TIMES.append(cupti.get_timestamp())
        if self.place % 2:
            with torch.cuda.stream(None if stream is None else stream.torch()):
                result = torch.from_dlpack(taken(received)) + 1
        elif stream is None:
            result = cupy.asarray(taken(received)) + 1
        else:
            with stream.cupy():
                result = cupy.asarray(taken(received)) + 1
        if self.place < self.last:
            op_output.emit(result if self.way == "arrays" else {"frame": result}, "out")


def taken(received: Any) -> Any:
    return received["frame"] if isinstance(received, dict) else received


FIRST: Any = None
TIMES: list[int] = []


class Chain(Application):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def compose(self) -> None:
        pool = CudaStreamPool(self, stream_flags=1)
        stages = [
            Stage(self, pool, place=place, last=4, way=self.way, name=f"stage{place}") for place in range(5)
        ]
        stages[0].add_arg(CountCondition(self, WARM + FRAMES))
        for one, other in itertools.pairwise(stages):
            self.add_flow(one, other)


def default_stream_id(trace: Trace) -> int:
    """Return CUPTI's number of the default stream: the one where a wait on it is recorded."""
    trace.clear()
    event = cupy.cuda.Stream(non_blocking=True).record()
    cupy.cuda.Stream.null.wait_event(event)
    cupti.activity_flush_all(1)
    ((_, stream),) = trace.waits
    return stream


def traced() -> dict[str, Counter[str]]:
    """Run the pipeline in each way under CUPTI; return the counts."""
    global FIRST
    trace = Trace()
    FIRST = cupy.zeros(4096, cupy.float32)
    cupy.cuda.Device().synchronize()
    default = default_stream_id(trace)
    found = {}
    for way in ("tensors", "arrays", "no stream asked for"):
        Chain(way).run()  # warm-up: creates everything that is created once
        trace.clear()
        TIMES.clear()
        Chain(way).run()
        cupti.activity_flush_all(1)
        found[way] = trace.between(TIMES[0], TIMES[1], default)
    return found


def main() -> int:
    found = traced()
    names = [STOPS, ON_DEFAULT, BETWEEN, QUERIES]
    rows = [[name, *(found[way][name] for way in found)] for name in names]
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    text = [
        "# Driver calls of five CuPy and PyTorch stages",
        "",
        circumstances(device),
        "",
        f"CUPTI records over {FRAMES} frames, after {WARM} warm-up frames. `python -m benchmarks.gpu_trace`.",
        "",
        table(["", *found], rows),
    ]
    publish("gpu_trace", "\n".join(text))
    return bool(found["tensors"][STOPS] or found["tensors"][ON_DEFAULT])


if __name__ == "__main__":
    sys.exit(main())
