"""Application: the program's own fragment, the one that `run` is called on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from penstock.core.fragment import Fragment

__all__ = ["Application"]


class Application(Fragment):
    """A pipeline; subclass it and write `compose`, then call `run`.

    Parameters
    ----------
    argv
        The command line, kept in ``app.argv``; ``sys.argv`` unless given.
    name
        The application's name; the class's name unless given.
    """

    def __init__(self, argv: Sequence[str] | None = None, *args: Any, name: str = "", **kwargs: Any) -> None:
        super().__init__(name, *args, **kwargs)
        self.argv: list[str] = list(sys.argv if argv is None else argv)
        self.description = ""
        self.version = ""
