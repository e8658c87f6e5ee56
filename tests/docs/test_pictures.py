"""Each operator has a picture in the documentation, which the operator still makes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import operators
from headrace_holoscan import ready

Image = pytest.importorskip("PIL.Image")

DOCS = Path(__file__).parents[2] / "docs"
NEEDS = {"inference": ("onnx", "onnxruntime"), "video_file": ("av",)}


@pytest.fixture(scope="module")
def program() -> Any:
    """The program that makes the pictures."""
    sys.path.insert(0, str(DOCS / "programs"))
    try:
        import operator_pictures
    finally:
        sys.path.remove(str(DOCS / "programs"))
    return operator_pictures


def names() -> list[str]:
    return sorted(path.stem for path in (DOCS / "pictures").glob("*.png"))


def test_every_operator_has_a_picture_that_a_page_shows(program: Any) -> None:
    shown = {kind.__name__ for kinds, _ in program.PICTURES.values() for kind in kinds}
    without = {"FeedOp", "ResultsOp", "split_batch"}  # they make no pictures
    assert shown | without == {*operators.__all__, *ready.__all__}
    assert names() == sorted(program.PICTURES)
    pages = "".join(page.read_text() for page in DOCS.glob("*.md"))
    assert [name for name in names() if pages.count(f"(pictures/{name}.png)") != 1] == []


@pytest.mark.parametrize("name", names())
def test_a_picture_is_what_the_operator_makes(name: str, program: Any) -> None:
    """Fonts differ between versions of Pillow, and a file may have a table of colours."""
    for library in NEEDS.get(name, ()):
        pytest.importorskip(library)
    path = DOCS / "pictures" / f"{name}.png"
    assert path.stat().st_size <= program.LARGEST
    made = np.asarray(program.arranged(program.PICTURES[name][1]())).astype(int)
    kept = np.asarray(Image.open(path).convert("RGB")).astype(int)
    assert abs(made.shape[0] - kept.shape[0]) <= 8
    assert abs(made.shape[1] - kept.shape[1]) <= 40
    rows, columns = np.minimum(made.shape, kept.shape)[:2]
    assert np.abs(made[:rows, :columns] - kept[:rows, :columns]).mean() < 4
