"""Names have tiers: stable ones keep their parameters."""

from __future__ import annotations

import json

import pytest

from headrace._runtime import is_compiled
from tests.names.tiers import EVERY, SNAPSHOT, public, snapshot, stable

REMEDY = "if that is meant, say so in the changes, and run `python -m tests.names`"


@pytest.mark.parametrize("module", EVERY)
def test_stable_names_are_exported(module: str) -> None:
    assert set(stable(module)) <= set(public(module))


@pytest.mark.skipif(is_compiled(), reason="compiled classes have no signatures")
def test_stable_names_are_what_they_were() -> None:
    now, before = json.loads(json.dumps(snapshot())), json.loads(SNAPSHOT.read_text())
    changed = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
    assert not changed, f"{', '.join(changed)} changed; {REMEDY}"
