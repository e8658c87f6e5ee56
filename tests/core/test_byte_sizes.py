from __future__ import annotations

from typing import Any

import pytest

from headrace.core.values import byte_size, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16MB", 16 << 20),
        ("16 MB", 16 << 20),
        (" 1.5 GB ", 3 << 29),
        ("100", 100),
        ("100B", 100),
        ("2kb", 2048),
        (".5KB", 512),
        ("1TB", 1 << 40),
        (4096, 4096),
        ("9007199254740993B", 9007199254740993),  # which is not a float
    ],
)
def test_sizes_are_read_as_people_write_them(text: Any, size: int) -> None:
    assert byte_size(text, "size") == size


@pytest.mark.parametrize("text", ["", "MB", "1.2.3MB", "16 XB", "16MiB", "-4MB", "1e6", "16 MB of it"])
def test_text_that_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"'pool': size must be a size such as '16MB'.*not"):
        byte_size(text, "'pool': size")


@pytest.mark.parametrize("value", [1.5, None, True, b"16MB"])
def test_what_is_no_size_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="must be a size such as"):
        byte_size(value, "size")


def test_a_size_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="block_size must be at least 1 B, not 0"):
        byte_size(0, "block_size", 1)
    assert byte_size(1, "block_size", 1) == 1


def test_sizes_are_written_as_people_read_them() -> None:
    assert [size_text(size) for size in (0, 512, 4 << 20, 3 << 29, 1 << 40)] == [
        "0 B",
        "512 B",
        "4 MB",
        "1.5 GB (1610612736 bytes)",
        "1 TB",
    ]
