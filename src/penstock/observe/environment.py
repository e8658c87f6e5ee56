"""What the environment asks to watch, so that no program need be changed.

=============================================  ==================================================================
``PENSTOCK_TRACK=1``                           track every run, and print its tables at the end
``PENSTOCK_TRACK=file.json`` or ``file.prom``  the same, into a file: JSON, or the text format of Prometheus
``HOLOSCAN_FLOW_TRACKING_LOG_FILE=file``       write the times of every message, in the format of the Holoscan SDK
``HOLOSCAN_ENABLE_GXF_JOB_STATISTICS=1``       as ``PENSTOCK_TRACK=1``
``HOLOSCAN_GXF_JOB_STATISTICS_PATH=file``      where the statistics go, as JSON
``PENSTOCK_DASHBOARD=1`` or ``host:port``      serve a live page of every run
``PENSTOCK_DASHBOARD_TOKEN=token``             the token of its address; made anew for each program unless given
=============================================  ==================================================================
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.booleans import boolean

if TYPE_CHECKING:
    from penstock.core.outcome import Outcome
    from penstock.observe.watchers import Watcher

__all__ = ["VARIABLES", "asked_for", "watchers_from_environment"]

VARIABLES = (
    "PENSTOCK_TRACK",
    "PENSTOCK_DASHBOARD",
    "HOLOSCAN_FLOW_TRACKING_LOG_FILE",
    "HOLOSCAN_ENABLE_GXF_JOB_STATISTICS",
)


def asked_for() -> bool:
    """Return whether the environment asks for anything."""
    return any(os.environ.get(name) for name in VARIABLES)


def watchers_from_environment() -> list[Watcher]:
    """Return the watchers that the environment asks for."""
    found: list[Watcher] = []
    target = _statistics_target()
    if target is not None:
        found.append(_report_to(target))
    log_file = os.environ.get("HOLOSCAN_FLOW_TRACKING_LOG_FILE")
    if log_file:
        found.append(_log_to(log_file))
    dashboard = _dashboard()
    if dashboard is not None:
        found.append(dashboard)
    return found


def _dashboard() -> Watcher | None:
    given = os.environ.get("PENSTOCK_DASHBOARD", "")
    host, _, port = given.rpartition(":")
    if given in ("", "0"):
        return None
    if given == "1":
        host, port = "", "0"
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"PENSTOCK_DASHBOARD={given!r} must be 1 or host:port, with a port from 0 to 65535")
    from penstock.observe.dashboard import Dashboard

    return Dashboard(host=host.strip("[]") or "127.0.0.1", port=int(port), token=_dashboard_token())


@functools.cache
def _made_token() -> str:
    # One for all runs of a program: a page connects again when the next one begins.
    import secrets

    return secrets.token_urlsafe(18)


def _dashboard_token() -> str:
    return os.environ.get("PENSTOCK_DASHBOARD_TOKEN") or _made_token()


def _statistics_target() -> str | None:
    """Return the file for statistics, "" for the terminal, or None if nothing is asked for."""
    given = os.environ.get("PENSTOCK_TRACK", "")
    if given.endswith((".json", ".prom", ".txt")):
        return given
    if given:
        return "" if boolean(given, "PENSTOCK_TRACK") else None
    if boolean(
        os.environ.get("HOLOSCAN_ENABLE_GXF_JOB_STATISTICS") or False, "HOLOSCAN_ENABLE_GXF_JOB_STATISTICS"
    ):
        return os.environ.get("HOLOSCAN_GXF_JOB_STATISTICS_PATH", "")
    return None


def _report_to(target: str) -> Watcher:
    from penstock.observe.statistics import StatisticsWatcher

    class Report(StatisticsWatcher):
        """Reports the statistics of a run at its end."""

        def end(self, outcome: Outcome | None) -> None:
            super().end(outcome)
            statistics = self.snapshot()
            if not target:
                print(statistics, file=sys.stderr)
            elif target.endswith(".prom"):
                Path(target).write_text(statistics.to_prometheus(), encoding="utf-8")
            elif target.endswith(".txt"):
                Path(target).write_text(f"{statistics}\n", encoding="utf-8")
            else:
                Path(target).write_text(statistics.to_json() + "\n", encoding="utf-8")

    return Report()


def _log_to(filename: str) -> Watcher:
    from penstock.observe.data_flow_tracker import DataFlowTracker

    class Log(DataFlowTracker):
        """Writes the log file of a run, and closes it at the end."""

        def end(self, outcome: Outcome | None) -> None:
            super().end(outcome)
            self.end_logging()

    log = Log()
    log.enable_logging(filename)
    return log
