"""Runs: their order, their end, and errors in them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, operator, program


@program
def stop_execution_ends_the_run(sdk: SimpleNamespace, log: list) -> None:
    def body(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append(self.ticks)
        if self.ticks == 3:
            self.fragment.stop_execution()

    def compose(app: Any) -> None:
        app.add_operator(operator(sdk, [], [], body)(app, name="a"))

    application(sdk, compose).run()
