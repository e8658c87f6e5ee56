"""What is simulated: profiles, drivers, devices; and what the environment says."""

from __future__ import annotations

import gc
import subprocess
import weakref
from dataclasses import replace
from typing import Any

import pytest

from headrace.gpu import sim
from tests.gpu.sim.in_time import InTime
from tests.harness.processes import run_forked, run_python


def test_profiles_are_found_by_name() -> None:
    assert sim.PROFILES["h200"].sm_count == 132
    assert sim.PROFILES["orin"].sm_count == 16
    with pytest.raises(ValueError, match="'h999'; the profiles are h200, orin, l4"):
        sim.Machine("h999")


def test_a_profile_of_ones_own() -> None:
    mine = replace(sim.PROFILES["orin"], name="mine", clusters=(4, 4), launch_overhead=0.0)
    with sim.Machine(mine):
        assert sim.Device(0).resources.sm.sm_count == 8
    for wrong in (
        {"clusters": ()},
        {"clusters": (0,)},
        {"min_partition_size": 0},
        {"launch_overhead": -1.0},
        {"graph_launch_overhead": -1e-9},
        {"graph_node_overhead": -1e-9},
        {"copy_bandwidth": 0.0},
        {"memory_bandwidth": -1.0},
        {"memory_bandwidth": float("nan")},
        {"threads_per_block": 0},
        {"threads_per_sm": 512},  # less than a block may have
    ):
        with pytest.raises(ValueError, match="Profile 'orin'"):
            replace(sim.PROFILES["orin"], **wrong)


def test_a_machine_may_have_several_devices() -> None:
    with sim.Machine("l4", devices=2):
        first, second = sim.Device.get_all_devices()
        assert (first.device_id, second.device_id) == (0, 1)
        first.set_current()
        assert sim.Device() is first
        stream = first.create_stream()
        second.set_current()
        assert sim.Device() is second
        other = second.create_stream()
        with pytest.raises(sim.CUDAError, match="device 0 is not yet initialized"):
            first.create_stream()
        with pytest.raises(RuntimeError, match="belongs to device 0, not to device 1"):
            second.set_current(stream.context)
        (group,), _ = first.resources.sm.split(sim.SMResourceOptions(count=4))
        with pytest.raises(sim.CUDAError, match="resource of device 0 .* context on device 1"):
            second.create_context(sim.ContextOptions(resources=[group]))
        # Work on the two overlaps, and an event orders them.
        sim.launch(stream, sim.LaunchConfig(grid=1, block=32), sim.Kernel("a", 1.0))
        first.set_current()
        before = stream.record()
        second.set_current()
        other.wait(before)
        event = other.record()
        assert not event.is_done
        event.sync()
        assert sim.current_machine().now >= 1.0


@pytest.mark.parametrize(
    ("options", "text"),
    [({"devices": 0}, "devices must be at least 1"), ({"time": "fast"}, "'virtual', 'paced'")],
)
def test_a_machine_that_makes_no_sense_is_refused(options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        sim.Machine("h200", **options)


def test_a_driver_before_12_4_has_no_green_contexts() -> None:
    with sim.Machine("h200", driver=(12, 3)), pytest.raises(RuntimeError, match="12.4.*12.3"):
        _ = sim.Device(0).resources.sm


SHOW = "from headrace.gpu import sim; m = sim.current_machine(); print(m)"


def environment(**variables: str) -> subprocess.CompletedProcess[str]:
    return run_forked("-c", SHOW, **variables)


def test_the_environment_describes_the_first_machine() -> None:
    assert environment().stdout.strip() == "<Machine 1 × h200, driver 13.0, paced time>"
    told = environment(
        HEADRACE_SIM_PROFILE="orin",
        HEADRACE_SIM_DRIVER="13.1",
        HEADRACE_SIM_DEVICES="2",
        HEADRACE_SIM_TIME="virtual",
    )
    assert told.stdout.strip() == "<Machine 2 × orin, driver 13.1, virtual time>"


PIPELINE = """
import sys
from headrace import Application, CountCondition, Operator
from headrace.resources import CudaStreamPool
class Nothing(Operator):
    def compute(self, op_input, op_output, context): {compute}
class App(Application):
    def compose(self):
        self.add_operator(Nothing(self, CountCondition(self, 3), {given}name="nothing"))
app = App()
app.run()
print(type(app.scheduler().clock).__name__, "headrace.gpu.sim" in sys.modules)
"""


def test_a_pipeline_that_is_given_streams_runs_on_the_clock_of_the_machine_it_will_use() -> None:
    code = PIPELINE.format(compute="pass", given='CudaStreamPool(self, 0, name="streams"), ')
    told = run_forked("-c", code, HEADRACE_DEVICE="sim")
    assert told.stdout.split() == ["MachineClock", "True"], told.stderr


def test_a_pipeline_that_needs_no_device_makes_none() -> None:
    told = run_python("-c", PIPELINE.format(compute="pass", given=""), HEADRACE_DEVICE="sim")
    assert told.stdout.split() == ["RealtimeClock", "False"], told.stderr


def test_a_pipeline_whose_operator_finds_a_device_only_as_it_runs_does_not_hang() -> None:
    compute = "context.allocate_cuda_stream('own').stream.sync()"
    told = run_forked("-c", PIPELINE.format(compute=compute, given=""), HEADRACE_DEVICE="sim")
    assert told.stdout.split() == ["RealtimeClock", "True"], told.stderr


@pytest.mark.parametrize("name", ["PROFILE", "DRIVER", "DEVICES", "TIME"])
def test_an_environment_that_makes_no_sense_is_an_error(name: Any) -> None:
    result = environment(**{f"HEADRACE_SIM_{name}": "x"})
    assert result.returncode != 0
    assert "ValueError" in result.stderr
    assert "'x'" in result.stderr


def test_memory_runs_out_and_comes_back() -> None:
    with sim.Machine(replace(sim.PROFILES["orin"], memory=1000)):
        small = sim.Device(0)
        small.set_current()
        stream = small.create_stream()
        most = small.allocate(800, stream=stream)
        with pytest.raises(sim.CUDAError, match="OUT_OF_MEMORY: 300 bytes requested, 200 available"):
            small.allocate(300, stream=stream)
        most.close()
        assert small.allocate(1000, stream=stream).size == 1000


def test_dropping_a_buffer_waits_for_no_lock(machine: sim.Machine, in_time: InTime) -> None:
    def work() -> None:
        device = sim.Device(0)
        stream = device.create_stream()
        buffer = device.allocate(64, stream=stream)
        address = buffer.handle
        with machine.timeline.lock:
            del buffer  # as the garbage collector may, on any line
        assert device.allocate(64, stream=stream).handle == address

    in_time(work)


def test_what_is_kept_of_freed_memory_is_bounded_and_goes_with_its_stream(machine: sim.Machine) -> None:
    device = sim.Device(0)
    stream = device.create_stream()
    freed = []
    for number in range(4):
        buffer = device.allocate((30 << 20) + number, stream=stream)
        freed.append(weakref.ref(sim.host_view(buffer)))
        buffer.close()
    assert [memory() is not None for memory in freed] == [False, False, True, True]
    last = sim.host_view(device.allocate((30 << 20) + 3, stream=stream))
    assert last is freed[3]()
    del last
    device.sync()
    stream.close()
    del stream, buffer
    gc.collect()
    assert [memory() is not None for memory in freed] == [False] * 4


def test_the_newest_freed_memory_is_kept_however_big(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    address = sim.Device(0).allocate(100 << 20, stream=stream).handle
    assert sim.Device(0).allocate(100 << 20, stream=stream).handle == address


def test_a_debuggers_view_of_a_buffer(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    buffer = sim.Device(0).allocate(4, stream=stream)
    buffer.fill(3, stream=stream)
    assert sim.host_view(buffer).tolist() == [0, 0, 0, 0]  # the fill has not happened yet
    stream.sync()
    assert sim.host_view(buffer).tolist() == [3, 3, 3, 3]
    buffer.close()
    with pytest.raises(RuntimeError, match="closed"):
        sim.host_view(buffer)
    assert (buffer.handle, buffer.size) == (0, 0)


def test_only_an_effect_may_ask_about_its_launch(machine: sim.Machine) -> None:
    seen = []
    stream = sim.Device(0).create_stream()
    config = sim.LaunchConfig(grid=4, block=1024)
    sim.launch(stream, config, sim.Kernel("k", 1e-3, effect=lambda: seen.append(sim.launched())))
    stream.sync()
    assert seen[0].config == config
    assert len(seen[0].sms) == 4
    assert seen[0].end - seen[0].start == pytest.approx(1e-3)
    with pytest.raises(RuntimeError, match="outside the effect of a simulated kernel"):
        sim.launched()


def test_a_launch_that_makes_no_sense_is_refused(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    config = sim.LaunchConfig(grid=1, block=32)
    with pytest.raises(TypeError, match=r"headrace\.gpu\.kernel"):
        sim.launch(stream, config, object())
    with pytest.raises(TypeError, match="LaunchConfig"):
        sim.launch(stream, 5, sim.Kernel("k", 1.0))
    with pytest.raises(ValueError, match="'k': a block cannot run for -1.0 s"):
        sim.launch(stream, config, sim.Kernel("k", -1.0))
    with pytest.raises(ValueError, match="needs grid"):
        sim.LaunchConfig(block=32)
    with pytest.raises(ValueError, match="no stream.*0x5"):
        sim.Stream.from_handle(5)
