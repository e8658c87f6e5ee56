"""Capsules are read as their makers wrote them, taken over once, and freed once."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from headrace import as_tensor
from headrace.tensor import DLDataType, TensorError
from headrace.tensor import capsule as capsules
from tests.harness.producers import (
    BF16,
    CPU,
    CUDA,
    CUDA_HOST,
    PADDED,
    READ_ONLY,
    ROCM,
    Library,
    Made,
    name_of,
)

both_forms = pytest.mark.parametrize("version", [None, (1, 0)], ids=["legacy", "versioned"])


@both_forms
def test_every_field_of_a_capsule_is_read(version: Any) -> None:
    made = Made((3, 4), (-8, 2), DLDataType(1, 16), CUDA_HOST, version, byte_offset=96)
    tensor = as_tensor(made.capsule)
    assert tensor.data == made.address + 96
    assert tensor.shape == (3, 4)
    assert tensor.strides == (-16, 4)  # elements in a capsule, bytes in a tensor
    assert tensor.dl_dtype == DLDataType(1, 16)
    assert tensor.device == CUDA_HOST
    assert not tensor.is_readonly


@both_forms
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (2, 0, 4), (1, 2, 1, 3, 1, 2, 1, 2, 1, 3)])
def test_a_capsule_without_strides_is_row_major(version: Any, shape: tuple[int, ...]) -> None:
    made = Made(shape, None, DLDataType(0, 8), version=version)
    tensor = as_tensor(made.capsule)
    assert tensor.shape == shape
    assert tensor.is_contiguous()
    # An axis without elements counts as one of one element, as in PyTorch.
    assert tensor.strides == np.empty([max(extent, 1) for extent in shape], "b").strides


def test_a_versioned_capsule_says_whether_it_may_be_written_to() -> None:
    made = [Made(flags=READ_ONLY), Made(flags=0), Made(flags=2), Made(version=None)]
    assert [as_tensor(one.capsule).is_readonly for one in made] == [True, False, False, False]


@pytest.mark.parametrize("version", [(0, 9), (2, 0)])
def test_another_major_version_is_refused_and_left_to_its_maker(version: Any) -> None:
    made = Made(version=version)
    with pytest.raises(
        TensorError, match=rf"the capsule is of DLPack {version[0]}; only version 1 is supported"
    ):
        as_tensor(made.capsule)
    assert name_of(made.capsule) == "dltensor_versioned"
    assert made.freed == []
    library = Library(version=version)
    with pytest.raises(
        TensorError, match=r"producers\.Library cannot be a tensor \(__dlpack__: the capsule is of"
    ):
        as_tensor(library)


def test_elements_that_share_bytes_are_refused_unless_each_has_its_own() -> None:
    packed = Made(dtype=DLDataType(0, 4))
    with pytest.raises(TensorError, match=r"unsupported dtype int4: its elements share bytes"):
        as_tensor(packed.capsule)
    assert name_of(packed.capsule) == "dltensor_versioned"
    padded = Made(dtype=DLDataType(0, 4), flags=PADDED)
    tensor = as_tensor(padded.capsule)
    assert (tensor.itemsize, tensor.strides, tensor.nbytes) == (1, (3, 1), 6)
    pairs = Made(dtype=DLDataType(17, 4, 2))
    assert as_tensor(pairs.capsule).itemsize == 1
    thirds = Made(dtype=DLDataType(17, 4, 3), flags=PADDED)  # padding is for single elements
    with pytest.raises(TensorError, match="float4_e2m1fn_x3"):
        as_tensor(thirds.capsule)


@both_forms
def test_a_capsule_is_taken_over_once_and_freed_once(version: Any) -> None:
    made = Made(version=version)
    tensor = as_tensor(made.capsule)
    assert name_of(made.capsule).startswith("used_dltensor")
    assert ("versioned" in name_of(made.capsule)) == (version is not None)
    with pytest.raises(
        TensorError, match=r"used_dltensor.* cannot be read: a DLPack capsule can be consumed once"
    ):
        as_tensor(made.capsule)
    assert made.freed == []
    view = np.asarray(tensor)
    again = as_tensor(tensor, stream=5)
    del tensor, again
    gc.collect()
    assert made.freed == []  # the view keeps it
    del view
    gc.collect()
    assert len(made.freed) == 1
    del made.capsule  # a used capsule frees nothing
    gc.collect()
    assert len(made.freed) == 1


def test_a_capsule_without_a_deleter_is_taken_too() -> None:
    made = Made(has_deleter=False)
    assert as_tensor(made.capsule).shape == (2, 3)


def test_a_capsule_of_a_dtype_that_numpy_lacks_is_a_tensor_that_is_exported_as_it_is() -> None:
    for dtype in (BF16, DLDataType(5, 32), DLDataType(2, 8), DLDataType(2, 32, 4)):
        made = Made(dtype=dtype)
        tensor = as_tensor(made.capsule)
        assert as_tensor(tensor.__dlpack__()).dl_dtype == dtype
        assert not hasattr(tensor, "__array_interface__")
        assert made.freed == []
        del tensor
        assert len(made.freed) == 1


def test_a_capsule_of_memory_that_nothing_here_exports_says_so() -> None:
    made = Made(device=ROCM)
    with pytest.raises(BufferError, match="no library exports memory on rocm:0"):
        as_tensor(made.capsule).__dlpack__()
    made = Made(device=CUDA)
    with pytest.raises(BufferError, match="cuda-core, which would export it, finds no GPU"):
        as_tensor(made.capsule).__dlpack__()


def test_between_reading_a_capsule_and_taking_it_nobody_else_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, taken = Made(), []
    both_are_here = threading.Barrier(2, timeout=0.2)
    set_name = capsules._set_name

    def slowly(capsule: Any, name: bytes) -> int:
        with contextlib.suppress(threading.BrokenBarrierError):  # as is right, the other one never comes
            both_are_here.wait()
        return set_name(capsule, name)

    def take() -> None:
        with contextlib.suppress(TensorError):
            taken.append(as_tensor(made.capsule))

    monkeypatch.setattr(capsules, "_set_name", slowly)
    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1


def test_a_tensor_and_the_name_of_its_capsule_last_to_the_end_of_the_interpreter() -> None:
    program = """if True:
        import sys
        import numpy as np
        from headrace import as_tensor

        class Last:  # what sys holds goes when the modules are gone
            def __init__(self, capsule):
                self.capsule, self.tensor, self.write = capsule, as_tensor(capsule), sys.stdout.write

            def __del__(self):
                self.write(f"{self.capsule!r} {self.tensor.shape}")

        sys.last = Last(np.arange(6.0).__dlpack__(max_version=(1, 0)))
    """
    # CPython's own check: what is freed is overwritten.
    environment = {"PYTHONMALLOC": "debug", "HEADRACE_DEVICE": "sim", "PYTHONPATH": ":".join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b'"used_dltensor_versioned"' in ended.stdout
    assert ended.stdout.endswith(b" (6,)")


# -- capsules that a producer keeps ------------------------------------------------------------------


class Keeping(Library):
    """An array that returns the same capsule whenever it is asked."""

    def __dlpack__(self, **asked: Any) -> Any:
        self.asked.append(asked)
        if not self.made:
            self.made.append(Made(**self._said))
        return self.made[0].capsule


@both_forms
def test_a_capsule_that_its_producer_keeps_is_taken_over_once(version: Any) -> None:
    array = Keeping(CPU, version)
    tensor = as_tensor(array)
    (made,) = array.made
    assert name_of(made.capsule).startswith("used_dltensor")
    with pytest.raises(TensorError, match="a DLPack capsule can be consumed once"):
        as_tensor(array)
    with pytest.raises((ValueError, RuntimeError, BufferError)):
        np.from_dlpack(array)
    assert made.freed == []
    there = np.from_dlpack(tensor)
    del tensor
    assert made.freed == []
    del there
    assert made.freed == [ctypes.addressof(made.managed)]


def test_taking_a_capsule_over_may_be_interrupted_by_a_finalizer_that_does_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outer, inner, taken = Made(), Made(), []
    set_name = capsules._set_name

    def finalize_first(capsule: Any, name: bytes) -> int:
        monkeypatch.setattr(capsules, "_set_name", set_name)
        taken.append(as_tensor(inner.capsule))
        return set_name(capsule, name)

    monkeypatch.setattr(capsules, "_set_name", finalize_first)
    taken.append(as_tensor(outer.capsule))
    taken.clear()
    assert (len(inner.freed), len(outer.freed)) == (1, 1)
