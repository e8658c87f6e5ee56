"""Dashboard: a live page of a run in the browser."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import notebook
from headrace.core.values import Duration, nanoseconds
from headrace.observe.dashboard.run_page import WINDOW, RunPage
from headrace.observe.events.watchers import Watcher
from headrace.observe.figures.run_figures import ShowsFigures

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import Computes, RunInfo

_WATCHED_PERIOD = 0.5  # seconds after which what has happened is known while somebody looks


class Dashboard(ShowsFigures):
    """A live page of a fragment's runs: the graph with its figures, the device, a time line, parameters, the log.

    The page can also pause, step and stop a run, and change the parameters that operators declare as live. Whoever
    knows the address can do so, too: it holds a token, and the server listens on this machine only unless another
    host is given.

    Parameters
    ----------
    fragment
        What to watch; `headrace.observe.watch` does the same later.
    host, port
        Where to listen; port 0 takes any that is free, and keeps it for later runs.
    token
        The token of the address; made anew unless given.
    read_token
        The token of an address for those who may see everything and change nothing: no pauses, no steps, no
        parameters; there is none unless given.
    interval
        The least time between two updates of the page.
    clients
        The most pages at a time.
    announce
        Called with the address when a run begins; by default it is printed to the standard error stream.
    """

    period = Watcher.period
    window = WINDOW
    wants_threads = True
    _page: RunPage | None = None

    def __init__(
        self,
        fragment: Composition | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        read_token: str = "",
        interval: Duration = "250ms",
        clients: int = 8,
        announce: Callable[[str], object] | None = None,
    ) -> None:
        seconds = nanoseconds(interval, "Dashboard: interval") / 1e9
        if seconds <= 0:
            raise ValueError(f"Dashboard: interval must be more than 0, not {interval!r}")
        self._options: dict[str, Any] = {
            "host": host,
            "port": port,
            "token": token,
            "read_token": read_token,
            "clients": clients,
            "interval": seconds,
        }
        self._announce = announce or _print_address
        if fragment is not None and self not in fragment._headrace.watchers:
            fragment._headrace.watchers.append(self)

    @property
    def url(self) -> str:
        """The address of the page while a run is watched, with its token; otherwise empty."""
        return "" if self._page is None else self._page.url

    def _repr_html_(self) -> str:
        if not self.url:
            return notebook.paragraph("the dashboard has no page now; it has one while the application runs")
        return notebook.page(self.url, 1200, 800)

    @property
    def longest_period(self) -> float:  # type: ignore[override]
        """The seconds after which it is shown what has happened in any case: fewer while somebody looks."""
        is_watched = self._page is not None and self._page.clients
        return _WATCHED_PERIOD if is_watched else Watcher.longest_period

    def begin(self, run: RunInfo) -> None:
        """Serve the page of a run."""
        assert self.observation is not None
        page = self._page = RunPage(self.observation, run, self.figures, **self._options)
        self._options |= {"port": page.port, "token": page.token}
        try:
            self._announce(page.url)
        except BaseException:
            self.end(None)  # the run does not take place, and nothing else would end the server
            raise

    def changed(self, run: RunInfo) -> None:
        """Show the graph as it is now."""
        if self._page is not None:
            self._page.change_graph()

    def computed(self, computes: Computes) -> None:
        """Add computes to the time line."""
        if self._page is not None:
            self._page.time_line.add(computes)

    def end(self, outcome: Outcome | None) -> None:
        """Show the last figures, and end the server."""
        page, self._page = self._page, None
        if page is not None:
            page.close()


def _print_address(url: str) -> None:
    if os.environ.get("HEADRACE_PART"):
        return  # the page of the driver leads to this one
    print(f"dashboard: {url}", file=sys.stderr, flush=True)
