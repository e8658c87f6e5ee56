"""Recordings with false numbers are errors, and cost no memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from headrace.video import VideoFileError
from headrace_holoscan.recordings import EntityReader, EntityWriter
from tests.oracle.programs.operators import BY_HEADRACE, BY_HEADRACE_INDEX, RECORDED

LARGEST = 2**31 - 1
TENSOR = 40 + 32  # where the header of the first tensor begins, whose name is empty


@contextmanager
def little_memory() -> Iterator[None]:
    """Fail if what is inside takes more than a few megabytes."""
    tracemalloc.start()
    try:
        yield
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 20_000_000


def put(folder: Path, index: bytes = BY_HEADRACE_INDEX, entities: bytes = BY_HEADRACE) -> None:
    (folder / "clip.gxf_index").write_bytes(index)
    (folder / "clip.gxf_entities").write_bytes(entities)


@pytest.mark.parametrize(
    ("offset", "form", "values"),
    [
        (24, "<Q", [1 << 60]),  # components
        (24, "<Q", [0]),
        (64, "<Q", [1 << 60]),  # bytes of the name
        (TENSOR + 4, "<i", [-1]),  # the element type
        (TENSOR + 8, "<Q", [1 << 40]),  # bytes per element
        (TENSOR + 16, "<I", [2**32 - 1]),  # the rank
        (TENSOR + 20, "<8i", [LARGEST] * 8),  # dimensions
        (TENSOR + 20, "<3i", [LARGEST, 1, 1]),
        (TENSOR + 20, "<3i", [0, LARGEST, LARGEST]),
        (TENSOR + 20, "<3i", [-2, -4, 3]),
        (TENSOR + 52, "<3Q", [2**63, 2**62, 1]),  # strides
    ],
)
def test_a_false_number_in_a_recording_is_an_error_and_costs_no_memory(
    offset: int, form: str, values: list[int], tmp_path: Path
) -> None:
    damaged = bytearray(BY_HEADRACE)
    struct.pack_into(form, damaged, offset, *values)
    put(tmp_path, entities=bytes(damaged))
    with little_memory(), EntityReader(tmp_path, "clip") as reader:
        with pytest.raises(VideoFileError, match=r"clip\.gxf_entities, entity 0, byte \d+: "):
            reader[0]
        # The entities behind it are found by the index.
        np.testing.assert_array_equal(reader[1].tensors["größe"], RECORDED[1]["größe"])


def test_a_stride_that_is_never_taken_may_be_anything(tmp_path: Path) -> None:
    with EntityWriter(tmp_path, "clip") as writer:
        writer.write({"": np.arange(6, dtype=np.uint8).reshape(1, 6)}, log_time=0)
    path = tmp_path / "clip.gxf_entities"
    content = bytearray(path.read_bytes())
    struct.pack_into("<Q", content, TENSOR + 52, 2**64 - 1)
    path.write_bytes(content)
    with EntityReader(tmp_path, "clip") as reader:
        np.testing.assert_array_equal(reader[0].tensors[""], [[0, 1, 2, 3, 4, 5]])


@pytest.mark.parametrize("line", [(0, 1 << 62, 0), (0, 212, 1 << 62), (2**64 - 1, 2**64 - 1, 2**64 - 1)])
def test_a_false_line_of_an_index_costs_no_memory_and_no_frame(line: tuple[int, ...], tmp_path: Path) -> None:
    put(tmp_path, index=struct.pack("<3Q", *line))
    with little_memory(), EntityReader(tmp_path, "clip") as reader:
        assert reader.problems
        assert len(list(reader)) == len(RECORDED)
