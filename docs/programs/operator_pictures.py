"""Make the picture of docs/operators.md: a scene, its mosaic, and what the operators make of it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from penstock.operators import BayerDemosaicOp, FormatConverterOp, SegmentationPostprocessorOp
from penstock.testing import run_operator

SIZE = 240


def scene() -> np.ndarray:
    """Return a colour picture: discs before a gradient."""
    y, x = np.mgrid[:SIZE, :SIZE] / SIZE
    picture = np.stack([60 + 80 * x, 40 + 60 * y, 120 - 60 * x], axis=-1)
    for row, column, radius, colour in (
        (0.35, 0.35, 0.22, (220, 60, 50)),
        (0.62, 0.6, 0.26, (60, 190, 90)),
        (0.3, 0.75, 0.12, (240, 210, 80)),
    ):
        distance = np.hypot(y - row, x - column)
        inside = distance < radius
        shade = (1 - 0.6 * distance / radius)[..., None] * np.array(colour)
        picture[inside] = shade[inside]
    stripes = (np.sin(np.hypot(y - 1, x) * 150) > 0) & (y > 0.72) & (x < 0.34)
    picture[stripes] = 255
    return picture.round().astype(np.uint8)


def only(kind: Any, frame: np.ndarray, **params: Any) -> np.ndarray:
    """Return what an operator makes of a frame."""
    ((message,),) = run_operator(kind, inputs=[frame], **params).values()
    return np.asarray(message.get())


def panels() -> dict[str, np.ndarray]:
    """Return the pictures with their titles."""
    truth = scene()
    mosaic = np.zeros((SIZE, SIZE), np.uint8)
    samples = np.zeros_like(truth)
    for row, column, channel in ((0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 2)):  # RGGB
        place = (slice(row, None, 2), slice(column, None, 2))
        mosaic[place] = truth[(*place, channel)]
        samples[(*place, channel)] = mosaic[place]
    colour = only(BayerDemosaicOp, mosaic, bayer_grid_pos=1)
    found = {"Bayer mosaic": samples, "BayerDemosaicOp": colour}
    for mode, name in ((1, "nearest"), (4, "cubic"), (17, "Lanczos 3")):
        small = only(
            FormatConverterOp, colour, out_dtype="rgb888", resize_height=60, resize_width=60, resize_mode=mode
        )
        found[f"60 by 60, {name}"] = small.repeat(4, axis=0).repeat(4, axis=1)
    scores = only(FormatConverterOp, colour, out_dtype="float32")
    classes = only(SegmentationPostprocessorOp, scores)[..., 0]
    palette = np.array([[200, 80, 80], [80, 170, 100], [70, 90, 150]], np.uint8)
    return {**found, "SegmentationPostprocessorOp": palette[classes]}


def main(path: str) -> None:
    from PIL import Image, ImageDraw

    gap, title = 16, 22
    shown = panels()
    canvas = Image.new("RGB", (3 * (SIZE + gap) + gap, 2 * (SIZE + gap + title) + gap), "white")
    draw = ImageDraw.Draw(canvas)
    for number, (name, picture) in enumerate(shown.items()):
        left = gap + number % 3 * (SIZE + gap)
        top = gap + number // 3 * (SIZE + gap + title)
        draw.text((left, top), name, fill="black")
        canvas.paste(Image.fromarray(picture), (left, top + title))
    canvas.save(path, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "operators.png")
