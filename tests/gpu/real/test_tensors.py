"""Tensors on a real GPU, in and out of CuPy, PyTorch, JAX, Numba and cuda.core: no copy, on the right stream."""

from __future__ import annotations

import gc
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import CountCondition, Operator, TensorMap, as_tensor, gpu
from headrace.resources import CudaStreamPool
from headrace.schedulers import EventBasedScheduler, GreedyScheduler
from headrace.tensor import DLDevice, Tensor, TensorError
from tests.gpu.kernels import spin
from tests.harness import run
from tests.harness.libraries import numba_works

cupy = pytest.importorskip("cupy")


pytestmark = pytest.mark.usefixtures("real")


def address(array: Any) -> int:
    """Where any library's array begins."""
    for name in ("data_ptr", "unsafe_buffer_pointer"):
        if hasattr(array, name):
            return int(getattr(array, name)())
    return int(array.__cuda_array_interface__["data"][0])


def made_by(library: str) -> Any:
    """An array of 2 × 3 float32 on the GPU, made by a library."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    if library == "cupy":
        return cupy.asarray(values)
    if library == "torch":
        return pytest.importorskip("torch").asarray(values, device="cuda")
    if library == "jax":
        return pytest.importorskip("jax").device_put(values)
    return numba_cuda().to_device(values)


def numba_cuda() -> Any:
    if not numba_works():
        pytest.skip("Numba does not work with this NumPy")
    return pytest.importorskip("numba.cuda")


LIBRARIES = ["cupy", "torch", "jax", "numba"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_tensor_describes_an_array_of_any_library_without_a_copy(library: str) -> None:
    array = made_by(library)
    tensor = as_tensor(array)
    assert tensor.data == address(array)
    assert (tensor.shape, tensor.strides, tensor.dtype) == ((2, 3), (12, 4), np.dtype(np.float32))
    assert tensor.device == DLDevice(2, 0)
    assert str(tensor.device) == "cuda:0"
    assert tensor.owner is array


@pytest.mark.parametrize("source", LIBRARIES)
@pytest.mark.parametrize("target", LIBRARIES)
def test_every_library_takes_the_tensors_of_every_other_without_a_copy(source: str, target: str) -> None:
    tensor = as_tensor(made_by(source))
    if target == "cupy":
        taken = [cupy.asarray(tensor), cupy.from_dlpack(tensor)]
    elif target == "torch":
        torch = pytest.importorskip("torch")
        if source == "jax":  # which never changes, and PyTorch has no such memory
            with pytest.warns(UserWarning, match="PyTorch ignores that this memory is read-only"):
                taken = [torch.from_dlpack(tensor)]
        else:
            taken = [torch.as_tensor(tensor, device="cuda"), torch.from_dlpack(tensor)]
    elif target == "jax":
        taken = [pytest.importorskip("jax.numpy").from_dlpack(tensor)]
    else:
        taken = [numba_cuda().as_cuda_array(tensor)]
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    for array in taken:
        assert address(array) == tensor.data
        assert np.array_equal(cupy.asnumpy(cupy.asarray(as_tensor(array))), expected)


def test_what_jax_made_is_read_only_on_every_way() -> None:
    torch = pytest.importorskip("torch")
    array = made_by("jax")
    if next(iter(array.devices())).platform != "gpu":
        pytest.skip("this JAX is for the host")
    tensor = as_tensor(array)
    assert tensor.is_readonly
    assert tensor.__cuda_array_interface__["data"] == (tensor.data, True)
    told = as_tensor(tensor.__dlpack__(stream=-1, max_version=(1, 0)))
    for name in ("data", "shape", "strides", "dl_dtype", "device", "is_readonly"):
        assert getattr(told, name) == getattr(tensor, name)
    with pytest.raises(BufferError, match="it is read-only, and the requested old form"):
        tensor.__dlpack__(stream=1)
    with pytest.raises(TypeError, match="read only flag is not supported"):
        torch.as_tensor(tensor, device="cuda")
    own = torch.from_dlpack(tensor, copy=True)
    own += 1
    assert own.data_ptr() != tensor.data
    assert np.array_equal(np.asarray(array), np.arange(6, dtype=np.float32).reshape(2, 3))


def test_what_lies_backwards_on_the_gpu_is_refused_before_a_library_ends_the_process() -> None:
    array = cupy.arange(6)[::-1]
    tensor = as_tensor(array)
    for library in ("cupy", "torch"):
        module = pytest.importorskip(library)
        with pytest.raises(BufferError, match=r"has a negative stride.*cupy\.ascontiguousarray\(array\)"):
            module.from_dlpack(tensor)
    with pytest.raises(TypeError, match="read only flag is not supported"):
        pytest.importorskip("torch").as_tensor(tensor, device="cuda")
    assert cupy.asarray(tensor).data.ptr == array.data.ptr
    assert (cupy.asarray(tensor) == array).all()
    assert (cupy.from_dlpack(as_tensor(cupy.ascontiguousarray(array))) == array).all()


def test_a_buffer_of_cuda_core_goes_both_ways(real: Any) -> None:
    from cuda.core.utils import StridedMemoryView

    stream = real.device.create_stream()
    buffer = real.device.allocate(24, stream=stream)
    tensor = as_tensor(buffer)
    assert (tensor.data, tensor.nbytes) == (int(buffer.handle), 24)
    view = StridedMemoryView.from_dlpack(as_tensor(made_by("cupy")), stream_ptr=int(stream.handle))
    assert view.shape == (2, 3)
    stream.sync()


def test_narrow_floats_pass_between_libraries() -> None:
    torch = pytest.importorskip("torch")
    for kind, name in (
        (torch.bfloat16, "bfloat16"),
        (torch.float8_e4m3fn, "float8_e4m3fn"),
        (torch.float8_e5m2, "float8_e5m2"),
    ):
        array = torch.arange(4, device="cuda").to(kind)
        tensor = as_tensor(array)
        assert tensor.dl_dtype.name == name
        assert tensor.nbytes == 4 * array.element_size()
        again = torch.from_dlpack(tensor)
        assert again.dtype is kind
        assert again.data_ptr() == array.data_ptr()


def test_an_object_with_nothing_but_a_pointer_is_found_on_its_device() -> None:
    array = cupy.arange(6, dtype=cupy.int16)

    class Bare:
        __cuda_array_interface__ = array.__cuda_array_interface__

    tensor = as_tensor(Bare())
    assert tensor.device == DLDevice(2, 0)
    assert cupy.from_dlpack(tensor).data.ptr == array.data.ptr  # exported although its owner cannot
    assert pytest.importorskip("torch").from_dlpack(tensor).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_pointer_that_no_device_knows_is_refused_by_name() -> None:
    host = np.zeros(4, np.float32)

    class Elsewhere:
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {"shape": (4,), "typestr": "<f4", "data": (host.ctypes.data, False), "version": 3}

    with pytest.raises(
        TensorError,
        match=r"Elsewhere cannot be a tensor.*__cuda_array_interface__: the pointer .* belongs to no CUDA device",
    ):
        as_tensor(Elsewhere())


def test_a_capsule_is_taken_over_and_exported_again() -> None:
    array = cupy.arange(5)
    tensor = as_tensor(array.__dlpack__(stream=-1))
    assert tensor.data == array.data.ptr
    assert cupy.from_dlpack(tensor).sum() == 10


def test_the_stream_is_the_one_the_library_works_on() -> None:
    torch = pytest.importorskip("torch")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        assert as_tensor(cupy.arange(3)).stream == stream.ptr
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        assert as_tensor(torch.zeros(3, device="cuda")).stream == torch.cuda.current_stream().cuda_stream
    assert as_tensor(cupy.arange(3)).stream == 1  # the legacy default stream, as the protocols name it


SLOW = 20_000_000  # nanoseconds


def keep_busy(stream: Any, nanoseconds: int) -> None:
    """Launch a kernel that takes its time on a stream of any library."""
    stream = gpu.Stream.from_handle(int(getattr(stream, "ptr", stream)))
    gpu.launch(stream, gpu.LaunchConfig(grid=1, block=1), spin.on(gpu.Device(0)), np.int64(nanoseconds))


@pytest.mark.parametrize("consumer", ["cupy", "torch", "jax"])
def test_a_consumer_that_names_its_stream_is_ordered_behind_the_work(real: Any, consumer: str) -> None:
    """A slow kernel comes before the value on the producer's stream: read too early, it is still 0."""
    producer = cupy.cuda.Stream(non_blocking=True)
    array = cupy.zeros(1 << 20, cupy.int32)
    array.fill(1)  # compiled before it matters
    cupy.cuda.Device().synchronize()
    with producer:
        keep_busy(producer, SLOW)
        array.fill(7)
        tensor = as_tensor(array)
    assert not producer.done
    if consumer == "cupy":
        own = cupy.cuda.Stream(non_blocking=True)
        with own:
            total = cupy.from_dlpack(tensor).min()
            assert int(total) == 7
    elif consumer == "torch":
        torch = pytest.importorskip("torch")
        with torch.cuda.stream(torch.cuda.Stream()):
            assert int(torch.from_dlpack(tensor).min()) == 7
    else:
        jnp = pytest.importorskip("jax.numpy")
        assert int(jnp.from_dlpack(tensor).min()) == 7


def test_ordering_a_consumer_does_not_stop_the_host(real: Any) -> None:
    producer, consumer = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    array = cupy.zeros(4)
    with producer:
        keep_busy(producer, SLOW)
        tensor = as_tensor(array)
    with consumer:
        cupy.from_dlpack(tensor)
    assert not producer.done  # so nothing waited for it
    assert not consumer.done  # which waits for it
    cupy.cuda.Device().synchronize()


def test_a_named_stream_is_ordered_behind_the_array_that_becomes_a_tensor(real: Any) -> None:
    torch = pytest.importorskip("torch")
    own = real.device.create_stream()
    for library in ("cupy", "torch"):
        producer = cupy.cuda.Stream(non_blocking=True)
        with producer, torch.cuda.stream(torch.cuda.ExternalStream(producer.ptr)):
            array = cupy.zeros(1 << 10) if library == "cupy" else torch.zeros(1 << 10, device="cuda")
            keep_busy(producer, SLOW)
            tensor = as_tensor(array, stream=int(own.handle))
        assert tensor.stream == int(own.handle)
        assert not own.record().is_done
        own.sync()
        assert producer.done


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    shape=st.lists(st.integers(0, 4), max_size=4).map(tuple),
    dtype=st.sampled_from("?bBhHiIlLefdFD"),
    data=st.data(),
)
def test_layouts_survive_the_round_trip(shape: tuple[int, ...], dtype: str, data: Any) -> None:
    array = cupy.zeros(shape, dtype)
    steps = tuple(slice(None, None, data.draw(st.sampled_from([1, 2]))) for _ in shape)
    array = array[steps]
    if array.ndim:
        array = array.transpose(data.draw(st.permutations(range(array.ndim))))
    tensor = as_tensor(array)
    told = as_tensor(array.__dlpack__(stream=-1, max_version=(1, 0)))
    for name in ("data", "shape", "strides", "dl_dtype", "device", "is_readonly"):
        assert getattr(tensor, name) == getattr(told, name)  # attributes and capsule say the same
    for again in (cupy.asarray(tensor), cupy.from_dlpack(tensor)):
        assert (again.shape, again.dtype) == (array.shape, array.dtype)
        if array.size:
            assert again.data.ptr == array.data.ptr
            real_steps = [n for n, extent in enumerate(array.shape) if extent > 1]
            assert [again.strides[n] for n in real_steps] == [array.strides[n] for n in real_steps]


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_nothing_is_left_after_a_hundred_thousand_round_trips(library: str) -> None:
    import sys

    torch = pytest.importorskip("torch")
    array: Any = cupy.zeros(16) if library == "cupy" else torch.zeros(16, device="cuda")

    def there_and_back() -> None:
        tensor = as_tensor(array)
        tensor.__dlpack__(stream=-1, max_version=(1, 0))  # refused: dropped without being consumed
        again = cupy.from_dlpack(tensor) if library == "cupy" else torch.from_dlpack(tensor)
        del again, tensor

    for _ in range(100):
        there_and_back()
    gc.collect()
    references, objects = sys.getrefcount(array), len(gc.get_objects())
    free = cupy.cuda.runtime.memGetInfo()[0]
    for _ in range(100_000):
        there_and_back()
    gc.collect()
    assert sys.getrefcount(array) == references
    assert abs(len(gc.get_objects()) - objects) < 50
    assert cupy.cuda.runtime.memGetInfo()[0] == free


FRAMES = 60


class Sends(Operator):
    """Emits a map of one CuPy array, filled after a while."""

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.count = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own")
        op_output.set_cuda_stream(stream, "out")
        self.count += 1
        with stream.cupy():
            frame = cupy.zeros(1 << 16, cupy.int32)
            keep_busy(stream, 300_000)
            frame += self.count
            op_output.emit(TensorMap(frame=frame), "out")


class Takes(Operator):
    """Takes the map with a library, adds one with it, and emits what that gives."""

    def __init__(self, *args: Any, library: str, **kwargs: Any) -> None:
        self.library = library
        super().__init__(*args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        message = op_input.receive("in")
        assert type(message) is TensorMap
        tensor = message.get()
        assert type(tensor) is Tensor
        stream = op_input.receive_cuda_stream("in")
        if self.library == "cupy":
            with stream.cupy():
                result = cupy.asarray(tensor) + 1
        elif self.library == "torch":
            import torch

            with torch.cuda.stream(stream.torch()):
                result = torch.from_dlpack(tensor) + 1
        elif self.library == "jax":
            import jax.numpy as jnp

            result = slow_add_one()(jnp.from_dlpack(tensor))  # on a stream of JAX's own
        else:
            from numba import cuda

            result = cupy.empty(tensor.shape, cupy.int32)
            add_one[256, 256, stream.numba()](cuda.as_cuda_array(tensor), result)
        op_output.emit({"frame": as_tensor(result, stream=stream)}, "out")


@cache
def slow_add_one() -> Any:
    """A function of JAX whose result takes a millisecond or more."""
    import jax
    import jax.numpy as jnp

    zeros = jnp.zeros((4096, 4096), jnp.float32)

    @jax.jit
    def function(frame: Any) -> Any:
        late = jax.lax.fori_loop(0, 2, lambda _, product: product @ zeros, zeros)
        return frame + 1 + late[0, 0].astype(jnp.int32)

    return function


def add_one(*_: Any) -> None:
    raise AssertionError("compiled when Numba is there")


class Checks(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.extremes: list[Any] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        tensor = op_input.receive("in")["frame"]
        with op_input.receive_cuda_stream("in").cupy():
            array = cupy.asarray(tensor)
            self.extremes.append((array.min(), array.max()))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("scheduler", [GreedyScheduler, EventBasedScheduler])
def test_frames_are_right_whatever_library_a_stage_uses(scheduler: Any, library: str) -> None:
    if library == "numba":
        cuda = numba_cuda()

        @cuda.jit
        def add(source: Any, target: Any) -> None:
            start, step = cuda.grid(1), cuda.gridsize(1)
            for index in range(start, source.size, step):
                target[index] = source[index] + 1

        globals()["add_one"] = add
    else:
        pytest.importorskip(library)
    checks: list[Checks] = []

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, stream_flags=1)
        sends = Sends(app, CountCondition(app, FRAMES), pool, name="sends")
        takes = Takes(app, pool, library=library, name="takes")
        checks.append(Checks(app, pool, name="checks"))
        app.add_flow(sends, takes, checks[0])

    run(compose, scheduler)
    found = [(int(low), int(high)) for low, high in checks[0].extremes]
    assert found == [(n + 1, n + 1) for n in range(1, FRAMES + 1)]
