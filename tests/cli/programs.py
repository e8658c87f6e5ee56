"""Programs for the tests of the command."""

from __future__ import annotations

from pathlib import Path

OPERATORS = """
from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from headrace import Application, CountCondition, op


@dataclass
class Number:  # dataclasses look up the module of the class, which must be there
    value: int


@op
def numbers(*, count: int = 1_000_000):
    yield from range(count)


@op
def show(value):
    print(Number(value).value)


class Shows(Application):
    def compose(self):
        self.add_flow(numbers(self), show(self))

"""


def write(folder: Path, text: str, name: str = "app.py") -> str:
    """Write a program of the operators above and `text`, and return its name."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(OPERATORS + text)
    return name
