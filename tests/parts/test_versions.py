"""Ends of different versions refuse each other, so whoever changes what they say raises the version."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import fields, is_dataclass

from headrace.link import handshake, protocol
from headrace.parts import messages

# The version, and what the ends say to each other in it.
KNOWN = (6, "84c4380b7c32e723")


def _said() -> list[str]:
    """Return the kinds of messages with their numbers, their formats, and the fields of what is pickled."""
    enumerations = (protocol.Kind, handshake._Kind, handshake.Refusal)
    kinds = [f"{each.__name__} {kind.name} {kind.value}" for each in enumerations for kind in each]
    formats = [
        f"{module.__name__} {name} {value.format}"
        for module in (handshake, protocol)
        for name, value in sorted(vars(module).items())
        if isinstance(value, struct.Struct)
    ]
    said = [
        f"{name} {[field.name for field in fields(value)]}"
        for name, value in sorted(vars(messages).items())
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == messages.__name__
    ]
    return [*kinds, *formats, *said]


def test_the_version_is_raised_with_what_the_ends_say() -> None:
    found = hashlib.sha256("\n".join(_said()).encode()).hexdigest()[:16]
    assert (protocol.VERSION, found) == KNOWN, (
        "the ends of links, or drivers and workers, say something else than before: raise "
        "headrace.link.protocol.VERSION, unless that was done since the last release, and write it here with "
        f"{found!r}"
    )
