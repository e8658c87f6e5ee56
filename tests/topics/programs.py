"""Programs in processes of their own: one publishes what it reads, the other prints what it receives."""

from __future__ import annotations

import sys
import threading

from headrace.topics import Publication, Subscription


def publish() -> None:
    publication = Publication("count")
    for line in sys.stdin:
        publication.publish(int(line))
    publication.close()


def show() -> None:
    came = threading.Event()
    subscription = Subscription("count", on_change=came.set)
    while True:
        came.wait()
        came.clear()
        while (message := subscription.take()) is not None:
            print(message.data, flush=True)


if __name__ == "__main__":
    {"publish": publish, "show": show}[sys.argv[1]]()
