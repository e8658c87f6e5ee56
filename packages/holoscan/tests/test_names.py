"""Every public name of the SDK is here, or says when it is used why it is not."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from headrace_holoscan.absent import NotHereError, reason_of
from packages.holoscan.tests.names_table import MODULES, NAMES, PAGE, page, state_of
from packages.holoscan.tests.sdk_names import shown

CONSTRUCTORS = [
    (module, name)
    for module in ("conditions", "resources", "schedulers", "operators", "data_loggers")
    for name in NAMES[module]["constructors"]
]


def found(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"headrace_holoscan.{module}"), name)


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_here_or_says_why_not(module: str) -> None:
    assert [name for name in NAMES[module]["names"] if state_of(module, name) == "missing"] == []


@pytest.mark.parametrize("module", MODULES)
def test_importing_everything_gives_every_name(module: str) -> None:
    space: dict[str, Any] = {}
    exec(f"from headrace_holoscan.{module} import *", space)
    assert {*NAMES[module]["names"], *NAMES[module]["submodules"]} <= set(space)


def test_the_table_of_the_docs_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run python -m packages.holoscan.tests.names_table"


def test_a_name_that_is_not_here_fails_when_it_is_used() -> None:
    absent = {
        name: found(module, name)
        for module in MODULES
        for name in NAMES[module]["names"]
        if reason_of(found(module, name))
    }
    assert "GXFCodeletOp" in absent
    for name, value in absent.items():
        with pytest.raises(NotHereError, match=f"{name} is not here: "):
            value(None)


@pytest.mark.parametrize(("module", "name"), CONSTRUCTORS)
def test_a_constructor_takes_what_the_sdks_takes(module: str, name: str) -> None:
    cls = found(module, name)
    expected = NAMES[module]["constructors"][name]
    if reason_of(cls) is None and "**kwargs" not in expected:
        assert shown(inspect.signature(cls.__init__)) == expected
