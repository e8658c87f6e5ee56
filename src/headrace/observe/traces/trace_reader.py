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
_FORMAT = 1


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
        for number, line in self._lines():
            if number == 1:
                if line.strip() != b"[":
                    raise self._error(number, "a trace of headrace begins with a line '['")
                continue
            if line.startswith(unread) and number > 2:
                continue
            text = line.strip()
            if text == b"]":
                self.is_complete = True
                return
            if text.endswith(b","):
                text = text[:-1]
            elif not line.endswith(b"\n"):
                # Perhaps the last event of a program that was killed; perhaps a part of it.
                try:
                    event = json.loads(text)
                except (ValueError, RecursionError):
                    return
                yield self._checked(number, event)
                return
            try:
                event = json.loads(text, parse_constant=_refuse)
            except (ValueError, RecursionError) as error:
                raise self._error(number, f"not an event: {error}") from None
            yield self._checked(number, event)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        try:
            with _open(self.path) as file:
                number = 0
                while True:
                    line = file.readline(_LONGEST + 1)
                    if not line:
                        return
                    number += 1
                    if len(line) > _LONGEST:
                        raise self._error(number, "a line longer than any event of headrace")
                    yield number, line
        except EOFError:
            return  # compressed, and the end is missing
        except (OSError, zlib.error) as error:
            raise TraceError(
                f"{self.path}: {error.strerror if isinstance(error, OSError) and error.strerror else error}"
            ) from None

    def _checked(self, number: int, event: Any) -> dict[str, Any]:
        if not isinstance(event, dict):
            raise self._error(number, "not an event")
        if number == 2:
            arguments = event.get("args")
            if event.get("name") != "headrace" or not isinstance(arguments, dict):
                raise self._error(number, "a trace of headrace says so in its first event")
            if arguments.get("format") != _FORMAT:
                raise self._error(number, f"the format {arguments.get('format')!r:.40} is unknown")
            self.header = arguments
        kind = event.get("ph")
        if not (isinstance(kind, str) and isinstance(event.get("name"), str)):
            raise self._error(number, "an event has a kind 'ph' and a 'name'")
        if not (
            _is_number(event.get("ts")) and _is_number(event.get("pid")) and _is_number(event.get("tid"))
        ):
            raise self._error(number, "an event has numbers as 'ts', 'pid' and 'tid'")
        if kind == "X" and not (_is_number(event.get("dur")) and event["dur"] >= 0):
            raise self._error(number, "a slice has a duration 'dur' that is not negative")
        arguments = event.setdefault("args", {})
        if not isinstance(arguments, dict):
            raise self._error(number, "the arguments 'args' of an event have names")
        if kind == "b":
            self._check_path(number, arguments)
        return cast("dict[str, Any]", event)

    def _check_path(self, number: int, arguments: dict[str, Any]) -> None:
        parts = arguments.get("parts_us")
        is_right = (
            _is_number(arguments.get("latency_us"))
            and isinstance(parts, dict)
            and all(map(_is_number, parts.values()))
        )
        for column in ("received", "emitted", "gpu_started", "gpu_ended"):
            values = arguments.get(column)
            is_right = (
                is_right
                and isinstance(values, list)
                and all(value is None or _is_number(value) for value in values)
            )
        if not is_right:
            raise self._error(number, "a path lacks its times")

    def _error(self, number: int, what: str) -> TraceError:
        return TraceError(f"{self.path}, line {number}: {what}")


def _open(path: Path) -> IO[bytes]:
    with open(path, "rb") as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path, "rb")) if is_compressed else open(path, "rb")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")
