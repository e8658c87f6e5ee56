"""A program in two parts that does what its arguments ask for, for tests with real processes.

It is executed by the tests as a program, in the driver and in the process of each part.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from typing import Any

from headrace import Application, Fragment, Operator, OperatorSpec, op, waits

PART = os.environ.get("HEADRACE_PART", "")
ASKED, *REST = sys.argv[1:] or [""]


def strike(what: str) -> None:
    """Do in the process of part b what the arguments ask for, if they name this moment: ``kill@start``."""
    action, _, moment = ASKED.partition("@")
    if action == "again":  # while it runs, and at the moment when it is started again
        moment = moment if os.path.exists(REST[0]) else "run"
    if moment != what or PART != "b":
        return
    if action in ("kill", "int", "term"):
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "int": signal.SIGINT, "term": signal.SIGTERM}[action])
    elif action == "parent":
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    elif action == "all":
        # The driver may be the process of the tests, which has a fork server and other children besides. The parts
        # were forked by that server: they have its command and not its name.
        with open(f"/proc/{os.getppid()}/task/{os.getppid()}/children") as children:
            for pid in sorted(children.read().split(), key=lambda pid: int(pid) == os.getpid()):
                with open(f"/proc/{pid}/comm") as name, open(f"/proc/{pid}/cmdline") as command:
                    if name.read().strip() != "fork server" and "fork_server" in command.read():
                        os.kill(int(pid), signal.SIGKILL)
    elif action in ("worker", "termworker"):
        number = signal.SIGINT if action == "worker" else signal.SIGTERM
        usual: Any = signal.getsignal(number)
        is_told = threading.Event()  # a pause could begin after the signal
        signal.signal(number, lambda *given: (is_told.set(), usual(*given)))
        os.kill(os.getppid(), number)
        waits.wait(is_told)  # in parts: the signal may come between the look at it and the wait
    elif action == "exit":
        os._exit(7)
    elif action == "raise":
        raise LookupError("no such part number")
    elif action == "odd":
        raise Odd("left", "right")
    elif action == "again" or (action == "once" and not os.path.exists(REST[0])):
        open(REST[0], "a").close()
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "freeze" and not os.path.exists(REST[0]):
        open(REST[0], "a").close()
        for process in (os.getppid(), os.getpid()):
            os.kill(process, signal.SIGSTOP)


class Odd(Exception):
    """An exception that cannot be unpickled."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} {other}")


@op
def numbers(*, count: int = 5, seed: int = 0) -> Any:
    yield from range(count)


class Middle(Operator):
    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")

    def start(self) -> None:
        strike("start")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        value = op_input.receive("in")
        if value == 2:
            strike("run")
            if ASKED == "stop":
                self.fragment.application.stop_execution()
        op_output.emit(10 * value, "out")

    def stop(self) -> None:
        strike("stop")


@op
def show(value: int) -> None:
    print(f"shown: {value}")


class A(Fragment):
    def compose(self) -> None:
        self.first = numbers(self, name="numbers", seed=os.getpid() if ASKED == "differ" else 0, count=5)
        self.add_operator(self.first)


class B(Fragment):
    def compose(self) -> None:
        strike("compose")
        self.add_flow(Middle(self, name="middle"), show(self, name="show"))


class Plant(Application):
    def compose(self) -> None:
        policy = {
            "once": "restart",
            "again": "restart",
            "freeze": "restart",
            "kill": "go_on" if REST == ["go_on"] else "stop",
        }
        on_loss = policy.get(ASKED.partition("@")[0], "stop")
        a, b = A(self, "a"), B(self, "b", on_loss=on_loss)
        self.add_flow(a, b, {("numbers.out", "middle.in")}, size=4)


if __name__ == "__main__":
    print("begins")
    strike("import")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        try:
            outcome = Plant().run()
        finally:
            strike("exit")
    print(outcome.ended_by, outcome.computes, outcome.restarts, outcome.lost, outcome.undelivered)
