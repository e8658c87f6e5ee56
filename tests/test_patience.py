"""No test depends on how fast the machine is: none sleeps, none sets a timer, none gives a thread a few seconds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

# What waits for another thread or process, with the place of its limit.
WAITS = {
    "wait": 0,
    "join": 0,
    "result": 0,
    "communicate": 0,
    "wait_for": 1,
    "acquire": 1,
    "run": 99,
    "get": 99,
}
# What counts frames or virtual time instead of seconds.
OF_TESTS = {"machine", "world", "ahead"}
CLOCKS = {"monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns", "time_ns"}
# A source without these has no limit: reading all of them as trees would take seconds.
MENTION = re.compile(
    r"\b(wait|join|result|communicate)\([\s(]*[\d.]|\b(sleep|Timer|wait_for|acquire)\(|\btimeout\s*=[\s(]*[\d.]"
    rf"|\b({'|'.join(sorted(CLOCKS))})\("
)

# Asking again and again for what no event announces, a compute that takes time, and a call that is refused.
EXCEPTIONS = {
    ("harness/threads.py", "threading.Event().wait(0.002)"),
    ("_web/browser.py", "time.sleep(0.02)"),
    ("_web/clients.py", "asyncio.sleep(0.001)"),
    ("interleavings/controller.py", "self._finished.acquire(timeout=1.0)"),
    ("gpu/test_streams.py", "bench.device.create_stream().wait(5)"),
}

# Folders of programs that are no part of the suite.
PROGRAMS = (
    "oracle/programs",
    "oracle/record.py",
    "oracle/on_gpu.py",
    "random_programs/__main__.py",
    "loaded.py",
)


def limits_in(source: str) -> list[str]:
    """Return the calls in a source that sleep, set a timer, or wait for so many seconds."""
    if not MENTION.search(source):
        return []
    return [text for node in ast.walk(ast.parse(source)) for text in _found(node)]


def _found(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in {"sleep", "Timer"} and _module(node.func) in {"time", "threading", "asyncio", ""}:
            return [ast.unparse(node)] if any(_is_seconds(each) for each in node.args) else []
        place = WAITS.get(name)
        if place is not None and isinstance(node.func, ast.Attribute) and _module(node.func) not in OF_TESTS:
            given = [each.value for each in node.keywords if each.arg == "timeout"] + node.args[
                place : place + 1
            ]
            if any(_is_seconds(each) for each in given):
                return [ast.unparse(node)]
    if isinstance(node, ast.Compare) and any(isinstance(each, (ast.Lt, ast.LtE)) for each in node.ops):
        # `time.monotonic() - began < 2`: a limit from above. That something takes at least so long may be said.
        first = node.left
        if isinstance(first, ast.BinOp) and isinstance(first.op, ast.Sub) and _reads_a_clock(first.left):
            return [ast.unparse(node)]
    return []


def _module(function: ast.expr) -> str:
    return getattr(function.value, "id", "?") if isinstance(function, ast.Attribute) else ""


def _is_seconds(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in {int, float} and node.value > 0


def _reads_a_clock(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS


def files() -> list[Path]:
    found = [file for file in TESTS.rglob("*.py") if not str(file.relative_to(TESTS)).startswith(PROGRAMS)]
    return sorted(found)


def test_no_test_sleeps_or_gives_another_thread_a_few_seconds() -> None:
    found = {
        f"{file.relative_to(TESTS)}: {text}"
        for file in files()
        for text in limits_in(file.read_text())
        if (str(file.relative_to(TESTS)), text) not in EXCEPTIONS
    }
    assert not found


def test_every_exception_is_still_there() -> None:
    for name, text in EXCEPTIONS:
        assert text in limits_in((TESTS / name).read_text()), (name, text)


@pytest.mark.parametrize(
    "source",
    [
        "time.sleep(1)",
        "threading.Timer(0.1, f).start()",
        "done.wait(10)",
        "done.wait(timeout=0.5)",
        "thread.join(5)",
        "future.result(timeout=20)",
        "lock.acquire(True, 2)",
        "subprocess.run(['x'], timeout=30)",
        "asyncio.wait_for(it, 20)",
        "assert time.monotonic() - began < 3",
    ],
)
def test_a_limit_is_found(source: str) -> None:
    assert limits_in(source)


@pytest.mark.parametrize(
    "source",
    [
        "done.wait(PATIENCE)",
        "done.wait()",
        "', '.join(words)",
        "thread.join(PATIENCE)",
        "assert time.monotonic() - began >= 3",
        "machine.sleep(1)",
    ],
)
def test_what_depends_on_no_speed_is_not(source: str) -> None:
    assert not limits_in(source)
