"""A device that is added from outside runs the same programs, and says by its name what it lacks."""

from __future__ import annotations

from tests.harness.processes import run_forked

FRAMES = ["[10, 10, 10, 10]", "[20, 20, 20, 20]", "[30, 30, 30, 30]"]


def test_a_registered_device_runs_a_program_that_names_no_device() -> None:
    told = run_forked("-m", "tests.outside.a_program", HEADRACE_DEVICE="at_once")
    assert told.stderr == ""
    assert told.stdout.splitlines() == [
        *FRAMES,
        "done None",
        "at_once a device that works at once 1 stream",
    ]


def test_a_name_that_nobody_registered_is_refused_with_the_names_that_exist() -> None:
    told = run_forked("-m", "tests.outside.a_program", HEADRACE_DEVICE="at_twice")
    assert "HEADRACE_DEVICE='at_twice': must be one of auto, cuda, sim, none, at_once" in told.stderr


def test_the_command_describes_it() -> None:
    code = "import tests.outside.a_device; from headrace.cli import main; main(['info'])"
    told = run_forked("-c", code, HEADRACE_DEVICE="at_once")
    assert "Device   a device that works at once\n  0  a device that works at once" in told.stdout, (
        told.stderr
    )


def test_what_it_lacks_is_an_error_that_names_it() -> None:
    code = (
        "import tests.outside.a_device; from headrace import gpu\n"
        "from headrace.gpu.capture import captured_nodes\n"
        "captured_nodes(gpu.LEGACY_DEFAULT_STREAM)"
    )
    told = run_forked("-c", code, HEADRACE_DEVICE="at_once")
    assert "NotImplementedError: the device 'at_once' has no graphs" in told.stderr
