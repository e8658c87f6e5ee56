"""Which paths a tracker finds, and what it counts on them."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, counter, operator, program


def through(sdk: SimpleNamespace) -> type:
    """Make a class of operators that pass on."""
    return operator(sdk, ["in"], ["out"], lambda self, i, o, c: o.emit(i.receive("in"), "out"))


def sink(sdk: SimpleNamespace, *inputs: str) -> type:
    """Make a class of operators that receive from all their inputs."""

    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        for name in inputs or ("in",):
            i.receive(name)

    return operator(sdk, list(inputs or ("in",)), [], take)


def chain(sdk: SimpleNamespace, messages: int) -> Any:
    def compose(app: Any) -> None:
        tx = counter(sdk)(app, sdk.CountCondition(app, messages), name="tx")
        mx = through(sdk)(app, name="mx")
        rx = sink(sdk)(app, name="rx")
        app.add_flow(tx, mx)
        app.add_flow(mx, rx)

    return compose


def log_file(sdk: SimpleNamespace, log: list, compose: Any) -> None:
    """Log what a tracker writes to its file, with T for every time."""
    app = application(sdk, compose)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flow.log"
        with sdk.Tracker(app, filename=str(file), num_buffered_messages=2):
            app.run()
        text = re.sub(r"\d+(?=[,)])", "T", file.read_text())
        # The order of ways within a group says nothing: the SDK's depends on the operators' hashes.
        log.append([text[-2:], [sorted(group.split("\n")) for group in text.split("\n\n")]])


@program
def the_log_file_of_a_chain(sdk: SimpleNamespace, log: list) -> None:
    log_file(sdk, log, chain(sdk, 5))


@program
def the_log_file_of_a_diamond(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        tx = counter(sdk)(app, sdk.CountCondition(app, 3), name="tx")
        left, right = (through(sdk)(app, name=name) for name in ("left", "right"))
        rx = sink(sdk, "a", "b")(app, name="rx")
        app.add_flow(tx, left)
        app.add_flow(tx, right)
        app.add_flow(left, rx, {("out", "a")})
        app.add_flow(right, rx, {("out", "b")})

    log_file(sdk, log, compose)
