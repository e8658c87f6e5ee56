"""The operators give what OpenCV, Pillow, SciPy, FFmpeg and ONNX's own evaluator give, on random frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.gpu import sim
from headrace.operators import CameraSimOp
from headrace.testing import run_operator
from tests.operators.cases import random
from tests.operators.inference_runs import inference, one_model
from tests.operators.on_device import run_model_on_device, run_on_device
from tests.operators.references import REFERENCES, Reference
from tests.operators.viewing import pictures

SEEDS = range(2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_on_the_host_the_result_is_that_of_another_library(reference: Reference, seed: int) -> None:
    case, expected = reference.made(seed)
    reference.compare(case.on_host(), expected)


@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_on_a_device_the_result_is_that_of_another_library(
    reference: Reference, machine: sim.Machine
) -> None:
    case, expected = reference.made(99)
    reference.compare(run_on_device(case).arrays[0], expected)


def test_the_objects_of_a_simulated_camera_are_found_by_scipy() -> None:
    """A disc that touches no other is a component whose centre is that of the truth."""
    ndimage = pytest.importorskip("scipy.ndimage")
    outcome = run_operator(
        CameraSimOp, width=320, height=240, count=6, frame_rate=2, objects=3, noise=0.0, seed=5
    )
    found = 0
    for number, message in enumerate(outcome["output"]):
        frame = np.asarray(message.get())
        truth = outcome.operator.truth(number)
        still = outcome.operator.truth(number).labels == 0
        assert frame.shape == still.shape
        components, count = ndimage.label(~still)
        for label in range(1, count + 1):
            labels = np.unique(truth.labels[components == label])
            if len(labels) > 1:
                continue
            disc = next(one for one in truth.objects if one.label == labels[0])
            row, column = ndimage.center_of_mass(components == label)
            assert np.hypot(row - disc.y, column - disc.x) < 0.2
            found += 1
    assert found >= 10


# Networks.


@pytest.fixture
def random_models() -> Any:
    """The module that makes random models, or none where its libraries are missing."""
    pytest.importorskip("onnxruntime")
    return pytest.importorskip("tests.operators.random_models")


@pytest.mark.parametrize("seed", range(12))
def test_a_random_model_computes_what_onnx_says(random_models: Any, seed: int, tmp_path: Path) -> None:
    path, batch = random_models.random_model(tmp_path, seed)
    (message,) = inference([{"x": batch}], **one_model(path))
    np.testing.assert_allclose(
        np.asarray(message["y"]), random_models.evaluated(path, batch), **random_models.HOST_TOLERANCE
    )


@pytest.mark.parametrize("seed", range(30, 34))
def test_a_random_model_computes_on_a_device_what_onnx_says(
    random_models: Any, seed: int, tmp_path: Path, machine: sim.Machine
) -> None:
    path, batch = random_models.random_model(tmp_path, seed)
    seen = run_model_on_device(path, batch)
    assert seen.devices == ["cuda:0"]
    np.testing.assert_allclose(
        seen.arrays[0], random_models.evaluated(path, batch), **random_models.HOST_TOLERANCE
    )


# Files.


# The viewer.


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_picture_is_that_of_pillow(seed: int) -> None:
    """A picture of the window's size is drawn as it is; of another size within 1, as Pillow rounds in between."""
    image = pytest.importorskip("PIL.Image")
    source = np.random.default_rng(seed)
    rows, columns = (int(size) for size in source.integers(4, 60, 2))
    data = random(np.uint8, rows, columns, 3, seed=seed)
    layer = [{"name": "", "type": "color"}]
    (drawn,) = pictures([{"": data}], tensors=layer, width=columns, height=rows)
    np.testing.assert_array_equal(drawn[..., :3], data)
    (drawn,) = pictures([{"": data}], tensors=layer, width=61, height=61)
    # Where a picture shrinks, the filters differ.
    expected = np.asarray(image.fromarray(data).resize((61, 61), image.Resampling.BILINEAR))
    assert np.abs(drawn[..., :3].astype(int) - expected).max() <= 1


def away_from_edges(cv2: Any, mask: np.ndarray, distance: int) -> np.ndarray:
    """Return where a mask is the same within so many pixels."""
    kernel = np.ones((2 * distance + 1,) * 2, np.uint8)
    padded = cv2.copyMakeBorder(mask, distance, distance, distance, distance, cv2.BORDER_REPLICATE)
    same = cv2.erode(padded, kernel) == cv2.dilate(padded, kernel)
    return same[distance:-distance, distance:-distance]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["triangles", "ovals", "rectangles", "line_strip"])
def test_a_shape_covers_what_opencv_covers(kind: str, seed: int) -> None:
    """The edges agree within a pixel, and within two where OpenCV rounds the sides of a thick line."""
    cv2 = pytest.importorskip("cv2")
    source = np.random.default_rng(seed)
    width, height = 160, 120
    corners = np.array([[0.2, 0.25], [0.75, 0.7], [0.2, 0.8]]) + source.uniform(-0.1, 0.1, (3, 2))
    corners = corners.astype(np.float32)
    # In OpenCV the middle of the first pixel is 0, and here its corner; four binary digits for parts of a pixel.
    fixed = np.round((corners * (width, height) - 0.5) * 16).astype(np.int32)
    expected = np.zeros((height, width), np.uint8)
    thick = 7
    if kind == "triangles":
        data = corners
        cv2.fillConvexPoly(expected, fixed, 255, shift=4)
    elif kind == "rectangles":
        data = corners[:2]
        cv2.rectangle(expected, fixed[0].tolist(), fixed[1].tolist(), 255, thick, shift=4)
    elif kind == "line_strip":
        data = corners
        cv2.polylines(expected, [fixed], False, 255, thick, shift=4)
    else:
        data = np.array([[0.5, 0.5, 0.6, 0.4]], np.float32)
        centre, axes = (16 * 80 - 8, 16 * 60 - 8), (16 * 48, 16 * 24)
        cv2.ellipse(expected, centre, axes, 0, 0, 360, 255, thick, shift=4)
    layer = [{"name": "it", "type": kind, "line_width": float(thick)}]
    (drawn,) = pictures([{"it": data}], tensors=layer, width=width, height=height)
    clear = away_from_edges(cv2, expected, 1 if kind == "triangles" else 2)
    if kind == "line_strip":  # OpenCV's ends and corners are round
        for corner in fixed:
            joint = np.zeros_like(expected)
            clear &= cv2.circle(joint, corner.tolist(), 32 * thick, 255, -1, shift=4) == 0
    assert expected[clear].any()
    np.testing.assert_array_equal(drawn[..., 0][clear] >= 128, expected[clear] >= 128)
