from __future__ import annotations

import pytest

from headrace.gpu import allocation, sim
from headrace.tensor import register_library
from headrace.tensor.libraries import reused_in_order
from tests._runtime.streams.rows import Plain, here
from tests.harness.libraries import fresh_registry


@pytest.fixture(autouse=True)
def _on_a_simulated_device(machine: sim.Machine) -> None:
    """Every pipeline here runs on a simulated device in virtual time."""


@pytest.fixture
def plain_library(monkeypatch: pytest.MonkeyPatch, machine: sim.Machine) -> None:
    """A library of plain code that uses memory again in the order of streams, alone and from the beginning."""
    fresh_registry(monkeypatch)
    register_library(Plain())
    for name in list(vars(here)):  # operators refer to it
        monkeypatch.delattr(here, name)
    monkeypatch.setitem(reused_in_order, sim.Buffer, lambda owner: True)
    for address in list(allocation.in_use):  # of an earlier test
        monkeypatch.delitem(allocation.in_use, address)
