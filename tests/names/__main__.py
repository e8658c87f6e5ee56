"""Write the snapshot of the stable names anew: `python -m tests.names`."""

from __future__ import annotations

from tests.names.tiers import write

write()
