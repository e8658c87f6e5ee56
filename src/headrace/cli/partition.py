"""Show how a device would be divided, without creating anything on it.

examples:
  headrace partition 16,40
  headrace partition control=16,vision=40 --device 1
  HEADRACE_DEVICE=sim HEADRACE_SIM_PROFILE=orin headrace partition 4
"""

from __future__ import annotations

import argparse
import re

from headrace import gpu
from headrace.cli import Failed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("counts", help="SM counts, as in 16,40 or control=16,vision=40")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="the device (default 0)")
    parser.add_argument("--exact", action="store_true", help="refuse to round counts up")


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    try:
        device = gpu.Device(options.device)
        print(gpu.partition(device, _parse(options.counts), exact=options.exact, dry_run=True))
    except (ValueError, RuntimeError) as error:  # a mistake in the request
        raise Failed(error) from None
    return 0


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
