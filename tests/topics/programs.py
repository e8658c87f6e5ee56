"""Programs of the tests that run in processes of their own."""

from __future__ import annotations

import sys
from typing import Any

from headrace import Application, op
from headrace.conditions import PeriodicCondition


@op
def count() -> Any:
    value = 0
    while True:
        value += 1
        yield value


@op
def show(value: int) -> None:
    print(value, flush=True)


class Counter(Application):
    def compose(self) -> None:
        self.export_topic("count", count(self, PeriodicCondition(self, 1_000_000)))


class Show(Application):
    def compose(self) -> None:
        self.import_topic("count", show(self))


if __name__ == "__main__":
    {"count": Counter, "show": Show}[sys.argv[1]]().run()
