"""Who is late, and who is not."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.core.values import nanoseconds
from tests.harness.processes import run_python
from tests.jitter import late


def names_of_the_late(lateness: late.Lateness, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Make many calls on the main thread and on another, and return which of them slept."""
    slept: set[str] = set()

    def sleep(seconds: float) -> None:
        assert seconds <= 2 * late.LONGEST
        slept.add(threading.current_thread().name)

    def work() -> None:
        for _ in range(200):
            nanoseconds("1ms", "here")

    monkeypatch.setattr(late, "_sleep", sleep)
    lateness._at_call = 0.05
    before = sys.getprofile(), threading.getprofile()
    try:
        lateness.begin()
        other = threading.Thread(target=work, name="other")
        other.start()
        work()
        other.join()
        lateness.end()
        work()
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])  # type: ignore[arg-type]
    return slept


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("all", {"MainThread", "other"}), ("main", {"MainThread"}), ("others", {"other"})],
)
def test_the_threads_of_a_mode_are_late_and_no_others(
    mode: str, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert names_of_the_late(late.Lateness(1, mode), monkeypatch) == expected


@pytest.mark.parametrize(("value", "is_late"), [("7:main", True), ("", False)])
def test_a_program_is_late_if_the_environment_says_so(value: str, is_late: bool) -> None:
    site = Path(late.__file__).with_name("site")
    done = run_python(
        "-c", "import sys; print(sys.getprofile() is not None)", LATE=value, PYTHONPATH=str(site)
    )
    assert done.stdout.split() == [str(is_late)], done.stderr


def test_our_code_is_late_where_it_is_installed_too_and_no_other() -> None:
    kinds = ("/a/site-packages/headrace/waits.py", "/src/headrace/waits.py", "/lib/python3.14/threading.py")
    assert [late._kind_of(file) for file in kinds] == [1, 1, 2]
    assert late._kind_of("/headrace/.venv/lib/site-packages/numpy/tests/__init__.py") == 0


def test_a_setting_names_a_seed_and_perhaps_a_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(late.VARIABLE, raising=False)
    for text, expected in (("", None), ("7", (7, None)), ("7:main", (7, "main"))):
        monkeypatch.setenv("HEADRACE_JITTER", text)
        assert late.read_setting() == expected
    monkeypatch.setenv("HEADRACE_JITTER", "7:mine")
    with pytest.raises(ValueError, match="7:mine: the mode must be one of all, main, others, some"):
        late.read_setting()
