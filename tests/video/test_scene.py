"""Scenes and sensors: pure functions of time, whose truth is what their pictures show."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.video import BayerSensor, Scene
from headrace.video.scene import BAYER_PATTERNS


@pytest.mark.parametrize("seed", range(5))
def test_the_truth_is_what_the_picture_shows(seed: int) -> None:
    scene = Scene(200, 120, objects=1, seed=seed)
    for seconds in (0.0, 0.7, 12.34):
        (disc,) = scene.objects(seconds)
        labels = scene.labels(seconds)
        rows, columns = np.nonzero(labels)
        assert abs(columns.mean() - disc.x) < 0.2
        assert abs(rows.mean() - disc.y) < 0.2
        assert abs(labels.sum() / (np.pi * disc.radius**2) - 1) < 0.05
        changed = (scene.rgb(seconds) != scene.background).any(-1)
        np.testing.assert_array_equal(changed, labels == 1)
        assert (scene.rgb(seconds)[labels == 1] == disc.color).all()


def test_objects_stay_in_the_picture_and_the_later_ones_are_in_front() -> None:
    scene = Scene(80, 60, objects=20, seed=4)
    for seconds in np.linspace(0, 30, 100):
        for disc in scene.objects(seconds):
            assert disc.radius - 1 <= disc.x <= 80 - disc.radius
            assert disc.radius - 1 <= disc.y <= 60 - disc.radius
    seconds = 1.0
    covered = np.zeros((60, 80), int)
    for disc in scene.objects(seconds):
        inside = np.hypot(np.arange(80) - disc.x, np.arange(60)[:, None] - disc.y) <= disc.radius
        covered[inside] = disc.label
    np.testing.assert_array_equal(covered, scene.labels(seconds))


@pytest.mark.parametrize("position", BAYER_PATTERNS)
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_a_sensor_sees_one_colour_of_each_pixel(position: int, dtype: str) -> None:
    scene = Scene(64, 48, seed=3)
    sensor = BayerSensor(scene, 10, dtype=dtype, grid_position=position)
    frame, truth = sensor.bayer(7), sensor.truth(7)
    assert (frame.shape, frame.dtype) == ((48, 64), np.dtype(dtype))
    assert truth.seconds == 0.7
    scale = 1 if dtype == "uint8" else 257
    name = BAYER_PATTERNS[position]
    for place, colour in enumerate(name):
        row, column = divmod(place, 2)
        seen = truth.rgb[row::2, column::2, "RGB".index(colour)].astype(int) * scale
        np.testing.assert_array_equal(frame[row::2, column::2], seen)


@pytest.mark.parametrize(("dtype", "scale"), [("uint8", 255), ("uint16", 65535)])
def test_noise_has_the_stated_size(dtype: str, scale: int) -> None:
    scene = Scene(256, 256, seed=3)
    sensor = BayerSensor(scene, 10, dtype=dtype, noise=0.02, shot_noise=0.001, exposure=0.8)
    frames = np.stack([sensor.bayer(0, noisy=True).astype(float) for _ in range(1)])
    clean = sensor.bayer(0, noisy=False).astype(float)
    error = (frames[0] - clean) / scale
    expected = np.sqrt(0.02**2 + 0.001 * clean / scale)
    assert abs(error.mean()) < 0.001
    assert abs((error / expected).std() - 1) < 0.05


def test_noise_differs_from_frame_to_frame_and_is_the_same_in_every_run() -> None:
    scene = Scene(64, 48, objects=0)
    one, same = (BayerSensor(scene, 10, noise=0.02, seed=5) for _ in range(2))
    np.testing.assert_array_equal(one.bayer(3), same.bayer(3))
    assert (one.bayer(3) != one.bayer(4)).mean() > 0.5
    assert (one.bayer(3) != BayerSensor(scene, 10, noise=0.02, seed=6).bayer(3)).mean() > 0.5


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"dtype": "float32"}, "'uint8' or 'uint16', not 'float32'"),
        ({"grid_position": 4}, "one of 0 BGGR, 1 RGGB, 2 GBRG, 3 GRBG; not 4"),
        ({"noise": -1.0}, "noise must be 0 or more"),
        ({"exposure": float("nan")}, "exposure must be 0 or more"),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        BayerSensor(Scene(64, 48), 10, **settings)


def test_a_wrong_size_is_refused() -> None:
    with pytest.raises(ValueError, match="even width and height, not 63 by 48"):
        BayerSensor(Scene(63, 48), 10)
    with pytest.raises(ValueError, match="at least 2 by 2"):
        Scene(0, 48)
    with pytest.raises(ValueError, match="0 to 64 objects"):
        Scene(64, 48, objects=65)
    with pytest.raises(ValueError, match="more than 0"):
        BayerSensor(Scene(64, 48), 0)
