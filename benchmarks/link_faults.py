"""Inject faults into a link between two network namespaces, and measure when each end notices.

    sudo python -m benchmarks.link_faults [--save] [--tls] [SCENARIO ...]

Needs root, `ip` and `nft`. Two processes, each in a namespace of its own, are linked over a pair of veth devices:
their cable. The sender sends frames of 1 MiB as fast as it gets credits ("streaming"), or ten frames and then
nothing but beats ("idle"). The receiver checks every frame. Times are from the fault to the moment when the program
is told, the shortest and the longest of four, with the fault at different moments between two beats.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.common import machine
from headrace.core.errors import PeerLost
from headrace.link.carrier import Carrier
from headrace.link.connect import connect
from headrace.link.handshake import Purpose, make_token
from headrace.link.listener import Listener, listen
from headrace.link.protocol import Sample, Terms
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.link.tls import ServerIdentity

PURPOSE = Purpose("link", "edge.camera.out -> server.detector.frame")
TERMS = Terms(PURPOSE.name, 4)
SENDER, RECEIVER = "10.77.0.1", "10.77.0.2"
FRAME = 1 << 20
LIMIT = 3.0  # seconds
PHASES = (1.5, 1.65, 1.8, 1.95)  # seconds from the connection to the fault: beats come twice a second


# The processes of the two ends. They are told by a line on stdin, and tell by lines on stdout.


def tell(**said: Any) -> None:
    print(json.dumps(said | {"at": time.monotonic()}), flush=True)


def run_receiver(told: dict[str, Any]) -> None:
    identity = ServerIdentity.make() if told["tls"] else None
    connections: SimpleQueue[Carrier] = SimpleQueue()
    take = {PURPOSE: connections.put}.get
    listener = Listener(listen(RECEIVER), token=told["token"].encode(), identity=identity, find_taker=take)
    tell(port=listener.address[1])
    event = threading.Event()
    receiver = Receiver(connections.get(), TERMS, event.set)
    listener.close()
    wrong = 0
    while not receiver.has_ended and receiver.failure is None:
        event.wait()
        event.clear()
        while (sample := receiver.take()) is not None:
            frame = sample.data
            wrong += not (frame[0] == frame[-1] == sample.number % 251 and len(frame) == FRAME)
            receiver.give_credits(1)
    tell(error=str(receiver.failure or ""), frames=receiver.received, wrong=wrong)
    receiver.close()


def run_sender(told: dict[str, Any]) -> None:
    carrier = connect((RECEIVER, told["port"]), PURPOSE, told["token"].encode(), encrypted=told["tls"])
    event, stop = threading.Event(), threading.Event()
    sender = Sender(carrier, TERMS, event.set)
    tell(connected=True)

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stop.set()
        event.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    sent = 0
    while sender.failure is None and not stop.is_set():
        if told["mode"] == "idle" and sent == 10:
            event.wait()
        else:
            try:
                if sender.send(Sample(np.full(FRAME, sent % 251, np.uint8))):
                    sent += 1
                    continue
            except PeerLost:  # since the look at `failure`, which is this error
                break
            event.wait()
        event.clear()
    if sender.failure is None:
        sender.end()
    tell(error=str(sender.failure or ""), frames=sent)
    sender.close()


class Node:
    """A process in a namespace."""

    def __init__(self, namespace: str, role: str, **told: Any) -> None:
        command = [
            "ip",
            "netns",
            "exec",
            namespace,
            sys.executable,
            "-m",
            "benchmarks.link_faults",
            "--node",
            role,
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said: dict[str, Any] = {}
        self._said = threading.Condition()
        self._say(told)
        threading.Thread(target=self._listen, daemon=True).start()

    def _say(self, told: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._said:
                self.said |= json.loads(line)
                self._said.notify_all()
        with self._said:
            self.said["closed"] = True
            self._said.notify_all()

    def wait_for(self, name: str, seconds: float = 30.0) -> Any:
        """Return what the process says, None if it does not say it in time."""
        with self._said:
            self._said.wait_for(lambda: name in self.said or "closed" in self.said, seconds)
            return self.said.get(name)

    def finish(self) -> None:
        """Let the process end as it does without a fault."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


# The network.


def do(*commands: str) -> None:
    for command in commands:
        subprocess.run(command.split(), check=True, capture_output=True)


@contextmanager
def network() -> Iterator[None]:
    remove()
    do(
        "ip netns add hr-sender",
        "ip netns add hr-receiver",
        "ip link add veth-s netns hr-sender type veth peer name veth-r netns hr-receiver",
        f"ip -n hr-sender addr add {SENDER}/24 dev veth-s",
        f"ip -n hr-receiver addr add {RECEIVER}/24 dev veth-r",
        "ip -n hr-sender link set veth-s up",
        "ip -n hr-receiver link set veth-r up",
    )
    try:
        yield
    finally:
        remove()


def remove() -> None:
    for name in "hr-sender", "hr-receiver":
        with suppress(subprocess.CalledProcessError):
            do(f"ip netns del {name}")


def down() -> None:
    do("ip -n hr-receiver link set veth-r down")


def up() -> None:
    do("ip -n hr-receiver link set veth-r up")


def drop(hook: str, rule: str) -> Callable[[], None]:
    """Drop packets at the receiver's side: those that come (input) or go (output)."""

    def act() -> None:
        do(
            "ip netns exec hr-receiver nft add table ip faults ; "
            f"add chain ip faults c {{ type filter hook {hook} priority 0 ; }} ; "
            f"add rule ip faults c {rule}"
        )

    return act


def heal() -> None:
    do("ip netns exec hr-receiver nft delete table ip faults")


class Link:
    """A sender and a receiver, linked over the network."""

    def __init__(self, mode: str, tls: bool, works: float = PHASES[0]) -> None:
        token = make_token().decode()
        self.receiver = Node("hr-receiver", "receiver", token=token, tls=tls)
        port = self.receiver.wait_for("port")
        self.sender = Node("hr-sender", "sender", token=token, tls=tls, port=port, mode=mode)
        self.sender.wait_for("connected")
        time.sleep(works)

    def close(self) -> None:
        for node in self.sender, self.receiver:
            node.signal(signal.SIGCONT)
            node.process.kill()
            node.process.wait()


# The scenarios: what is done to the link, and for how long if it has to survive.
Fault = Callable[[Link], None]
LOST: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "kill -9 of the receiver": (lambda link: link.receiver.signal(signal.SIGKILL), ("sender",)),
    "kill -9 of the sender": (lambda link: link.sender.signal(signal.SIGKILL), ("receiver",)),
    "receiver frozen (SIGSTOP)": (lambda link: link.receiver.signal(signal.SIGSTOP), ("sender",)),
    "sender frozen (SIGSTOP)": (lambda link: link.sender.signal(signal.SIGSTOP), ("receiver",)),
    "cable pulled (veth down)": (lambda link: down(), ("sender", "receiver")),
    "packets to the receiver dropped": (lambda link: drop("input", "drop")(), ("sender", "receiver")),
    "packets from the receiver dropped": (lambda link: drop("output", "drop")(), ("sender", "receiver")),
}
SURVIVED: dict[str, tuple[Fault, float, Fault]] = {
    "receiver frozen for 2.1 s": (
        lambda link: link.receiver.signal(signal.SIGSTOP),
        2.1,
        lambda link: link.receiver.signal(signal.SIGCONT),
    ),
    "sender frozen for 2.1 s": (
        lambda link: link.sender.signal(signal.SIGSTOP),
        2.1,
        lambda link: link.sender.signal(signal.SIGCONT),
    ),
    "cable pulled for 1 s": (lambda link: down(), 1.0, lambda link: up()),
    "1 % of all packets lost for 5 s": (
        lambda link: drop("input", "numgen random mod 100 < 1 drop")(),
        5.0,
        lambda link: heal(),
    ),
}


def lose(name: str, mode: str, tls: bool) -> list[Any]:
    """Return a row of the table: when each end noticed at the latest, and what it says."""
    fault, watching = LOST[name]
    noticed: dict[str, list[float]] = {"sender": [], "receiver": []}
    texts = []
    for phase in PHASES:
        with network():
            link = Link(mode, tls, phase)
            begin = time.monotonic()
            fault(link)
            begin = (begin + time.monotonic()) / 2  # `ip` and `nft` take some milliseconds
            for role in watching:
                node = getattr(link, role)
                if node.wait_for("error", 10.0) is None:
                    noticed[role].append(float("inf"))
                else:
                    noticed[role].append(node.said["at"] - begin)
                    texts.append(node.said["error"].partition(": ")[2])
            link.close()
    row: list[Any] = [name, mode]
    for seconds in noticed.values():
        late = " **late**" if max(seconds, default=0) > LIMIT else ""
        row.append(f"{min(seconds):.3f} to {max(seconds):.3f} s{late}" if seconds else "")
    return [*row, "; ".join(dict.fromkeys(texts))]


def survive(name: str, mode: str, tls: bool) -> list[Any]:
    """Return a row of the table: whether the link went on, and with all frames."""
    fault, seconds, repair = SURVIVED[name]
    with network():
        link = Link(mode, tls)
        fault(link)
        time.sleep(seconds)
        repair(link)
        time.sleep(3.0)
        link.sender.finish()
        errors = [link.sender.wait_for("error"), link.receiver.wait_for("error")]
        sent, received = link.sender.said.get("frames"), link.receiver.said.get("frames")
        wrong = link.receiver.said.get("wrong")
        link.close()
    went_on = "yes" if errors == ["", ""] else "**no**: " + "; ".join(str(error) for error in errors)
    return [name, mode, went_on, sent, received, wrong]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", nargs="*", help="a part of a scenario's name; all by default")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--node", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.node:
        {"sender": run_sender, "receiver": run_receiver}[arguments.node](json.loads(sys.stdin.readline()))
        return
    if os.geteuid():
        sys.exit("network namespaces need root")

    def chosen(names: Any) -> list[tuple[str, str]]:
        wanted = [
            name for name in names if not arguments.scenario or any(s in name for s in arguments.scenario)
        ]
        return [(name, mode) for name in wanted for mode in ("idle", "streaming")]

    lost = [lose(name, mode, arguments.tls) for name, mode in chosen(LOST)]
    survived = [survive(name, mode, arguments.tls) for name, mode in chosen(SURVIVED)]
    kind = "TLS" if arguments.tls else "TCP"
    report.publish(
        "link_faults" + ("_tls" if arguments.tls else ""),
        f"# Faults of a link over {kind}, between two network namespaces\n\n"
        f"{report.circumstances(machine())}\n\n{(__doc__ or '').split(chr(10) * 2)[2]}\n"
        "## A peer or a cable that is gone: when the ends notice\n\n"
        + report.table(["fault", "the link is", "sender", "receiver", "what is said"], lost)
        + "\n\n## Faults that a link survives\n\n"
        + report.table(["fault", "the link is", "went on", "sent", "received", "wrong"], survived),
    )


if __name__ == "__main__":
    main()
