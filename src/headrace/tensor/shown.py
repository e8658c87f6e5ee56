"""A tensor in a notebook: its description and its elements; a picture, if it looks like one."""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np

from headrace import gpu, notebook
from headrace.gpu.stream_handle import LEGACY_DEFAULT_HANDLE
from headrace.tensor.copies import read_on_host
from headrace.tensor.tensor import Tensor

_MOST_BYTES = 1 << 26  # of a tensor whose elements are shown
_WIDEST = 640  # pixels


def tensor_html(tensor: Tensor) -> str:
    """Return HTML of a tensor. A tensor on a device is copied to the host, after the work that it waits for."""
    text = notebook.preformatted(repr(tensor))
    if tensor.nbytes > _MOST_BYTES:
        return text
    try:
        elements = _elements(tensor)
    except Exception as error:  # NumPy has no such type, or the device failed
        return text + notebook.paragraph(f"its elements cannot be shown: {error}")
    if _is_picture(elements) and find_spec("PIL") is not None:
        return text + notebook.picture(_as_png(elements), "image/png", repr(tensor))
    return text + notebook.preformatted(np.array2string(elements, threshold=100, edgeitems=3))


def _elements(tensor: Tensor) -> np.ndarray[Any, Any]:
    if tensor.device.is_host:
        return np.asarray(tensor)
    tensor._order(LEGACY_DEFAULT_HANDLE)
    (array,) = read_on_host([tensor], gpu.StreamHandle(gpu.LEGACY_DEFAULT_STREAM))
    return array


def _is_picture(array: np.ndarray[Any, Any]) -> bool:
    """Return whether an array has rows and columns of at least 8 pixels, of one, three or four bytes each."""
    return (
        array.dtype == np.uint8
        and array.ndim in (2, 3)
        and min(array.shape[:2]) >= 8
        and array.shape[2:] in ((), (1,), (3,), (4,))
    )


def _as_png(array: np.ndarray[Any, Any]) -> bytes:
    from PIL import Image

    image = Image.fromarray(array.squeeze(-1) if array.shape[2:] == (1,) else array)
    image.thumbnail((_WIDEST, _WIDEST))
    file = BytesIO()
    image.save(file, "png")
    return file.getvalue()
