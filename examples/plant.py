"""A plant: a camera at the edge, a detector on a server, and results printed in a third place.

python examples/plant.py                        one process
headrace run examples/plant.py --processes      a process for each fragment, and the same lines
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace import Application, Fragment, op


@op
def camera(*, frames: int = 8) -> Iterator[Any]:
    """Make frames of 64 x 64 pixels, in which a bright part moves along the diagonal."""
    for number in range(frames):
        frame = np.zeros((64, 64), np.uint8)
        corner = 6 * number
        frame[corner : corner + 5, corner : corner + 9] = 200
        yield frame


@op
def detector(frame: Any, *, threshold: int = 100) -> tuple[int, int, int, int]:
    """Return the box around the bright pixels: left, top, width, height."""
    rows, columns = np.nonzero(frame > threshold)
    left, top = int(columns.min()), int(rows.min())
    return left, top, int(columns.max()) - left + 1, int(rows.max()) - top + 1


@op
def show(box: tuple[int, int, int, int]) -> None:
    """Print a box."""
    left, top, width, height = box
    print(f"part of {width} x {height} pixels at {left}, {top}")


class Edge(Fragment):
    """Where the frames come from."""

    def compose(self) -> None:
        """Add the camera."""
        self.add_operator(camera(self, name="camera"))


class Server(Fragment):
    """Where they are looked at."""

    def compose(self) -> None:
        """Add the detector."""
        self.add_operator(detector(self, name="detector"))


class Desk(Fragment):
    """Where the results are shown."""

    def compose(self) -> None:
        """Add what shows them."""
        self.add_operator(show(self, name="show"))


class Plant(Application):
    """The fragments, and the flows between them."""

    def compose(self) -> None:
        """Connect them."""
        edge, server, desk = Edge(self, "edge"), Server(self, "server"), Desk(self, "desk")
        self.add_flow(edge, server, {("camera.out", "detector.frame")}, size=4)
        self.add_flow(server, desk, {("detector.out", "show.box")})


if __name__ == "__main__":
    outcome = Plant().run()
    print(f"{outcome.ended_by}, {outcome.computes} computes")
