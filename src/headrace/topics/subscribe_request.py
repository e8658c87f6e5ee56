"""SubscribeRequest: what a subscriber wants, which it says in the handshake of its link.

The subscriber decides how many messages may be under way to it, and whether it wants the last one at once. Both
ends make the same `Terms` from that.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from headrace.core.errors import ProtocolError
from headrace.link.handshake import Purpose
from headrace.link.protocol import Terms

_KIND = "topic"
MOST_PLACES = 1024
"""The most messages that may be under way to a subscriber."""
_LONGEST_PROGRAM = 200  # characters; a handshake is short


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """What a subscriber wants."""

    topic: str
    size: int = 1
    """The number of messages that may be under way to it."""
    wants_last: bool = True
    """Whether it wants the last message, if there is one, as soon as it joins."""
    program: str = ""
    pid: int = 0

    def purpose(self) -> Purpose:
        """Return the request as the handshake says it."""
        program = self.program.encode()[:_LONGEST_PROGRAM].decode(errors="ignore")
        said = {"size": self.size, "last": int(self.wants_last), "pid": os.getpid(), "program": program}
        return Purpose(_KIND, f"{self.topic}?{urlencode(said)}")

    @staticmethod
    def of(purpose: Purpose) -> SubscribeRequest:
        """Return the request that a handshake says; raise ProtocolError if it says none."""
        topic, _, rest = purpose.name.partition("?")
        said = dict(parse_qsl(rest))
        try:
            request = SubscribeRequest(
                topic, int(said["size"]), said["last"] == "1", said.get("program", ""), int(said["pid"])
            )
        except (KeyError, ValueError):
            raise ProtocolError(f"a connection for {purpose} does not say what it wants") from None
        if purpose.kind != _KIND or not 1 <= request.size <= MOST_PLACES:
            raise ProtocolError(f"a topic cannot be received as {purpose}")
        return request

    def terms(self) -> Terms:
        """Return the terms of the link, the same at both ends.

        The link itself loses nothing: what it has no room for is dropped before it, by the policy of the topic.
        """
        return Terms(f"topic {self.topic}", self.size)
