"""OpenCV's GpuMat as a tensor and back, against its interface; tests/gpu has the same over a GPU's memory."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest

from headrace import Tensor, as_tensor, gpu
from headrace.tensor import TensorError, gpumat_to_tensor, tensor_to_gpumat
from tests.harness.gpumat import DEPTHS, GpuMat, gpumat_over, opencv
from tests.harness.processes import output_of


class OnGpu:
    """An array of the host that says it is one of the GPU's: here no one reads it there."""

    def __init__(self, array: np.ndarray, typestr: str | None = None) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": typestr or array.dtype.str,
            "data": (array.ctypes.data, False),
            "strides": array.strides,
            "version": 3,
        }


@pytest.fixture(params=[4, 5])
def cv2(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = opencv(request.param)
    monkeypatch.setitem(sys.modules, "cv2", module)
    return module


NUMPY_DEPTHS = [depth for depth in DEPTHS if depth != "16BF"]


@pytest.mark.parametrize("depth", NUMPY_DEPTHS)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_mat_is_described_as_it_lies(depth: str, channels: int) -> None:
    wide = np.zeros((4, 16, channels), DEPTHS[depth])
    part = wide[:, :10] if channels > 1 else wide[:, :10, 0]
    mat = gpumat_over(part)
    tensor = gpumat_to_tensor(mat)
    assert tensor.shape == ((4, 10) if channels == 1 else (4, 10, channels))
    assert tensor.strides == part.strides
    assert tensor.dtype == wide.dtype
    assert tensor.data == wide.ctypes.data
    assert tensor.device.is_cuda
    assert not tensor.is_readonly
    assert not tensor.is_contiguous()
    assert tensor.stream is None


def test_a_mat_lives_as_long_as_its_tensor() -> None:
    mat = gpumat_over(np.zeros((2, 3), np.uint8))
    alive = weakref.ref(mat)
    tensor = gpumat_to_tensor(mat)
    assert tensor.owner is mat
    del mat
    gc.collect()
    assert alive() is tensor.owner
    del tensor
    gc.collect()
    assert alive() is None


def test_a_mat_is_made_on_the_stream_it_is_said_to_be() -> None:
    mat = gpumat_over(np.zeros((2, 3), np.uint8))
    assert gpumat_to_tensor(mat, stream=0x1234).stream == 0x1234
    assert gpumat_to_tensor(mat, stream=0).stream == 1  # the protocols' name for the default stream
    assert gpumat_to_tensor(mat, stream=0x1234).__cuda_array_interface__["stream"] == 0x1234


def test_what_is_no_mat_is_refused() -> None:
    with pytest.raises(
        TensorError, match=r"numpy.ndarray is not a GpuMat: it has no cudaPtr\(\); as_tensor takes"
    ):
        gpumat_to_tensor(np.zeros(3))
    with pytest.raises(
        TensorError, match=r"GpuMat of CV_16BF .* no name for bfloat16; use convertTo\(cv2.CV_32F\)"
    ):
        gpumat_to_tensor(gpumat_over(np.zeros((2, 3), np.uint16), "16BF"))
    with pytest.raises(TensorError, match="GpuMat of depth 40 cannot be a tensor"):
        gpumat_to_tensor(GpuMat(0, 0, 0, 40, 1, 0))


@pytest.mark.parametrize("depth", NUMPY_DEPTHS)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_tensor_becomes_a_mat_and_a_tensor_again(cv2: Any, depth: str, channels: int) -> None:
    if not hasattr(cv2, f"CV_{depth}C1"):
        pytest.skip("a depth of OpenCV 5")
    part = np.zeros((4, 16, channels), DEPTHS[depth])[:, 2:12]
    tensor = as_tensor(OnGpu(part if channels > 1 else part[:, :, 0]))
    mat = tensor_to_gpumat(tensor)
    assert (mat.size(), mat.channels(), mat.depth()) == ((10, 4), channels, list(DEPTHS).index(depth))
    assert (mat.cudaPtr(), mat.step) == (part.ctypes.data, part.strides[0])
    again = gpumat_to_tensor(mat)
    assert (again.data, again.shape, again.strides) == (tensor.data, tensor.shape, tensor.strides)
    assert again.dl_dtype == tensor.dl_dtype


def test_bfloat16_becomes_a_mat_of_opencv_5(monkeypatch: pytest.MonkeyPatch) -> None:
    short = as_tensor(OnGpu(np.zeros((4, 6, 2), np.uint16)))
    tensor = Tensor._create(
        (short.data, short.shape, short.strides, type(short.dl_dtype)(4, 16), short.device, False),
        short,
        None,
        None,
    )
    monkeypatch.setitem(sys.modules, "cv2", opencv(5))
    assert tensor_to_gpumat(tensor).depth() == list(DEPTHS).index("16BF")
    monkeypatch.setitem(sys.modules, "cv2", opencv(4))
    with pytest.raises(
        TensorError, match=r"bfloat16 cannot be a GpuMat of OpenCV 4.0.0, which has uint8, int8, "
    ):
        tensor_to_gpumat(tensor)


def test_a_tensor_lives_as_long_as_its_mat(cv2: Any) -> None:
    owners = [OnGpu(np.zeros((2, 3), np.uint8)) for _ in range(3)]
    alive = [weakref.ref(owner) for owner in owners]
    mats = [tensor_to_gpumat(as_tensor(owner)) for owner in owners]
    del owners
    gc.collect()
    assert all(owner() is not None for owner in alive)
    mats[1] = None
    gc.collect()
    another = tensor_to_gpumat(OnGpu(np.zeros((2, 3), np.uint8)))
    assert [owner() is not None for owner in alive] == [True, False, True]
    del mats
    tensor_to_gpumat(OnGpu(np.zeros((2, 3), np.uint8)))
    assert [owner() for owner in alive] == [None, None, None]
    assert another.cudaPtr()


def test_a_tensor_that_cannot_be_a_mat_says_why(cv2: Any) -> None:
    def refused(array: np.ndarray, why: str) -> None:
        with pytest.raises(TensorError, match=why):
            tensor_to_gpumat(as_tensor(OnGpu(array)))

    with pytest.raises(TensorError, match="a tensor on cpu cannot be a GpuMat: copy it to the GPU first"):
        tensor_to_gpumat(as_tensor(np.zeros((2, 3))))
    image = np.zeros((4, 6, 3), np.float32)
    refused(image.ravel(), r"shape \(72,\) cannot be a GpuMat, which has \(rows, columns\) or")
    refused(image[None], r"shape \(1, 4, 6, 3\) cannot be a GpuMat")
    refused(np.zeros((3, 4, 5)), "would have 5 channels, and a GpuMat has one to four")
    refused(np.zeros((3, 4, 0)), "would have 0 channels")
    refused(
        np.zeros((3, 4), np.complex64), r"complex64 cannot be a GpuMat of OpenCV .* which has uint8, int8, .*"
    )
    refused(
        image[:, ::2], r"columns and channels must lie one after another, 12 bytes a column; make it contig"
    )
    refused(image[:, :, ::2], "columns and channels must lie one after another")
    refused(image.transpose(2, 0, 1)[:, :, :3], "columns and channels must lie one after another")
    refused(image[:, ::-1], "columns and channels must lie one after another")
    refused(image[::-1], r"rows, of 72 bytes, run backwards or overlap; make it contiguous first")
    refused(np.broadcast_to(image[:1], (4, 6, 3)), "run backwards or overlap")


def test_an_opencv_without_cuda_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", opencv(5, devices=0))
    with pytest.raises(
        gpu.DeviceUnavailable, match=r"OpenCV 5.0.0 was built without CUDA, or finds no GPU: .*PyPI"
    ):
        tensor_to_gpumat(OnGpu(np.zeros((2, 3), np.uint8)))


# An OpenCV without CUDA still makes mats over an address, which is all that is needed here.


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_the_real_opencv_agrees(monkeypatch: pytest.MonkeyPatch, channels: int) -> None:
    cv2 = pytest.importorskip("cv2")
    monkeypatch.setattr(cv2.cuda, "getCudaEnabledDeviceCount", lambda: 1)
    for depth in NUMPY_DEPTHS:
        if not hasattr(cv2, f"CV_{depth}C1"):
            continue
        wide = np.zeros((4, 16, channels), DEPTHS[depth])
        part = wide[:, 2:12] if channels > 1 else wide[:, 2:12, 0]
        mat = tensor_to_gpumat(OnGpu(part))
        assert type(mat) is cv2.cuda.GpuMat
        assert (mat.size(), mat.channels(), mat.step) == ((10, 4), channels, part.strides[0])
        assert mat.type() == getattr(cv2, f"CV_{depth}C{channels}")
        tensor = gpumat_to_tensor(mat)
        assert (tensor.data, tensor.shape, tensor.strides) == (part.ctypes.data, part.shape, part.strides)
        assert tensor.dtype == part.dtype


def test_the_real_mats_tensor_lives_and_dies_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cv2 = pytest.importorskip("cv2")
    monkeypatch.setattr(cv2.cuda, "getCudaEnabledDeviceCount", lambda: 1)
    owner = OnGpu(np.zeros((2, 3), np.uint8))
    alive = weakref.ref(owner)
    mat = tensor_to_gpumat(owner)
    del owner
    tensor_to_gpumat(OnGpu(np.zeros((2, 3), np.uint8)))
    assert alive() is not None
    del mat
    tensor_to_gpumat(OnGpu(np.zeros((2, 3), np.uint8)))
    assert alive() is None


def test_opencv_is_imported_by_nothing_but_use() -> None:
    seen = "import sys, headrace, headrace.tensor; print('cv2' in sys.modules)"
    assert output_of("-c", seen) == "False\n"
