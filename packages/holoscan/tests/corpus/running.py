"""Run one program of the corpus with whatever ``import holoscan`` gives, and say what it did."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import os
import runpy
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[4]
MANY = 500  # computes: more than any program needs

Outcome = dict[str, Any]


def _programs() -> dict[str, Path]:
    """Return the file of each program: a public function without arguments."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not node.args.args:
                found[f"{path.stem}.{node.name}"] = path
    return found


PROGRAMS = _programs()


def outcome(name: str) -> Outcome:
    """Run a program and return what it printed, sent, received and raised, and how often each operator ran.

    What is raised is a list of types: the exception's own and its bases. A handler that catches one of them catches
    the exception.
    """
    messages: dict[str, list[Any]] = defaultdict(list)
    computes: Counter[str] = Counter()
    raised: list[str] = []
    with (
        contextlib.redirect_stdout(io.StringIO()) as printed,
        _like_a_process(),
        _probe(messages, computes),
    ):
        try:
            runpy.run_path(str(PROGRAMS[name]))[name.partition(".")[2]]()
        except (Exception, SystemExit) as error:
            raised = [one.__name__ for one in type(error).__mro__[:-1]]
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    return {
        "printed": printed.getvalue().splitlines(),
        "messages": dict(sorted(messages.items())),
        "computes": dict(sorted(computes.items())),
        "raised": raised,
    }


@contextlib.contextmanager
def _like_a_process() -> Iterator[None]:
    """Give a program the arguments, variables and folder of a fresh process."""
    environment, arguments = dict(os.environ), sys.argv
    for name in [name for name in environment if name.startswith("HOLOSCAN_")]:
        del os.environ[name]
    sys.argv = ["program.py"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        try:
            yield
        finally:
            sys.argv = arguments
            os.environ.clear()
            os.environ.update(environment)


@contextlib.contextmanager
def _probe(messages: dict[str, list[Any]], computes: Counter[str]) -> Iterator[None]:
    """Note what the program's own operators receive and emit, and how often they compute."""
    from holoscan.core import Operator

    own = Operator.__dict__.get("__init_subclass__")

    def prepare(cls: type, **keywords: Any) -> None:
        compute = cls.__dict__.get("compute")
        if compute is not None and cls.__module__.partition(".")[0] not in (
            "headrace",
            "headrace_holoscan",
            "holoscan",
        ):

            @functools.wraps(compute)
            def probed(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
                # A derived class calls its base's compute, perhaps with a view of its input.
                if isinstance(getattr(op_input, "_context", op_input), _Inputs):
                    return compute(self, op_input, op_output, context)
                computes[self.name] += 1
                if computes[self.name] > MANY:
                    raise AssertionError(f"{self.name} runs for ever")
                inputs = _Inputs(op_input, self.name, messages)
                return compute(self, inputs, _Outputs(op_output, self.name, messages), context)

            cls.compute = probed  # type: ignore[attr-defined]
        if own is not None:
            own.__get__(None, cls)(**keywords)
        else:
            super(Operator, cls).__init_subclass__(**keywords)

    Operator.__init_subclass__ = classmethod(prepare)  # type: ignore[assignment]
    try:
        yield
    finally:
        if own is not None:
            Operator.__init_subclass__ = own
        else:
            del Operator.__init_subclass__


class _Ports:
    """The ports of an operator, which note the messages."""

    def __init__(self, ports: Any, operator: str, messages: dict[str, list[Any]]) -> None:
        self._ports, self._operator, self._messages = ports, operator, messages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ports, name)

    def _note(self, port: str, message: Any) -> None:
        self._messages[f"{self._operator}.{port}"].append(described(message))


class _Inputs(_Ports):
    def receive(self, name: str, *args: Any, **keywords: Any) -> Any:
        message = self._ports.receive(name, *args, **keywords)
        self._note(name, message)
        return message


class _Outputs(_Ports):
    def emit(self, data: Any, name: str = "", *args: Any, **keywords: Any) -> Any:
        from holoscan.gxf import Entity

        self._note(name, "Entity" if isinstance(data, Entity) else data)
        return self._ports.emit(data, name, *args, **keywords)


def described(message: Any) -> Any:
    """Return a message as JSON has it."""
    if message is None or isinstance(message, bool | int | str):
        return message
    if isinstance(message, float):
        return round(message, 9)
    if isinstance(message, list | tuple):
        return [described(one) for one in message]
    if hasattr(message, "items"):
        return {str(name): described(one) for name, one in sorted(message.items())}
    if hasattr(message, "__dlpack__") or hasattr(message, "__array_interface__"):
        shape = list(message.shape)
        try:
            array = np.asarray(message)
        except (TypeError, ValueError, RuntimeError):  # not in this process's memory
            return ["array", shape]
        return ["array", array.dtype.name, shape, array.ravel()[:12].tolist()]
    return type(message).__name__
