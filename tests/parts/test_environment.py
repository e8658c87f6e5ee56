"""The GPUs, cores, files and patterns of the process of a part."""

from __future__ import annotations

import pytest

from headrace import Fragment
from headrace.core.errors import GraphError
from headrace.parts.environment import assign, environment_of, visible

PORTS = {"edge": [("edge.camera", "out")], "server": [("server.detector", "frame")]}


def test_counted_places_are_not_shared_and_named_ones_are() -> None:
    wanted = {"a": 1, "b": (0, 2), "c": None, "d": 1, "e": (2,), "f": 0}
    assert assign("gpus", wanted, range(5)) == {"a": [1], "b": [0, 2], "c": None, "d": [3], "e": [2], "f": []}


def test_places_that_are_not_there_are_refused() -> None:
    with pytest.raises(GraphError, match=r"'a' asks for gpus=\[4\], and there is no 4; there are \[0, 1\]"):
        assign("gpus", {"a": (4,)}, range(2))
    with pytest.raises(
        GraphError, match=r"'b' asks for gpus=1, and 0 are left of 1: the fragments ask for 2 .*gpus=\[0\]"
    ):
        assign("gpus", {"a": 1, "b": 1}, range(1))


@pytest.mark.parametrize("wrong", [-1, "0", 1.5, [0, 0], [], [True]])
def test_a_fragment_takes_a_number_of_gpus_or_which_ones(wrong: object) -> None:
    with pytest.raises((TypeError, ValueError), match="Fragment 'x': gpus"):
        Fragment(name="x", gpus=wrong)  # type: ignore[arg-type]


def test_a_fragment_is_lost_in_one_of_three_ways() -> None:
    with pytest.raises(ValueError, match="on_loss must be one of 'stop', 'restart', 'go_on', not 'restarts'"):
        Fragment(name="x", on_loss="restarts")


def test_gpus_are_named_as_their_host_sees_them() -> None:
    assert visible({}, [1, 2])["CUDA_VISIBLE_DEVICES"] == "1,2"
    found = visible({"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b,GPU-c"}, [2, 0])
    assert (found["CUDA_VISIBLE_DEVICES"], found["HEADRACE_SIM_DEVICES"]) == ("GPU-c,GPU-a", "2")
    assert visible({}, [])["HEADRACE_DEVICE"] == "none"


def test_the_port_of_the_dashboard_is_that_of_the_driver() -> None:
    given = {"HEADRACE_DASHBOARD": "0.0.0.0:8750"}
    assert environment_of("edge", given, PORTS)["HEADRACE_DASHBOARD"] == "0.0.0.0:0"


def test_files_get_the_name_of_the_part() -> None:
    assert (
        environment_of("edge", {"HEADRACE_RECORD": "a/r.mcap"}, PORTS)["HEADRACE_RECORD"] == "a/r.edge.mcap"
    )
    assert environment_of("edge", {"HEADRACE_RECORD": "rec"}, PORTS)["HEADRACE_RECORD"] == "rec.edge"


def test_patterns_of_ports_go_to_their_part() -> None:
    given = {"HEADRACE_LOG": "*.camera, server.detector.frame,none", "HEADRACE_PROGRESS": "1"}
    assert environment_of("edge", given, PORTS)["HEADRACE_LOG"] == "*.camera,none"
    assert environment_of("server", given, PORTS)["HEADRACE_LOG"] == "server.detector.frame"
    given = {"HEADRACE_RECORD": "a.mcap", "HEADRACE_RECORD_PORTS": "edge.*"}
    assert environment_of("edge", given, PORTS)["HEADRACE_RECORD"] == "a.edge.mcap"
    found = environment_of("server", given, PORTS)
    assert found["HEADRACE_RECORD"] == found["HEADRACE_RECORD_PORTS"] == ""
