"""``penstock partition``: the partitions that a device would provide."""

from __future__ import annotations

import re

from penstock import gpu


def draw(counts: str, *, device_id: int = 0, exact: bool = False) -> str:
    """Return a drawing of how a device would be divided."""
    return str(gpu.partition(gpu.Device(device_id), _parse(counts), exact=exact, dry_run=True))


def _parse(counts: str) -> list[int] | dict[str, int]:
    """Parse ``16,40`` or ``control=16,vision=40``."""
    parts = [part.strip() for part in counts.split(",")]
    pairs = [part.rpartition("=") for part in parts]
    for part, (_, _, count) in zip(parts, pairs, strict=True):
        if re.fullmatch(r"-?[0-9]+", count.strip()) is None:
            raise ValueError(f"{part!r} is not an SM count; write 16,40 or control=16,vision=40")
    if all(equals for _, equals, _ in pairs):
        named = {name.strip(): int(count) for name, _, count in pairs}
        if len(named) < len(pairs):
            raise ValueError(f"{counts!r} gives a name twice")
        return named
    if any(equals for _, equals, _ in pairs):
        raise ValueError(f"{counts!r} names some partitions and not others; name all of them or none")
    return [int(count) for _, _, count in pairs]
