"""What the command shows of the streams of a program: ``headrace info``, ``headrace graph``, ``headrace check``."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli import main
from tests.cli.programs import write

PROGRAM = """
from headrace import Operator
from headrace.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool


class Stage(Operator):
    def setup(self, spec):
        spec.input("in")
        spec.output("out")

    def compute(self, op_input, op_output, context):
        op_output.emit(op_input.receive("in"), "out")


class OnDefault(Stage):
    def setup(self, spec):
        super().setup(spec)
        spec.default_stream()


class Streams(Application):
    def compose(self):
        slices = CudaGreenContextPool(self, sms_per_partition={"vision": 16})
        vision = CudaGreenContext(self, slices, "vision")
        pool = CudaStreamPool(self, name="fast")
        a, b = Stage(self, vision, name="a"), Stage(self, vision, name="b")
        c, d = Stage(self, pool, name="c"), OnDefault(self, name="d")
        self.add_flow(numbers(self), a, b, c, d, show(self))
        self.share_stream(a, b)


class Branches(Application):
    def compose(self):
        self.stream_per = "branch"
        a, b = Stage(self, name="a"), Stage(self, name="b")
        self.add_flow(numbers(self), a, (b, show(self)))


class Wrong(Streams):
    def compose(self):
        super().compose()
        self.stream_per = "auto"

"""


@pytest.fixture
def app(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HEADRACE_DEVICE", "sim")
    return write(folder, PROGRAM)


def test_info_shows_who_is_on_which_stream_and_where_it_comes_from(
    app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", f"{app}:Streams"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "stream          kind     from                            operators",
        "--------------  -------  ------------------------------  ---------",
        "stream 1        own      any SM, device 0                numbers",
        "stream 2        share    slice vision: 16 SMs, device 0  a, b",
        "stream 3        own      pool 'fast', device 0           c",
        "default stream  default  any SM, device 0                d",
        "stream 5        own      any SM, device 0                show",
    ]


def test_info_takes_arguments_for_a_program_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["info", "--", "more"])
    assert "headrace info: error: unrecognized arguments: more" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "info", "graph"])
def test_streams_that_cannot_be_are_an_error(
    command: str, app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, f"{app}:Wrong"]) == 1
    assert f"headrace {command}: GraphError: 'Wrong': stream_per must be" in capsys.readouterr().err
