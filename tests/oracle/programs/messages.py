"""What travels with a message: metadata, timestamps, any object."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, logger, operator, program


@program
def a_dict_and_none_can_be_emitted(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        values = [{"a": [1, 2], "b": "text"}, None, (1, "x"), "text"]
        source = operator(sdk, [], ["out"], lambda self, i, o, c: o.emit(values[self.ticks - 1], "out"))
        app.add_flow(
            source(app, sdk.CountCondition(app, len(values)), name="a"), logger(sdk, log)(app, name="b")
        )

    application(sdk, compose).run()


def _metadata(sdk: SimpleNamespace, log: list, policy: str) -> None:
    """Two sources stamp the same key; the joining operator merges them under a policy."""

    def stamp(n: int) -> Any:
        def body(self: Any, i: Any, o: Any, c: Any) -> None:
            self.metadata.set("who", n)
            self.metadata.set(f"only{n}", n)
            o.emit(n, "out")

        return body

    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        i.receive("left")
        i.receive("right")
        log.append(sorted(self.metadata.items()))
        o.emit(0, "out")

    def last(self: Any, i: Any, o: Any, c: Any) -> None:
        i.receive("in")
        log.append(sorted(self.metadata.items()))

    def compose(app: Any) -> None:
        app.enable_metadata(True)
        join = operator(sdk, ["left", "right"], ["out"], take)(app, name="join")
        join.metadata_policy = getattr(sdk.MetadataPolicy, policy)
        for n, port in enumerate(("left", "right")):
            source = operator(sdk, [], ["out"], stamp(n))
            app.add_flow(source(app, sdk.CountCondition(app, 2), name=f"s{n}"), join, {("out", port)})
        app.add_flow(join, operator(sdk, ["in"], [], last)(app, name="last"))

    application(sdk, compose).run()


@program
def metadata_raise(sdk: SimpleNamespace, log: list) -> None:
    _metadata(sdk, log, "RAISE")
