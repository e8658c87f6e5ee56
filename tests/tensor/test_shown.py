"""Tensors in a notebook."""

from __future__ import annotations

import numpy as np
import pytest

from headrace import TensorMap, as_tensor, gpu
from headrace.gpu import sim
from headrace.tensor import copies
from headrace.tensor.description import StreamWork
from tests.gpu.sim.launches import LONG, ONE_BLOCK


def test_elements_are_shown_on_the_host() -> None:
    html = as_tensor(np.arange(3, dtype=np.float32))._repr_html_()
    assert html.startswith("<pre>Tensor(shape=(3,), dtype=float32, device=cpu, of numpy.ndarray)</pre>")
    assert html.endswith("<pre>[0. 1. 2.]</pre>")


def test_elements_on_a_device_are_copied_after_the_work_on_them() -> None:
    with sim.Machine("h200"):
        device = sim.Device(0)
        device.set_current()
        stream = gpu.StreamHandle(device.create_stream(options=sim.StreamOptions(nonblocking=True)))
        sim.launch(stream.stream, ONE_BLOCK, LONG)
        tensor = copies.upload(np.array([7, 8], np.int32), stream)._with_pending_work(StreamWork(stream))
        assert tensor._repr_html_().endswith("<pre>[7 8]</pre>")


@pytest.mark.parametrize("shape", [(8, 9), (8, 9, 1), (8, 9, 3), (8, 9, 4)])
def test_bytes_in_rows_and_columns_are_a_picture(shape: tuple[int, ...]) -> None:
    pytest.importorskip("PIL")
    assert "data:image/png;base64," in as_tensor(np.zeros(shape, np.uint8))._repr_html_()


@pytest.mark.parametrize(("shape", "dtype"), [((8, 9), "int8"), ((7, 9), "uint8"), ((8, 9, 2), "uint8")])
def test_other_tensors_are_numbers(shape: tuple[int, ...], dtype: str) -> None:
    assert "<img" not in as_tensor(np.zeros(shape, dtype))._repr_html_()


def test_a_large_tensor_is_described_only() -> None:
    tensor = as_tensor(np.broadcast_to(np.zeros(1, np.int64), (1 << 24,)))
    assert tensor._repr_html_() == (
        "<pre>Tensor(shape=(16777216,), dtype=int64, device=cpu, strides=(0,), read-only, of numpy.ndarray)</pre>"
    )


def test_names_are_text_not_elements() -> None:
    html = TensorMap({"<b>": np.zeros(1)})._repr_html_()
    assert html.startswith("<p>&lt;b&gt;</p><pre>Tensor(")
