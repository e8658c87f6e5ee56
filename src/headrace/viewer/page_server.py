"""PageServer: the viewer's page in the browser, and the pictures that it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from typing import Any

import numpy as np

from headrace._web.live_server import Client, LiveServer
from headrace._web.messages import Fields, string, whole
from headrace.viewer.display import Outlet, Picture, Scene
from headrace.viewer.events import Event, event_of
from headrace.viewer.input_spec import InputSpec
from headrace.viewer.pictures import encode_jpeg, encode_png

_LONGEST_NAME = 1000


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
        Called with an event of a page, on the server's thread.
    on_watch
        Called when a client can take a picture, on the server's thread.
    statistics
        Returns the counts that the page shows.
    draw
        Draws some of the layers of a scene, and returns the pixels.
    on_switch
        Called when a page has switched a layer on or off, on the server's thread.
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
        draw: Callable[[Scene, Sequence[InputSpec]], np.ndarray],
        on_switch: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        self._draw, self._on_switch = draw, on_switch
        # The layers of the last picture, and those that are switched off: the same for all pages.
        self._layers: list[dict[str, str]] = []
        self._hidden: frozenset[str] = frozenset()
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
        specs, hidden, pixels = picture.scene.specs, self._hidden, picture.pixels
        self._layers = list({spec.tensor_name: _layer(spec) for spec in specs}.values())
        shown = [spec for spec in specs if spec.tensor_name not in hidden]
        if len(shown) < len(specs):
            pixels = self._draw(picture.scene, shown)
        self.send(encode_png(pixels) if is_still else encode_jpeg(pixels), is_still)

    # The server's thread.

    def on_connect(self, client: Client) -> None:
        """Send a new client the counts, and the last picture."""
        self._say_counts([client])
        super().on_connect(client)

    def on_message(self, client: Client, fields: Fields) -> None:
        """Switch a layer, or pass an event on."""
        if fields.get("type") == "layer":
            client.seen["switches"] = client.seen.get("switches", 0) + 1
            self._switch(string(fields, "name", _LONGEST_NAME), bool(whole(fields, "shown", 0, 1)))
            return
        self._on_event(event_of(fields))

    def _switch(self, name: str, is_shown: bool) -> None:
        """Show or hide a layer, in the pictures of all pages."""
        if any(layer["name"] == name for layer in self._layers):
            self._hidden = self._hidden - {name} if is_shown else self._hidden | {name}
            self._on_switch()
        self._say_counts(self.clients)

    def on_free(self) -> None:
        """Wake the display."""
        self._on_watch()

    def on_tick(self) -> None:
        """Send every client the counts."""
        self._say_counts(self.clients)

    def _say_counts(self, clients: Iterable[Client]) -> None:
        for client in clients:
            client.say(
                type="status",
                clients=len(self.clients),
                layers=self._layers,
                hidden=sorted(self._hidden),
                switches=client.seen.get("switches", 0),  # of this page, which knows by it what is older
                **self._statistics(),
            )


def _layer(spec: InputSpec) -> dict[str, str]:
    return {"name": spec.tensor_name, "type": str(spec.type)}
