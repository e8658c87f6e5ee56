"""The same small programs do the same here and on the Holoscan SDK, but for the differences named here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.programs import PROGRAMS
from tests.oracle.record import outcome

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded.json").read_text())

# What headrace does where it does better, and why. Everything else must be the same.
DIFFERENT: dict[str, tuple[Any, str]] = {
    "a_burst_into_a_long_queue_is_a_batch": (
        [[[100, 101, 102]]],
        "several emits in one compute are delivered, as far as the queue behind them has room",
    ),
    "an_unconnected_output_is_allowed": ([1, 2, 3], "it runs; what it emits there is counted as dropped"),
    "an_unconnected_input": (["refused"], "an operator that could never run is an error, not a silent end"),
    "default_ports_with_two_inputs": (["refused"], "an ambiguous flow is an error, not a silent end"),
    "an_unknown_port_in_receive": (["refused"], "a misspelled port is an error that lists the ports"),
    "an_unknown_port_in_emit": (["refused"], "a misspelled port is an error that lists the ports"),
    "the_sum_of_messages_over_ports": ([2, 2], "min_sum is honoured"),
    "a_timeout_over_a_port": (
        [[30, [1, 2]], [90, [3, 4]], [150, [5, 6]], [250, [7]]],
        "the timeout also comes when nothing else happens",
    ),
    "a_tensor_ping_without_columns_has_channels": (
        [[["tensor", "float64", [7, 2]]]] * 2,
        "None leaves the dimension out, as the SDK's documentation says, and does not mean the default",
    ),
    "a_tensor_ping_larger_than_a_block": (["refused"], "an error that names operator and sizes, not a crash"),
    "a_pool_offers_what_is_larger_than_a_block": (
        [[False, False]],
        "is_available agrees with allocate, which never gives more than one block",
    ),
    "an_exhausted_pool_is_asked_again": (
        [[0, True], [1, True], [2, True], "refused"],
        "an exception, not None",
    ),
    "a_block_larger_than_the_pools": (["refused"], "an exception, not None"),
    "a_freed_block_is_there_again": (
        [True],
        "allocate returns an address that free takes; the SDK returns the byte that is stored there",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_the_reference_system_does(name: str) -> None:
    ours = outcome(name, "headrace")
    if name in DIFFERENT:
        expected, _ = DIFFERENT[name]
        assert ours == expected
        assert RECORDED[name] != expected, "no longer a difference"
    else:
        assert ours == RECORDED[name]
