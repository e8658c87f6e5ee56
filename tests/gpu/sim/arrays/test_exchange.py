"""Arrays of a simulated device, as tensors, in kernels of the program, and in pipelines."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from headrace import Application, CountCondition, Operator, as_tensor, gpu
from headrace.gpu import sim
from headrace.gpu.backend import find_backend
from headrace.gpu.sim import arrays as xp
from tests.harness import MS, App, MakeScheduler, launch, run
from tests.harness.devices import use_device
from tests.harness.libraries import fresh_registry


@pytest.fixture(autouse=True)
def in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program has asked for the arrays; the next test of this process is another program."""
    fresh_registry(monkeypatch)
    assert gpu.arrays() is xp


def test_an_array_is_a_tensor_on_the_same_memory(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    with gpu.use_stream(stream):
        array = xp.reshape(xp.arange(12), (3, 4))[:, ::2]
        tensor = as_tensor(array)
        assert tensor.stream == int(stream.handle)
    assert (tensor.shape, tensor.strides, str(tensor.device)) == ((3, 2), (32, 16), "cuda:0")
    again = xp.asarray(tensor)
    again[0, 0] = 100
    assert xp.from_dlpack(tensor)[0, 0].get() == 100
    assert array[0, 0].get() == 100


def test_a_tensor_that_another_stream_computes_is_ordered_first(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    with gpu.use_stream(stream):
        tensor = as_tensor(xp.full((4096, 4096), 5))
    assert xp.asarray(tensor)[0, 0].get() == 5


def test_expressions_of_arrays_and_tensors_are_arrays(machine: sim.Machine) -> None:
    array = xp.ones(3)
    tensor = as_tensor(array)
    for result in (array + tensor, tensor + array, tensor - array):
        assert type(result) is xp.ndarray
    assert (array + tensor).get().tolist() == [2, 2, 2]


def test_an_expression_of_a_tensor_is_queued_on_the_current_stream(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    with gpu.use_stream(stream):
        tensor = as_tensor(xp.ones((4096, 4096), dtype=xp.float32))
        result = 2 * tensor + 1
        assert type(result) is xp.ndarray
        assert not stream.record().is_done
        tensor[0] = 7
        assert (float(result[0, 0]), float(tensor[0, 0])) == (3, 7)


def test_memory_of_the_host_is_copied(machine: sim.Machine) -> None:
    values = np.arange(3)
    for array in (xp.asarray(values), xp.from_dlpack(values), xp.asarray(as_tensor(values))):
        assert array.get().tolist() == [0, 1, 2]
    assert np.from_dlpack(xp.asarray(values), device="cpu").tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="needs a copy"):
        xp.from_dlpack(values, copy=False)


@pytest.mark.parametrize("version", [None, (1, 0), (2, 0)])
def test_a_capsule_names_the_device_and_keeps_the_memory(
    machine: sim.Machine, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int] | None
) -> None:
    def description(copy: bool | None) -> Any:
        array = xp.reshape(xp.arange(6, dtype=xp.float32), (2, 3))[:, ::2]
        return array, as_tensor(array.__dlpack__(max_version=version, copy=copy))

    array, tensor = description(None)
    assert (tensor.data, tensor.shape, tensor.strides) == (array._address, (2, 2), (12, 8))
    assert (str(tensor.device), tensor.dl_dtype.name) == ("cuda:0", "float32")
    del array
    assert xp.zeros(6, dtype=xp.float32)._address != tensor.data  # or it would be a block that came back
    array, copied = description(True)
    assert copied.data != array._address
    assert np.from_dlpack(xp.zeros(3), device="cpu").tolist() == [0, 0, 0]
    with pytest.raises(BufferError, match="only a copy"):
        array.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="stream 0"):
        array.__dlpack__(stream=0)
    monkeypatch.setattr("os.path.exists", lambda path: path == "/proc/driver/nvidia")
    with pytest.raises(BufferError, match="no library of the GPU"):
        array.__dlpack__()


def test_a_capsule_orders_the_stream_of_its_consumer(machine: sim.Machine) -> None:
    consumer = sim.Device(0).create_stream()
    with gpu.use_stream(sim.Device(0).create_stream()):
        slowly()
        xp.ones(3).__dlpack__(stream=-1)
        assert consumer.record().is_done
        xp.ones(3).__dlpack__(stream=int(consumer.handle))
        assert not consumer.record().is_done


def test_a_kernel_of_the_program_takes_an_array(machine: sim.Machine) -> None:
    array = xp.zeros(4, dtype=xp.int32)
    seven = sim.Kernel("seven", 1e-3, lambda out: out.view(np.int32).fill(7))
    sim.launch(sim.LEGACY_DEFAULT_STREAM, sim.LaunchConfig(grid=1, block=32), seven, array)
    assert (array + 1).get().tolist() == [8, 8, 8, 8]
    with pytest.raises(ValueError, match="contiguous"):
        sim.launch(sim.LEGACY_DEFAULT_STREAM, sim.LaunchConfig(grid=1, block=32), seven, array[::2])


class Camera(Operator):
    """Sends frames that take long to compute, and keeps none."""

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0
        self.streams: list[int] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.number += 1
        stream = gpu.current_stream()
        assert stream is not None
        self.streams.append(int(stream))
        op_output.emit(xp.full((64, 64), self.number, dtype=xp.float32), "out")


def slowly() -> None:
    """Occupy the current stream for a while."""
    launch(gpu.current_stream(), MS, lambda: None)


class Reader(Operator):
    """Reads frames late, in one of several ways, and lets go of each before the device has read it."""

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.param("how", "at once")

    def start(self) -> None:
        self.seen: list[Any] = []
        self.kept: list[Any] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        slowly()
        if self.how == "a part":
            frame = frame[1:, ::2]
        elif self.how == "a tensor":
            frame = xp.asarray(as_tensor(frame))
        if self.how != "later":
            self.seen.append(xp.mean(frame))
            return
        self.kept.append(frame)
        if len(self.kept) == 3:
            self.seen += [xp.mean(one) for one in self.kept]
            self.kept.clear()


class Passes(Operator):
    """Passes frames on, and looks at each."""

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        xp.max(frame)
        op_output.emit(frame, "out")


@pytest.mark.parametrize("how", ["at once", "later", "a part", "a tensor"])
def test_frames_are_ordered_and_live_until_they_are_read(
    machine: sim.Machine, scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("HEADRACE_CHECK", "streams")

    def compose(app: App) -> None:
        app.camera = Camera(app, CountCondition(app, 21), name="camera")
        app.readers = [Reader(app, how=how, name=f"reader {number}") for number in range(2)]
        passes = Passes(app, name="passes")
        app.add_flow(app.camera, (app.readers[0], passes))
        app.add_flow(passes, app.readers[1])

    app: Any = run(compose, scheduler)
    for reader in app.readers:
        assert [float(one) for one in reader.seen] == list(range(1, 22))
    assert len(set(app.camera.streams)) == 1
    assert app.camera.streams[0] != sim.LEGACY_DEFAULT_STREAM.handle


class Scale(Operator):
    """Computes on arrays, and may be captured."""

    capturable = True

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        op_output.emit((frame * 2 + 1) / 2, "out")


def test_a_captured_segment_computes_with_arrays(machine: sim.Machine) -> None:
    class Captured(Application):
        def compose(self) -> None:
            first, second = Scale(self, name="first"), Scale(self, name="second")
            self.reader = Reader(self, name="reader")
            self.add_flow(Camera(self, CountCondition(self, 6), name="camera"), first, second, self.reader)
            self.capture(first, second)

    app = Captured()
    ran = app.run()
    assert [float(one) for one in app.reader.seen] == [number + 1 for number in range(1, 7)]
    assert [(one.state, one.replayed) for one in ran.segments] == [("captured", 5)]


def test_numbers_of_numpy_count_as_numbers(machine: sim.Machine) -> None:
    array = xp.ones(2, dtype=xp.float32)
    assert (np.float32(2) * array).get().tolist() == [2, 2]
    assert (np.float64(2) < array + 2).get().tolist() == [True, True]
    assert (array + np.float64(1)).dtype == xp.float64


def test_a_machine_without_a_device_has_no_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    use_device(monkeypatch, "none")
    with pytest.raises(gpu.DeviceUnavailable, match="HEADRACE_DEVICE=none disables devices"):
        gpu.arrays()


def test_an_old_numpy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(np, "cumulative_sum")
    with pytest.raises(ImportError, match=r"need NumPy 2\.1 or newer"):
        gpu.arrays()


def test_a_gpu_without_cupy_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        ImportError, match=r"cupy is needed for headrace.gpu.arrays\(\) on a GPU: pip install"
    ):
        find_backend("cuda").array_module()
