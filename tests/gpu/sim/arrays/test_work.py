"""Arrays of a simulated device: when their kernels run, how long they take, and what is in their memory then."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.gpu import sim
from headrace.gpu.sim import arrays as xp

US = 1e-6
LAUNCH = 7.5 * US  # of an H200
LARGE = (4096, 4096)  # 64 MiB of float32: far more blocks than the device has room for


def took(machine: sim.Machine, work: Any) -> float:
    """Return how long some work takes on an idle device, from the call to its end."""
    sim.Device(0).sync()
    began = machine.now
    work()
    sim.Device(0).sync()
    return machine.now - began


def test_a_call_returns_before_its_kernel_has_run(machine: sim.Machine) -> None:
    array = xp.ones(LARGE, dtype=xp.float32)
    assert machine.now == 0
    assert array[0, 0].get() == 1
    assert machine.now > 0


def test_work_is_queued_on_the_current_stream(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    with gpu.use_stream(stream):
        xp.ones(LARGE, dtype=xp.float32)
    assert not stream.record().is_done
    assert sim.LEGACY_DEFAULT_STREAM.record().is_done
    xp.ones(LARGE, dtype=xp.float32)
    assert not sim.LEGACY_DEFAULT_STREAM.record().is_done


def test_a_kernel_takes_as_long_as_its_bytes_take(machine: sim.Machine) -> None:
    one, two = (xp.ones(LARGE, dtype=xp.float32) for _ in range(2))
    moved = 3 * 4 * 4096**2  # two arrays are read, one is written
    assert took(machine, lambda: one + two) == pytest.approx(LAUNCH + moved / 4.3e12, rel=0.05)
    assert took(machine, lambda: xp.sum(one)) == pytest.approx(LAUNCH + moved / 3 / 4.3e12, rel=0.15)
    half = one[:, ::2]
    assert took(machine, lambda: half + 1) == pytest.approx(LAUNCH + moved / 3 / 4.3e12, rel=0.15)


def test_a_small_kernel_takes_the_launch_and_little_more(machine: sim.Machine) -> None:
    array = xp.ones(4)
    assert took(machine, lambda: array + 1) == pytest.approx(LAUNCH + 1.5 * US, rel=0.01)
    # Those that are queued behind each other do not wait for their launches again.
    assert took(machine, lambda: ((array + 1) * 2) / 3) == pytest.approx(LAUNCH + 4.5 * US, rel=0.01)


def test_a_product_of_matrices_takes_as_long_as_its_operations_take(machine: sim.Machine) -> None:
    matrix = xp.ones((2048, 2048), dtype=xp.float32)
    expected = 2 * 2048**3 / (132 * 500e9)
    assert took(machine, lambda: matrix @ matrix) == pytest.approx(LAUNCH + expected, rel=0.1)


def test_a_kernel_on_a_slice_takes_longer_by_the_sms_that_it_lacks(machine: sim.Machine) -> None:
    device = sim.Device(0)
    parts = gpu.partition(device, {"small": 16})
    array = xp.ones(LARGE, dtype=xp.float32)
    whole = took(machine, lambda: array + 1)
    with gpu.use_stream(parts["small"].create_stream()):
        part = took(machine, lambda: array + 1)
    assert (part - LAUNCH) / (whole - LAUNCH) == pytest.approx(132 / 16, rel=0.1)


def test_copies_to_and_from_the_host_take_the_copy_engines_time(machine: sim.Machine) -> None:
    values = np.ones(LARGE, np.float32)
    assert took(machine, lambda: xp.asarray(values)) == pytest.approx(LAUNCH + values.nbytes / 50e9, rel=0.01)
    array = xp.asarray(values)
    sim.Device(0).sync()
    began = machine.now
    array.get()
    assert machine.now - began == pytest.approx(LAUNCH + values.nbytes / 50e9, rel=0.01)


def test_a_copy_from_the_host_has_read_its_source_when_it_returns(machine: sim.Machine) -> None:
    values = np.ones(4)
    array = xp.asarray(values)
    values[:] = 2
    assert array.get().tolist() == [1, 1, 1, 1]


def test_reading_a_value_waits_for_the_stream(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    with gpu.use_stream(stream):
        array = xp.full(LARGE, 3, dtype=xp.float32)
        assert float(xp.max(array)) == 3
        assert stream.record().is_done
        assert xp.asnumpy(array[0, :2]).tolist() == [3, 3]
        assert str(array[0, 0]) == "3.0"
        assert [int(one) for one in xp.nonzero(xp.asarray([0, 5, 0, 6]))[0]] == [1, 3]


# The pool.


def test_a_block_is_reused_at_once_on_its_stream(machine: sim.Machine) -> None:
    array = xp.ones(1000)
    address = array.__cuda_array_interface__["data"][0]
    view = array[10:]
    del array
    assert xp.ones(1000).__cuda_array_interface__["data"][0] != address, "the view keeps it"
    del view
    other = sim.Device(0).create_stream()
    with gpu.use_stream(other):
        assert xp.ones(1000).__cuda_array_interface__["data"][0] != address, "it is another stream's"
    assert xp.ones(1000).__cuda_array_interface__["data"][0] == address


def test_memory_that_is_used_up_is_an_error_of_the_driver() -> None:
    with sim.Machine(replace(sim.PROFILES["h200"], memory=1 << 20)):
        kept = xp.ones(1 << 16)
        with pytest.raises(sim.CUDAError, match="CUDA_ERROR_OUT_OF_MEMORY"):
            xp.ones(1 << 17)
        assert kept.nbytes == 1 << 19


# Order.


@pytest.fixture
def two_streams(machine: sim.Machine) -> Any:
    device = sim.Device(0)
    return gpu.use_stream(device.create_stream()), gpu.use_stream(device.create_stream())


def test_a_reader_that_nothing_orders_sees_what_is_there(two_streams: Any) -> None:
    writer, reader = two_streams
    with writer:
        array = xp.full(LARGE, 7, dtype=xp.float32)
    with (
        reader,
        pytest.warns(sim.UnorderedAccessWarning, match=r"'copy to the host' .* read an array before 'fill'"),
    ):
        assert array[0, 0].get() == 0


def test_a_reader_that_is_ordered_sees_what_was_written(two_streams: Any) -> None:
    writer, reader = two_streams
    with writer as stream:
        array = xp.full(LARGE, 7, dtype=xp.float32)
        written = stream.stream.record()
    with reader as stream, warnings.catch_warnings():
        warnings.simplefilter("error")
        stream.stream.wait(written)
        assert array[0, 0].get() == 7


def test_an_array_that_goes_while_another_stream_reads_it_is_overwritten(two_streams: Any) -> None:
    writer, reader = two_streams
    with writer as stream:
        array = xp.full((1024, 1024), 7, dtype=xp.float32)
        written = stream.stream.record()
    with reader as stream:
        stream.stream.wait(written)
        slow = xp.ones(LARGE, dtype=xp.float32)
        for _ in range(4):
            slow += 1
        seen = xp.max(array)
    del array  # its kernel has not run
    with writer:
        others = [xp.full((1024, 1024), 9, dtype=xp.float32)]
    with (
        reader,
        pytest.warns(sim.UnorderedAccessWarning, match=r"'max' .* read an array after 'fill'.* overwritten"),
    ):
        assert float(seen) == 9
    assert len(others) == 1


def test_two_writers_that_nothing_orders_are_reported(two_streams: Any) -> None:
    first, second = two_streams
    array = xp.zeros((1024, 1024))
    sim.Device(0).sync()
    with first:
        xp.ones(LARGE)
        array[...] = 1
    with second:
        array[...] = 2
    with pytest.warns(sim.UnorderedAccessWarning, match=r"'setitem' .* overwrote an array after 'setitem'"):
        sim.Device(0).sync()
    assert array[0, 0].get() == 1


def test_the_report_is_an_error_of_the_device_where_streams_are_checked(
    two_streams: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CHECK", "streams")
    writer, reader = two_streams
    with writer:
        array = xp.ones(LARGE)
    with reader, pytest.raises(sim.CUDAError, match="nothing orders the two streams"):
        array[0, 0].get()


def test_parts_of_an_array_are_told_apart(two_streams: Any) -> None:
    first, second = two_streams
    array = xp.zeros((2, 1024, 1024))
    sim.Device(0).sync()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with first:
            xp.ones(LARGE)
            array[0] = 1
        with second:
            array[1] = 2
            assert array[1, 0, 0].get() == 2
        sim.Device(0).sync()
    assert array[0, 0, 0].get() == 1


# What a kernel cannot do.


def test_what_a_gpu_does_silently_is_no_error_here(machine: sim.Machine) -> None:
    assert xp.take(xp.arange(3), xp.asarray([4]), axis=0).get().tolist() == [1]
    assert xp.arange(3)[xp.asarray([-4, 5])].get().tolist() == [2, 2]
    assert np.isnan(xp.linalg.inv(xp.zeros((2, 2))).get()).all()
    assert xp.pow(xp.asarray([2]), xp.asarray([-1])).get().tolist() == [1]
    assert (xp.asarray([1]) // xp.asarray([0])).get().tolist() == [0]


@pytest.mark.parametrize("indices", [[0.5], [True]])
def test_indices_that_are_no_integers_are_refused(machine: sim.Machine, indices: list[Any]) -> None:
    for take in (xp.take, xp.take_along_axis):
        for given in (xp.asarray(indices), np.asarray(indices)):
            with pytest.raises(TypeError, match="needs indices that are integers, not (float64|bool)"):
                take(xp.arange(3), given, axis=0)


@pytest.mark.parametrize(
    ("work", "error", "match"),
    [
        (lambda x: x + "a", TypeError, "unsupported operand"),
        (lambda x: x + np.ones(3), TypeError, "does not support ufuncs"),
        (lambda x: xp.sin(np.ones(3)), TypeError, "asarray copies an array of the host to the device"),
        (lambda x: np.asarray(x), TypeError, r"use array.get\(\)"),
        (lambda x: x + xp.ones((2, 2)), ValueError, "could not be broadcast|shape mismatch"),
        (lambda x: x.__iadd__(xp.ones((2, 3))), ValueError, "cannot hold the result"),
        (lambda x: xp.asarray([1]).__iadd__(1.5), TypeError, "an array of int64 cannot hold the result"),
        (lambda x: x[7], IndexError, "out of bounds"),
        (lambda x: x[xp.asarray([1.0])], IndexError, "an index is an integer or a boolean, not float64"),
        (lambda x: x[xp.asarray([True])], IndexError, "a mask of shape"),
        (lambda x: x.__setitem__(0, xp.ones(2)), ValueError, "cannot be assigned"),
        (lambda x: bool(x), ValueError, "only an array of one element"),
        (lambda x: xp.ones((3, 3)).__imatmul__(x), ValueError, "cannot hold the result"),
        (lambda x: xp.asarray([[1]]).__imatmul__(1.5 * xp.ones((1, 1))), TypeError, "cannot hold the result"),
        (lambda x: x.to_device("cpu"), ValueError, "not 'cpu'; array.get\\(\\) copies to the host"),
        (lambda x: xp.asarray(["a"]), TypeError, "an array holds booleans or numbers, not elements of <U1"),
        (
            lambda x: xp.full(2, 2**70),
            TypeError,
            "an array holds booleans or numbers, not elements of object",
        ),
        (lambda x: xp.asarray([1], copy=False), ValueError, "needs a copy"),
        (lambda x: xp.zeros(-1), ValueError, "an extent is 0 or more"),
        (lambda x: xp.zeros(1, device="cpu"), ValueError, "a device is a Device of headrace.gpu"),
        (lambda x: xp.broadcast_to(x, (2, 3)).__setitem__(0, 1), ValueError, "read-only"),
        (lambda x: xp.ndarray((2, 3)), TypeError, "create an array with asarray"),
        (lambda x: hash(x), TypeError, "unhashable"),
    ],
)
def test_what_is_wrong_is_said_at_the_call(machine: sim.Machine, work: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        work(xp.ones(3))
    assert xp.ones(3).get().tolist() == [1, 1, 1], "the device goes on"


def test_a_result_whose_shape_depends_on_values_is_no_guess(machine: sim.Machine) -> None:
    xp.histogram(xp.arange(1000.0), bins="auto")
    with pytest.raises(sim.CUDAError, match="histogram: the shape of its result depends on values"):
        sim.Device(0).sync()


def test_the_random_numbers_of_a_seed_are_numpys(machine: sim.Machine) -> None:
    drawn = xp.random.default_rng(5).normal(size=(2, 3))
    np.testing.assert_array_equal(drawn.get(), np.random.default_rng(5).normal(size=(2, 3)))
    xp.random.seed(5)
    first = xp.random.rand(4)
    xp.random.seed(5)
    assert (first == xp.random.rand(4)).all()


def test_arrays_are_on_the_device_that_was_asked_for() -> None:
    with sim.Machine("h200", devices=2):
        here, there = xp.ones(3), xp.zeros(3, device=sim.Device(1))
        assert [here.device.device_id, there.device.device_id] == [0, 1]
        moved = here.to_device(sim.Device(1))
        assert moved.device.device_id == 1
        sim.Device(1).set_current()
        sim.Device(1).sync()
        assert moved.get().tolist() == [1, 1, 1]
        assert here.to_device(sim.Device(0)) is here
