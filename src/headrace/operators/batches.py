"""Batches: the items of a batch as messages of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.core.calls import of_part
from headrace.core.function import op


@op
def split_batch(batch: Any, *, context: Any) -> Iterator[Any]:
    """Emit each item of what it receives, a list or an array, as a message of its own.

    Each carries the metadata and the timestamp of what was received. If that stems from the messages of a batch,
    each item answers the call of its own message alone.
    """
    count = len(batch)
    for place in range(count):
        output = context.output
        output.calls = of_part(output.calls, place, count)
        yield batch[place]
