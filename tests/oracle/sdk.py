"""What the programs are made of: names that headrace and the Holoscan SDK share."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

Program = Callable[[SimpleNamespace, list], None]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """Add a program to the table."""
    PROGRAMS[function.__name__] = function
    return function


def load(package: str) -> SimpleNamespace:
    """Gather the shared names from `headrace` or `holoscan`."""
    import importlib

    modules = [importlib.import_module(f"{package}.{part}") for part in ("core", "conditions", "schedulers")]
    modules.append(importlib.import_module(f"{package}.resources"))
    names: dict[str, Any] = {}
    for module in modules:
        known = {*dir(module), *getattr(module, "__all__", ())}
        names.update({name: getattr(module, name) for name in known if not name.startswith("_")})
    if package == "headrace":
        ours = importlib.import_module("headrace_holoscan.core")
        names |= {name: getattr(ours, name) for name in ("DataFlowMetric", "Tracker")}
    # Its names are imported when they are used: some of the SDK's operators cannot be imported without a GPU.
    operators: Any = importlib.import_module(f"{package}.operators")
    if package == "headrace":  # with those of the SDK that are in its distribution
        ready = importlib.import_module("headrace_holoscan.ready")
        both = (operators, ready)
        operators = SimpleNamespace(
            **{name: getattr(module, name) for module in both for name in module.__all__}
        )
    names["operators"] = operators
    return SimpleNamespace(**names)


def operator(
    sdk: SimpleNamespace, inputs: Any = (), outputs: Any = (), body: Any = None, **hooks: Any
) -> type:
    """Make an operator class: ports are names, or (name, keyword arguments, condition or None)."""

    def declare(add: Any, ports: Any) -> None:
        for port in ports:
            name, keywords, condition = port if isinstance(port, tuple) else (port, {}, None)
            added = add(name, **keywords)
            if condition is not None:
                added.condition(condition[0], **condition[1])

    class Made(sdk.Operator):  # type: ignore[name-defined]
        def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
            self.ticks = 0
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: Any) -> None:
            declare(spec.input, inputs)
            declare(spec.output, outputs)
            if "setup" in hooks:
                hooks["setup"](self, spec)

        def start(self) -> None:
            if "start" in hooks:
                hooks["start"](self)

        def stop(self) -> None:
            if "stop" in hooks:
                hooks["stop"](self)

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.ticks += 1
            if body is not None:
                body(self, op_input, op_output, context)

    return Made


def application(sdk: SimpleNamespace, compose: Callable[[Any], None]) -> Any:
    """Make an application whose compose is a function."""

    class App(sdk.Application):  # type: ignore[name-defined]
        def compose(self) -> None:
            compose(self)

    return App()


def counter(sdk: SimpleNamespace) -> type:
    """Make a class of operators that emit 1, 2, 3 and so on."""
    return operator(sdk, outputs=["out"], body=lambda self, i, o, c: o.emit(self.ticks, "out"))


def logger(sdk: SimpleNamespace, log: list) -> type:
    """Make a class of operators that log what they receive."""
    return operator(sdk, inputs=["in"], body=lambda self, i, o, c: log.append(i.receive("in")))
