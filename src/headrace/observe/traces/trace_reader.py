"""TraceReader: reads the events of a trace of ours, one by one, whoever wrote the file.

A file may come from anywhere. Nothing in it is executed, a line is read only up to a limit, and whatever does not
look like a trace of ours is refused with its line. A file that ends in the middle of an event is read up to there:
its program was killed, or is still running.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

_LONGEST = 1 << 20  # characters of a line
_MOST = 100_000  # names on tracks: whatever is kept of each takes a bounded amount of memory
FORMAT = 1
"""The version of what is written into a trace."""
HOPS = ("received", "emitted", "gpu_started", "gpu_ended")
"""The columns of times of a path's message, each with a time for each operator."""


class TraceError(ValueError):
    """A file that is not a trace of ours, or a damaged one."""


class TraceReader:
    """A trace file.

    Parameters
    ----------
    path
        The file, compressed or not.

    Attributes
    ----------
    header
        What the trace says of its run.
    is_complete
        Whether the last reading reached the end that a finished run writes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_complete = False
        self.header: dict[str, Any] = {}
        first = next(self.events(), None)
        if first is None:
            raise TraceError(f"{path}: no events; it is not a trace of headrace, or its run has only begun")

    def events(self, without: str = "") -> Iterator[dict[str, Any]]:
        """Read the events from the beginning; each has the fields that its kind needs.

        Lines with events of the kinds in `without` are passed over unread, which is much faster.
        """
        self.is_complete = False
        unread = tuple(f'{{"ph":"{kind}",'.encode() for kind in without)
        named = set()
        for number, line in self._lines():
            text = line.strip()
            if number == 1:
                if text != b"[":
                    raise self._error(number, "a trace of headrace begins with a line '['")
            elif text == b"]":
                self.is_complete = True
                return
            elif number == 2 or not line.startswith(unread):
                try:
                    event = json.loads(text.removesuffix(b","), parse_constant=_refuse)
                except (ValueError, RecursionError) as error:
                    if not line.endswith(b"\n"):
                        return  # a part of the last event of a program that was killed
                    raise self._error(number, f"not an event: {error}") from None
                fault = _fault_of(event, is_first=number == 2)
                if not fault:
                    named.add((event["name"], event["pid"], event["tid"]))
                if fault or len(named) > _MOST:
                    raise self._error(number, fault or "more names than a trace of headrace has")
                if number == 2:
                    self.header = event["args"]
                yield event

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        try:
            with _open(self.path) as file:
                for number, line in enumerate(iter(lambda: file.readline(_LONGEST + 1), b""), 1):
                    if len(line) > _LONGEST:
                        raise self._error(number, "a line longer than any event of headrace")
                    yield number, line
        except EOFError:
            return  # compressed, and the end is missing
        except (OSError, zlib.error) as error:
            raise TraceError(f"{self.path}: {getattr(error, 'strerror', None) or error}") from None

    def _error(self, number: int, what: str) -> TraceError:
        return TraceError(f"{self.path}, line {number}: {what}")


def _fault_of(event: Any, is_first: bool) -> str:
    """Return what is wrong with an event; empty if nothing is."""
    if not isinstance(event, dict):
        return "not an event"
    kind, arguments = event.get("ph"), event.setdefault("args", {})
    if is_first:
        if event.get("name") != "headrace" or not isinstance(arguments, dict):
            return "a trace of headrace says so in its first event"
        if arguments.get("format") != FORMAT:
            return f"the format {arguments.get('format')!r:.40} is unknown"
    if not (isinstance(kind, str) and isinstance(event.get("name"), str)):
        return "an event has a kind 'ph' and a 'name'"
    if not all(_is_number(event.get(key)) for key in ("ts", "pid", "tid")):
        return "an event has numbers as 'ts', 'pid' and 'tid'"
    if kind == "X" and not (_is_number(event.get("dur")) and event["dur"] >= 0):
        return "a slice has a duration 'dur' that is not negative"
    if not isinstance(arguments, dict):
        return "the arguments 'args' of an event have names"
    if kind == "b":
        parts, hops = arguments.get("parts_us"), [arguments.get(column) for column in HOPS]
        if not (
            _is_number(arguments.get("latency_us"))
            and isinstance(parts, dict)
            and all(map(_is_number, parts.values()))
            and all(isinstance(column, list) for column in hops)
            and all(value is None or _is_number(value) for column in hops for value in column or ())
        ):
            return "a path lacks its times"
    return ""


def _open(path: Path) -> IO[bytes]:
    with open(path, "rb") as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path, "rb")) if is_compressed else open(path, "rb")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")
