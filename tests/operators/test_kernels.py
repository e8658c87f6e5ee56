"""The CUDA implementation of a routine computes what the NumPy one does, bit by bit."""

from __future__ import annotations

import pytest

from tests.operators.cases import CASES, Case
from tests.operators.compiled_kernels import compare_every_routine


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_kernel_computes_what_numpy_computes(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = compare_every_routine(monkeypatch)
    case.on_host()
    assert ran, "the operator ran no routine"
