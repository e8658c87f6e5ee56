"""The progress line: what a run does, in one line on a terminal (``HEADRACE_PROGRESS=1``).

A thread reads the counts of the run twice a second (`Fragment.progress`), which takes no lock, and rewrites one
line of stderr. Nothing is written where stderr is no terminal.

While the line is shown, stdout and stderr are replaced: what the program prints would otherwise begin in the middle
of the line. The replacement erases the line first; the next turn of the thread shows it again.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.core.booleans import flag
from headrace.core.progress import progress_of

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.progress import Progress

PERIOD = 0.5
"""The seconds between two updates of the line."""
_ERASE = "\r\x1b[K"
# Held by the run that has the line: there is one terminal.
_LINE = threading.Lock()


def is_wanted() -> bool:
    """Return whether the environment asks for the line, and somebody can see it."""
    choice = os.environ.get("HEADRACE_PROGRESS", "")
    try:
        if not choice.strip() or not flag(choice):
            return False
    except ValueError as error:
        raise ValueError(f"HEADRACE_PROGRESS={choice}: {error}") from None
    return _is_terminal(sys.stderr)


@contextmanager
def shown_progress(fragment: Composition) -> Iterator[None]:
    """Show the line of a run for the duration of a ``with`` block; of several runs, the first has the line."""
    if not _LINE.acquire(blocking=False):
        yield
        return
    try:
        with _line_of(fragment):
            yield
    finally:
        _LINE.release()


@contextmanager
def _line_of(fragment: Composition) -> Iterator[None]:
    stderr, stdout = sys.stderr, sys.stdout
    line = ProgressLine(lambda: progress_of(fragment), lambda: _latency(fragment))
    screen = _Screen(stderr)
    ended = threading.Event()

    def work() -> None:
        while not waits.wait(ended, PERIOD):
            screen.show(line.update(time.monotonic(), shutil.get_terminal_size().columns))

    line.update(time.monotonic(), 80)  # the beginning of the first interval
    thread = threading.Thread(target=work, name="progress line", daemon=True)
    replaced: dict[str, Any] = {"stderr": _Erasing(stderr, screen)}
    if _is_terminal(stdout):
        replaced["stdout"] = _Erasing(stdout, screen)
    for name, stream in replaced.items():
        setattr(sys, name, stream)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        waits.join(thread)
        for name, original in (("stderr", stderr), ("stdout", stdout)):
            if getattr(sys, name) is replaced.get(name):  # the program may have replaced it as well
                setattr(sys, name, original)
        screen.erase()
        _write_summary(fragment, stderr)


def _latency(fragment: Composition) -> float | None:
    """Return the mean latency of the slowest path so far in seconds, if the run is tracked."""
    from headrace.observe.figures.statistics_watcher import StatisticsWatcher

    watchers = getattr(getattr(fragment._engine, "observer", None), "watchers", ())
    tracked = next((watcher for watcher in watchers if isinstance(watcher, StatisticsWatcher)), None)
    if tracked is None:
        return None
    return max((path.latency.mean / 1e9 for path in tracked.snapshot().paths), default=None)


class ProgressLine:
    """The text of the line.

    Parameters
    ----------
    read
        Returns the progress of the run.
    latency
        Returns the latency from a source to a sink in seconds, or None if nobody measures it.
    """

    def __init__(self, read: Callable[[], Progress], latency: Callable[[], float | None]) -> None:
        self._read = read
        self._latency = latency
        self._began: float | None = None
        self._at = 0.0
        self._before: Progress | None = None

    def update(self, now: float, columns: int) -> str:
        """Return the line for the time `now`, in seconds, with rates since the last call."""
        progress = self._read()
        before, since = self._before, self._at
        self._before, self._at = progress, now
        self._began = now if self._began is None else self._began
        parts = [_time(now - self._began), progress.application]
        if before is not None and now > since and progress.computes:
            seconds = now - since
            done = {
                name: max(count - before.computes.get(name, 0), 0)
                for name, count in progress.computes.items()
            }
            parts.append(f"{_rate(sum(done.values()) / seconds)} computes/s")
            sources = [name for name in progress.sources if name in done]
            if 0 < len(sources) <= 2:
                parts += [f"{name} {_rate(done[name] / seconds)}/s" for name in sources]
            elif sources:
                parts.append(
                    f"{len(sources)} sources {_rate(sum(done[name] for name in sources) / seconds)}/s"
                )
        elif not progress.computes:
            parts.append("starting")
        latency = self._latency()
        if latency is not None:
            parts.append(f"latency {latency * 1e3:.3g} ms")
        if dropped := sum(progress.dropped.values()):
            parts.append(f"{dropped:,} dropped")
        text = "  ".join(parts)
        return text if len(text) < columns else text[: max(columns - 2, 0)] + "…"


class _Screen:
    """The line on the terminal, and whether it is there."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        # Reentrant: a signal handler or a finalizer may print while this thread writes the line.
        self._lock = threading.RLock()
        self.is_shown = False

    def show(self, text: str) -> None:
        """Write the line in place of the last one."""
        with self._lock:
            self._stream.write(f"{_ERASE}{text}")
            self._stream.flush()
            self.is_shown = True

    def erase(self) -> None:
        """Erase the line, if it is there."""
        if self.is_shown:
            with self._lock:
                self._stream.write(_ERASE)
                self._stream.flush()
                self.is_shown = False


class _Erasing:
    """A stream of the program on the terminal; writing to it erases the line first."""

    def __init__(self, stream: Any, screen: _Screen) -> None:
        self._stream = stream
        self._screen = screen

    def write(self, text: str) -> int:
        """Erase the line and write `text`."""
        self._screen.erase()
        written: int = self._stream.write(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _write_summary(fragment: Composition, stream: Any) -> None:
    """Write how the run ended where the line was, unless the log or an exception says it."""
    import logging

    outcome = fragment.outcome
    if outcome is None or outcome.starved or outcome.errors:
        return
    if not logging.getLogger("headrace.run").isEnabledFor(logging.INFO):
        stream.write("".join(f"{line}\n" for line in (outcome, *outcome.segments)))
        stream.flush()


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False


def _time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
