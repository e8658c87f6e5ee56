"""The variables of the SDK, and their table in docs/from-holoscan.md."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from headrace.core.run_options import RunOptions, read_run_options
from headrace_holoscan import logger
from headrace_holoscan.conditions import CountCondition
from headrace_holoscan.core import Application, Operator
from tests.harness.processes import ROOT

FILES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "packages" / "holoscan" / "src").rglob("*.py")]
VARIABLE = re.compile(r"\bHOLOSCAN_[A-Z_]+[A-Z]\b")


def test_the_table_lists_the_variables_that_are_read() -> None:
    read = {name for path in FILES for name in VARIABLE.findall(path.read_text())}
    # Its name is put together.
    read |= {f"HOLOSCAN_{kind}_WORKER_THREADS" for kind in ("MULTITHREAD", "EVENTBASED")}
    page = (ROOT / "docs" / "from-holoscan.md").read_text()
    table = page.partition("### Variables of the Holoscan SDK")[2].partition("\n\nPrograms read")[0]
    assert set(VARIABLE.findall(table)) == read


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ({"HOLOSCAN_NUM_SOURCE_MESSAGES": "7"}, {"count": 7}),
        ({"HOLOSCAN_NUM_SOURCE_MESSAGES": "7", "HEADRACE_COUNT": "5"}, {"count": 5}),
        ({"HOLOSCAN_MAX_DURATION_MS": "20"}, {"max_duration_ms": 20}),
        ({"HOLOSCAN_MAX_DURATION_MS": "-1"}, {}),
        ({"HOLOSCAN_SCHEDULER": "greedy"}, {"scheduler": ("greedy", None)}),
        ({"HOLOSCAN_SCHEDULER": "eventbased"}, {"scheduler": ("event", 1)}),
        (
            {"HOLOSCAN_SCHEDULER": "multithread", "HOLOSCAN_MULTITHREAD_WORKER_THREADS": "2"},
            {"scheduler": ("multithread", 2)},
        ),
        ({"HEADRACE_SCHEDULER": "event:2", "HOLOSCAN_SCHEDULER": "greedy"}, {"scheduler": ("event", 2)}),
        ({"HOLOSCAN_MULTITHREAD_WORKER_THREADS": "4"}, {}),
        ({"HOLOSCAN_STOP_ON_DEADLOCK": "true"}, {"stop_on_deadlock": True}),
        ({"HOLOSCAN_STOP_ON_DEADLOCK_TIMEOUT": "30"}, {"stop_on_deadlock_timeout": 30}),
        ({"HOLOSCAN_CHECK_RECESSION_PERIOD_MS": "2.5"}, {"check_recession_period_ms": 2.5}),
    ],
)
def test_they_mean_the_same_here(variables: dict[str, str], options: dict[str, Any]) -> None:
    assert read_run_options(variables) == RunOptions(**options)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("HOLOSCAN_SCHEDULER", "best", "must be greedy, multithread or eventbased"),
        ("HOLOSCAN_NUM_SOURCE_MESSAGES", "x", "must be a whole number of at least 1"),
        ("HOLOSCAN_MAX_DURATION_MS", "10s", "must be a whole number of milliseconds"),
        ("HOLOSCAN_STOP_ON_DEADLOCK", "perhaps", "must be one of 1, true"),
        ("HOLOSCAN_CHECK_RECESSION_PERIOD_MS", "nan", "must be a number of milliseconds of 0 or more"),
        ("HOLOSCAN_LOG_LEVEL", "loud", "must be one of trace, debug, info"),
        ("HOLOSCAN_LOG_FORMAT", "TINY", "must be one of DEFAULT, SHORT, LONG, FULL, or a pattern"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str
) -> None:
    monkeypatch.setenv("HOLOSCAN_LOG_LEVEL", "info")
    monkeypatch.setenv(name, value)

    class App(Application):
        def compose(self) -> None:
            self.add_operator(Operator(self, CountCondition(self, 1)))

    with pytest.raises(ValueError, match=f"{name}={value}: {text}"):
        App().run()
    logger.hide()


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("SHORT", r"\[warning\] careful"),
        ("default", r"\[warning\] \[test_variables.py:\d+\] careful"),
        ("LONG", r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\] \[warning\] \[test_variables.py:\d+\] careful"),
        ("FULL", r"\[.*\] \[headrace\.x\] \[warning\] \[.*\] careful"),
        ("%L|%-9n|%=9l|%11l|%v|100%%|%Q", r"W\|headrace.x\| warning \|    warning\|careful\|100%\|%Q"),
    ],
)
def test_the_log_has_the_form_that_it_asks_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str, shown: str
) -> None:
    monkeypatch.setattr("headrace.core.log.has_own_handlers", lambda: False)
    monkeypatch.setenv("HOLOSCAN_LOG_LEVEL", "WARN")
    monkeypatch.setenv("HOLOSCAN_LOG_FORMAT", form)
    logger.follow_environment()
    logging.getLogger("headrace.x").warning("care%s", "ful")
    logger.hide()
    assert re.fullmatch(shown + "\n", capsys.readouterr().err)
