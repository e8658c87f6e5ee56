"""PageServer: the viewer's page in the browser, and the pictures that it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any

from headrace._web.live_server import Client, LiveServer
from headrace._web.messages import Fields
from headrace.viewer.display import Outlet, Picture
from headrace.viewer.events import Event, event_of
from headrace.viewer.pictures import encode_jpeg, encode_png


class PageServer(LiveServer, Outlet):
    """Serves the viewer's page; an outlet of a display.

    Parameters
    ----------
    title
        The title of the page.
    size
        Width and height of the picture.
    is_fullscreen
        Whether the picture fills the page, with the controls over it.
    on_event
        Called with each event of a page, on the server's thread.
    on_watch
        Called when a client can take a picture, on the server's thread.
    statistics
        Returns the counts that the page shows.
    **options
        Where to listen, the token and the most clients, as :class:`LiveServer` takes them.
    """

    def __init__(
        self,
        title: str,
        size: tuple[int, int],
        *,
        is_fullscreen: bool = False,
        on_event: Callable[[Event], None] = lambda event: None,
        on_watch: Callable[[], None] = lambda: None,
        statistics: Callable[[], dict[str, Any]] = dict,
        **options: Any,
    ) -> None:
        self._on_event, self._on_watch, self._statistics = on_event, on_watch, statistics
        width, height = size
        super().__init__(
            "the viewer's page",
            resources.files("headrace.viewer").joinpath("page.html").read_text("utf-8"),
            {"title": title, "width": width, "height": height, "fullscreen": is_fullscreen},
            remedy="set another HEADRACE_VIEW_HOST or HEADRACE_VIEW_PORT (0 takes any port that is free)",
            **options,
        )

    # The outlet; called on the display's thread.

    def wants_picture(self) -> bool:
        """Return whether a client waits for a picture."""
        return self.wants_item()

    def show(self, picture: Picture, is_still: bool) -> None:
        """Send a picture to the clients that can take it; one that will stay, exactly and to all."""
        self.send(encode_png(picture.pixels) if is_still else encode_jpeg(picture.pixels), is_still)

    # The server's thread.

    def on_connect(self, client: Client) -> None:
        """Send a new client the counts, and the last picture."""
        self._say_counts([client])
        super().on_connect(client)

    def on_message(self, client: Client, fields: Fields) -> None:
        """Pass an event on."""
        event = event_of(fields)
        if event is not None:
            self._on_event(event)

    def on_free(self) -> None:
        """Wake the display."""
        self._on_watch()

    def on_tick(self) -> None:
        """Send every client the counts."""
        self._say_counts(self.clients)

    def _say_counts(self, clients: Iterable[Client]) -> None:
        for client in clients:
            client.say(type="status", clients=len(self.clients), **self._statistics())
