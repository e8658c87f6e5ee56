"""A captured program does what the program does, whatever its kernels, its streams and their order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import gpu
from headrace.gpu import sim
from tests.limits import examples

BUFFERS, STREAMS = 4, 3


@dataclass(frozen=True)
class Step:
    """One piece of work: on which stream, from which buffer to which, and how long a kernel takes."""

    kind: str
    stream: int
    source: int
    target: int
    value: int
    blocks: int
    microseconds: int


steps = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from(["kernel", "kernel", "copy", "fill"]),
        stream=st.integers(0, STREAMS - 1),
        source=st.integers(0, BUFFERS - 1),
        target=st.integers(0, BUFFERS - 1),
        value=st.integers(0, 255),
        blocks=st.sampled_from([1, 40, 300]),
        microseconds=st.integers(0, 50),
    ),
    min_size=1,
    max_size=14,
)


def mix(target: np.ndarray, source: np.ndarray, value: int) -> None:
    """Change the target so that the order of any two changes matters."""
    target[:] = target * 3 + source * 5 + value


def expected(program: list[Step], times: int) -> list[int]:
    """Return what the buffers hold after the program has run that many times, step after step."""
    memory = [np.full(8, number, np.uint8) for number in range(BUFFERS)]
    for step in program * times:
        if step.kind == "kernel":
            mix(memory[step.target], memory[step.source].copy(), step.value)
        elif step.kind == "copy":
            memory[step.target][:] = memory[step.source]
        else:
            memory[step.target][:] = step.value
    return [int(block[0]) for block in memory]


def submit(program: list[Step], streams: list[sim.Stream], buffers: list[sim.Buffer]) -> None:
    """Submit the program; a step waits for those before it that touch the same memory, and for nothing else."""
    start = streams[0].record()
    for stream in streams[1:]:
        stream.wait(start)
    touched: list[tuple[Step, sim.Event]] = []
    for step in program:
        stream = streams[step.stream]
        reads = set() if step.kind == "fill" else {step.source}
        for other, event in touched:
            other_reads = set() if other.kind == "fill" else {other.source}
            if other.target in reads | {step.target} or step.target in other_reads:
                stream.wait(event)
        source, target = buffers[step.source], buffers[step.target]
        if step.kind == "kernel":
            kernel = sim.Kernel("mix", step.microseconds * 1e-6, partial(_effect, step.value))
            sim.launch(stream, sim.LaunchConfig(grid=step.blocks, block=512), kernel, target, source)
        elif step.kind == "copy":
            source.copy_to(target, stream=stream)
        else:
            target.fill(step.value, stream=stream)
        touched.append((step, stream.record()))
    for stream in streams[1:]:
        streams[0].wait(stream)


def _effect(value: int, target: np.ndarray, source: np.ndarray) -> None:
    mix(target, source.copy(), value)


def contents(buffers: list[sim.Buffer]) -> list[int]:
    return [int(sim.host_view(buffer)[0]) for buffer in buffers]


@given(program=steps, times=st.integers(1, 3), elsewhere=st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_replays_leave_the_memory_that_ordinary_runs_leave(
    program: list[Step], times: int, elsewhere: bool
) -> None:
    with sim.Machine("h200"):
        device = sim.Device(0)
        device.set_current()
        main = device.create_stream()

        def fresh() -> list[sim.Buffer]:
            buffers = [device.allocate(8, stream=main) for _ in range(BUFFERS)]
            for number, buffer in enumerate(buffers):
                buffer.fill(number, stream=main)
            main.sync()
            return buffers

        with gpu.partition(device, [16, 40]) as parts:
            streams = [part.create_stream() for part in parts]
            eager, captured = fresh(), fresh()
            for _ in range(times):
                submit(program, streams, eager)
            streams[0].sync()

            builder = streams[0].create_graph_builder().begin_building()
            submit(program, streams, captured)
            graph = builder.end_building().complete()
            assert len(builder.graph_definition.nodes()) == len(program)
            assert contents(captured) == list(range(BUFFERS))
            where = main if elsewhere else streams[-1]
            for _ in range(times):
                graph.launch(where)
            where.sync()
            assert contents(captured) == contents(eager) == expected(program, times)


@given(program=steps)
@settings(max_examples=examples(80), deadline=None)
def test_a_replay_ends_when_its_critical_path_does(program: list[Step]) -> None:
    """Compare with the longest path through the recorded nodes, where nothing contends for SMs."""
    alone = [Step("kernel", s.stream, s.source, s.target, s.value, 1, s.microseconds) for s in program]
    with sim.Machine("h200") as machine:
        device = sim.Device(0)
        device.set_current()
        streams = [device.create_stream() for _ in range(STREAMS)]
        buffers = [device.allocate(8, stream=streams[0]) for _ in range(BUFFERS)]
        builder = streams[0].create_graph_builder().begin_building()
        submit(alone, streams, buffers)
        graph = builder.end_building().complete()
        profile = sim.PROFILES["h200"]
        ends: dict[Any, float] = {}

        def end(node: Any) -> float:
            if node not in ends:
                begins = [end(before) + profile.graph_node_overhead for before in node.pred]
                period = max(node._record.operation.period, 1) * 1e-9
                ends[node] = max(begins, default=profile.graph_launch_overhead) + period
            return ends[node]

        graph.launch(streams[0])
        streams[0].sync()
        assert abs(machine.now - max(map(end, builder.graph_definition.nodes()))) < 1e-9
