"""OpenCV's GpuMat over a GPU's memory: OpenCV's own class where it has CUDA, and one with its interface."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest

from headrace import as_tensor, gpu
from headrace.tensor import DLDevice, DLDeviceType, gpumat_to_tensor, tensor_to_gpumat
from tests.harness.gpumat import DEPTHS, gpumat_over, opencv

cupy = pytest.importorskip("cupy")


pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture(params=["stand-in", "cv2"])
def cv2(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "stand-in":
        module: Any = opencv(5)
        monkeypatch.setitem(sys.modules, "cv2", module)
        return module
    module = pytest.importorskip("cv2")
    if module.cuda.getCudaEnabledDeviceCount() < 1:
        pytest.skip(f"OpenCV {module.__version__} has no CUDA")
    return module


def pitched(dtype: str, channels: int) -> Any:
    """Return an image whose rows have something between them: a part of a wider one."""
    wide = cupy.arange(4 * 16 * channels).reshape(4, 16, channels).astype(dtype)
    return wide[:, 2:12] if channels > 1 else wide[:, 2:12, 0]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [name for name in DEPTHS.values() if name != "bfloat16"])
def test_a_mats_pixels_are_those_of_its_tensor(dtype: str, channels: int) -> None:
    image = pitched(dtype, channels)
    tensor = gpumat_to_tensor(gpumat_over(image))
    assert tensor.device == DLDevice(DLDeviceType.CUDA, 0)  # as the driver says
    assert tensor.strides == image.strides
    for again in (cupy.asarray(tensor), cupy.from_dlpack(tensor)):
        assert again.data.ptr == image.data.ptr
        assert (again == image).all()


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_a_tensor_is_a_mat_and_a_tensor_again(cv2: Any, dtype: str, channels: int) -> None:
    image = pitched(dtype, channels)
    mat = tensor_to_gpumat(as_tensor(image))
    assert (mat.size(), mat.channels(), mat.step) == ((10, 4), channels, image.strides[0])
    assert mat.cudaPtr() == image.data.ptr
    again = cupy.asarray(gpumat_to_tensor(mat))
    again += 1
    assert (image == again).all()
    assert again.data.ptr == image.data.ptr
    if hasattr(mat, "download"):
        assert (mat.download() == image.get()).all()


def test_the_memory_lives_as_long_as_the_mat(cv2: Any) -> None:
    class Owner:
        def __init__(self) -> None:
            self.array = cupy.full((64, 64), 7, cupy.uint8)

        @property
        def __cuda_array_interface__(self) -> Any:
            return self.array.__cuda_array_interface__

    owner = Owner()
    alive = weakref.ref(owner)
    mat = tensor_to_gpumat(owner)
    del owner
    gc.collect()
    others = [cupy.zeros((64, 64), cupy.uint8) for _ in range(16)]  # they would get the memory
    assert alive() is not None
    assert (cupy.asarray(gpumat_to_tensor(mat)) == 7).all()
    del mat
    tensor_to_gpumat(others[0])
    gc.collect()
    assert alive() is None


def test_the_work_that_makes_a_mat_comes_first(real: Any) -> None:
    maker = gpu.StreamHandle(real.device.create_stream())
    image = cupy.zeros((512, 512), cupy.float32)
    cupy.cuda.get_current_stream().synchronize()
    with maker.cupy():
        for _ in range(200):
            image += 1
    tensor = gpumat_to_tensor(gpumat_over(image), stream=maker)
    assert tensor.stream == maker
    with gpu.StreamHandle(real.device.create_stream()).cupy() as stream:
        total = cupy.from_dlpack(tensor).sum()
        stream.synchronize()
    assert int(total) == 200 * 512 * 512
