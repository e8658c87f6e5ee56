"""A strict reader of trace files: it sorts and binds events as Perfetto's importer does."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.observe import TraceWriter, watch
from tests.harness import App, MakeScheduler, greedy

NEEDED = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "s": {"name", "cat", "pid", "tid", "ts", "id"},
    "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
    "b": {"name", "cat", "pid", "tid", "ts", "id2", "args"},
    "e": {"name", "cat", "pid", "tid", "ts", "id2"},
    "i": {"name", "cat", "pid", "tid", "ts", "s"},
    "C": {"name", "pid", "tid", "ts", "args"},
}


class Trace:
    """The events of a trace, checked.

    Attributes
    ----------
    groups, tracks
        The names of groups by number, and of tracks by group and number.
    arrows
        Pairs of slices: where an arrow begins and where it ends.
    """

    def __init__(self, events: list[dict[str, Any]], is_cut: bool = False) -> None:
        self.events = events
        self._is_cut = is_cut
        self.groups: dict[int, str] = {}
        self.tracks: dict[tuple[int, int], str] = {}
        self.arrows: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for event in events:
            assert NEEDED[event["ph"]] <= set(event), event
            assert event["ts"] >= 0, event
            if event["name"] == "process_name":
                self.groups[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                self.tracks[event["pid"], event["tid"]] = event["args"]["name"]
        self._check_names()
        self._bind()

    def of(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the events of a kind with these fields."""
        return [
            event
            for event in self.events
            if event["ph"] == kind and all(event[name] == value for name, value in fields.items())
        ]

    @property
    def header(self) -> dict[str, Any]:
        return self.of("M", name="headrace")[0]["args"]

    def track_of(self, event: dict[str, Any]) -> str:
        """Return the names of the group and track of a slice."""
        return f"{self.groups[event['pid']]} / {self.tracks[event['pid'], event['tid']]}"

    def levels(self, name: str) -> list[tuple[float, int]]:
        """Return the values of a counter, in the order of the file."""
        return [(event["ts"], event["args"]["messages"]) for event in self.of("C", name=name)]

    @property
    def latencies(self) -> dict[str, list[float]]:
        """The latencies of the messages of each path, in microseconds."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for event in self.of("b", cat="path"):
            found[event["name"]].append(event["args"]["latency_us"])
        return dict(found)

    def _check_names(self) -> None:
        for event in self.events:
            if event["ph"] == "X":
                assert (event["pid"], event["tid"]) in self.tracks, event
            assert event["pid"] in self.groups, event
        tracks = [track for _, track in self.tracks]
        assert len(set(tracks)) == len(tracks), "a viewer might confuse tracks of two groups"

    def _bind(self) -> None:
        """Put slices on their tracks and bind arrows to them, in the order of time."""
        open_slices: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        started: dict[tuple[str, int], dict[str, Any]] = {}
        paths: dict[int, dict[str, Any]] = {}
        # Events of the same time stay in the order of the file.
        for event in sorted((event for event in self.events if event["ph"] != "M"), key=lambda e: e["ts"]):
            stack = open_slices[event["pid"], event["tid"]]
            if event["ph"] == "X":
                assert event["dur"] >= 0, event
                while stack and _end(stack[-1]) <= event["ts"] + 1e-6:
                    stack.pop()
                assert not stack, f"{event} overlaps {stack[-1]}"
                stack.append(event)
            elif event["ph"] in "sf":
                assert stack, f"no slice for {event}"
                assert stack[-1]["ts"] <= event["ts"] <= _end(stack[-1]) + 1e-6, event
                key = event["cat"], event["id"]
                if event["ph"] == "s":
                    assert key not in started, event
                    started[key] = stack[-1]
                else:
                    assert event["bp"] == "e"
                    self.arrows.append((started.pop(key), stack[-1]))
            elif event["ph"] == "b":
                assert event["id2"]["local"] not in paths, event
                paths[event["id2"]["local"]] = event
            elif event["ph"] == "e":
                assert paths.pop(event["id2"]["local"])["name"] == event["name"]
        assert not paths or self._is_cut


def _end(event: dict[str, Any]) -> float:
    return event["ts"] + event["dur"]


def load(path: Path) -> Trace:
    """Read a complete trace."""
    data = path.read_bytes()
    return Trace(json.loads(gzip.decompress(data) if path.name.endswith(".gz") else data))


def load_cut(path: Path) -> Trace:
    """Read a trace whose closing bracket is missing, without its last event, of which a part may be missing."""
    text = path.read_text()
    assert not text.endswith("]\n")
    return Trace(json.loads(text[: text.rindex(",\n")] + "]"), is_cut=True)


def traced(
    compose: Callable[[Any], None], path: Path, scheduler: MakeScheduler = greedy, **options: Any
) -> Trace:
    """Run an application with a trace, and return the trace."""
    app = App(compose, scheduler)
    watch(app, TraceWriter(path, **options))
    app.run()
    return load(path)
