"""A program that uses headrace.gpu, for type checkers: `test_type_checking.py` checks it and does not run it."""

from __future__ import annotations

from typing import assert_type

from headrace import gpu
from headrace.gpu import sim


def scale_seconds(data: gpu.Buffer, count: int) -> float:
    return count * 1e-9


spin = gpu.kernel("spin", source="...", seconds=lambda ns: ns * 1e-9)
scale = gpu.kernel("scale", source="...", seconds=scale_seconds)
fixed = gpu.kernel("fixed", source="...", seconds=1e-3)

device = gpu.Device(0)
device.set_current()
stream = device.create_stream(options=gpu.StreamOptions(priority=-1))
assert_type(stream, gpu.Stream)
event = device.create_event(gpu.EventOptions(timing_enabled=True))
assert_type(event, gpu.Event)
assert_type(stream.record(event), gpu.Event)
assert_type(gpu.LEGACY_DEFAULT_STREAM, gpu.Stream)
assert_type(event - event, float)

buffer = device.allocate(1024, stream=stream)
assert_type(buffer, gpu.Buffer)
config = gpu.LaunchConfig(grid=1, block=32)
gpu.launch(stream, config, spin.on(device), 100_000)
gpu.launch(stream, config, scale.on(device), buffer, 256)
gpu.launch(gpu.StreamHandle(stream), config, fixed.on(device), buffer, 1, 2.0)


def launch_any(kernel: gpu.Kernel) -> None:
    """A kernel without known parameters accepts any arguments."""
    gpu.launch(stream, config, kernel, buffer, "anything")


launch_any(scale.on(device))

with gpu.partition(device, {"control": 16, "vision": 40}) as partitions:
    assert_type(partitions, gpu.Partitions)
    assert_type(partitions["control"].create_stream(), gpu.Stream)
    assert_type(partitions["control"].context, gpu.Context)
assert_type(gpu.partition(device, [16], dry_run=True), gpu.Plan)

gpu.when_done(stream, lambda error: None, event=event)
gpu.launch_host(stream, lambda: None)
with gpu.use_stream(stream) as handle:
    assert_type(handle, gpu.StreamHandle)

with sim.Machine("h200", driver=(13, 1), time="virtual") as machine:
    assert_type(machine.now, float)
    assert_type(sim.Device(0), gpu.Device)
