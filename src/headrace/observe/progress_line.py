"""The progress line: what a run does, in one line on a terminal or in a notebook (``HEADRACE_PROGRESS=1``).

A thread reads the counts of the run twice a second (`Fragment.progress`), which takes no lock, and rewrites one
line of stderr, or the output of a cell. Nothing is written where stderr is neither. If the end of the run is known,
the line begins with a bar and the time that is left.

While the line is shown, stdout and stderr are replaced: what the program prints would otherwise begin in the middle
of the line. The replacement erases the line first; the next turn of the thread shows it again, unless what the
program printed does not end with a newline. `print` writes a text and its newline one after the other.

Decided against: rich's `Progress`. It writes what goes to stdout to stderr, wraps long lines, and ends a question
of `input` with a newline.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.core.outcome import progress_of
from headrace.core.values import is_set
from headrace.observe.figures.distribution import per_second

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.outcome import Progress

PERIOD = 0.5
"""The seconds between two updates of the line."""
_ERASE = "\r\x1b[K"
_BAR = 10  # cells
# Held by the run that has the line: there is one terminal.
_LINE = threading.Lock()


def is_wanted() -> bool:
    """Return whether the environment asks for the line, and somebody can see it."""
    return is_set("HEADRACE_PROGRESS") and (_is_terminal(sys.stderr) or _is_notebook())


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
    line = ProgressLine(lambda: progress_of(fragment), lambda: _latency(fragment))
    screen = _Screen(sys.stderr) if _is_terminal(sys.stderr) else _Cell()
    ended = threading.Event()

    def work() -> None:
        while not waits.wait(ended, PERIOD):
            screen.show(line.update(time.monotonic(), shutil.get_terminal_size().columns))

    line.update(time.monotonic(), 80)  # the beginning of the first interval
    thread = threading.Thread(target=work, name="progress line", daemon=True)
    streams = {name: getattr(sys, name) for name in ("stderr", "stdout") if _is_terminal(getattr(sys, name))}
    replaced = {name: _Erasing(stream, screen) for name, stream in streams.items()}
    for name, stream in replaced.items():
        setattr(sys, name, stream)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        waits.join(thread)
        for name, original in streams.items():
            if getattr(sys, name) is replaced[name]:  # the program may have replaced it as well
                setattr(sys, name, original)
        screen.erase()
        _write_summary(fragment, sys.stderr)


def _latency(fragment: Composition) -> float | None:
    """Return the mean latency of the slowest path so far in seconds, if the run is tracked."""
    from headrace.observe.figures.run_figures import ShowsFigures

    watchers = getattr(getattr(fragment._headrace.engine, "observer", None), "watchers", ())
    watchers = (*watchers, *fragment._headrace.watchers_elsewhere())
    shown = [each for each in watchers if isinstance(each, ShowsFigures) and each.wants_statistics]
    if not shown:
        return None
    return max((path.latency.mean / 1e9 for path in shown[0].snapshot().paths), default=None)


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
        before, seconds = self._before, now - self._at
        self._before, self._at = progress, now
        self._began = now if self._began is None else self._began
        elapsed = now - self._began
        parts = [str(timedelta(seconds=int(elapsed))), progress.application]
        if progress.fraction:
            parts[0] += f" of {timedelta(seconds=round(elapsed / progress.fraction))}"
        if progress.fraction is not None:
            parts.insert(0, f"{'━' * int(_BAR * progress.fraction):╌<{_BAR}} {progress.fraction:4.0%}")
        if not progress.computes:
            parts.append("starting")
        elif before is not None and seconds > 0:
            rates = {
                name: per_second(count - before.computes.get(name, 0), seconds * 1e9)
                for name, count in progress.computes.items()
            }
            parts.append(f"{_rate(sum(rates.values()))} computes/s")
            sources = {name: rates[name] for name in progress.sources if name in rates}
            if len(sources) > 2:
                sources = {f"{len(sources)} sources": sum(sources.values())}
            parts += [f"{name} {_rate(rate)}/s" for name, rate in sources.items()]
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
        self.stream = stream
        # Reentrant: a signal handler or a finalizer may print while this thread writes the line.
        self._lock = threading.RLock()
        self.is_shown = False
        self._is_in_use = False  # the program has printed the beginning of a line

    def show(self, text: str) -> None:
        """Write the line in place of the last one, but not in place of the program's; without a text, erase it."""
        with self._lock:
            if self._is_in_use:
                return
            self.stream.write(_ERASE + text)
            self.stream.flush()
            self.is_shown = bool(text)

    def erase(self) -> None:
        """Erase the line, if it is there."""
        if self.is_shown:
            self.show("")

    def write(self, stream: Any, text: str) -> int:
        """Erase the line and write what the program prints; the line is not written in between."""
        with self._lock:
            self.erase()
            written: int = stream.write(text)
            if text:
                self._is_in_use = not text.endswith("\n")
            return written


class _Cell(_Screen):
    """The line below the cell of a notebook."""

    def __init__(self) -> None:
        import IPython.display

        super().__init__(sys.stderr)
        self._display: Any = IPython.display
        self._handle = self._display.display(self._display.HTML(""), display_id=True)

    def show(self, text: str) -> None:
        """Show the line in place of the last one."""
        self._handle.update(self._display.HTML(escape(text)))
        self.is_shown = bool(text)


class _Erasing:
    """A stream of the program on the terminal; writing to it erases the line first."""

    def __init__(self, stream: Any, screen: _Screen) -> None:
        self._stream = stream
        self._screen = screen

    def write(self, text: str) -> int:
        """Erase the line and write `text`."""
        return self._screen.write(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _write_summary(fragment: Composition, stream: Any) -> None:
    """Write how the run ended where the line was, unless the log or an exception says it."""
    import logging

    outcome = fragment._headrace.outcome
    if outcome is None or outcome.starved or outcome.errors:
        return
    if not logging.getLogger("headrace.run").isEnabledFor(logging.INFO):
        stream.write("".join(f"{line}\n" for line in (outcome, *outcome.segments)))
        stream.flush()


def _is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    found = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return getattr(found() if found is not None else None, "kernel", None) is not None


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
