"""headrace run."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.cli.run import prepare
from tests.cli.programs import write
from tests.harness.processes import run_forked

GUARD = 'if __name__ == "__main__":\n    '


def said(capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    """Return the lines on stdout, and the text on stderr."""
    captured = capsys.readouterr()
    return captured.out.splitlines(), captured.err


# Which programs.


def test_a_file_runs_as_the_main_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = write(folder, GUARD + "Shows().run()\n    print(__name__, __file__, sys.argv, sys.path[0])")
    assert main(["run", app, "--count", "2", "--", "--fast", "--count", "9"]) == 0
    out, err = said(capsys)
    assert out == ["0", "1", f"__main__ app.py ['app.py', '--fast', '--count', '9'] {folder}"]
    assert err == ""


def test_a_program_finds_its_own_module_while_it_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = write(
        folder,
        "import pickle\n\n\n@op\ndef keep(value):\n    print(pickle.loads(pickle.dumps(Number(value))))\n\n\n"
        "class Keeps(Application):\n    def compose(self):\n        self.add_flow(numbers(self), keep(self))\n\n\n"
        "del Shows\n",
    )
    assert main(["run", app, "--count", "1"]) == 0
    assert said(capsys) == (["Number(value=0)"], "")


def test_a_module_runs_with_its_package(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "", "pipes/__init__.py")
    write(folder, "from . import Shows\nShows().run()\nprint(__package__, sys.argv[1:])", "pipes/live.py")
    assert main(["run", "pipes.live", "--count", "1", "--", "x"]) == 0
    assert said(capsys)[0] == ["0", "pipes ['x']"]


@pytest.mark.parametrize("name", ["pipes", "pipes/"])
def test_a_package_or_folder_runs_its_main_module(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    write(folder, "", "pipes/__init__.py")
    write(folder, "Shows().run()", "pipes/__main__.py")
    assert main(["run", name, "--count", "1"]) == 0
    assert said(capsys)[0] == ["0"]


@pytest.mark.parametrize("name", ["app.py:Shows", "app:Shows"])
def test_a_named_class_is_made_and_run_without_the_rest(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    write(folder, GUARD + "print('not this')")
    assert main(["run", name, "--count", "2"]) == 0
    assert said(capsys)[0] == ["0", "1"]


def test_the_only_application_runs_if_the_program_runs_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", write(folder, ""), "--count", "2"]) == 0
    assert said(capsys)[0] == ["0", "1"]


def test_a_program_that_decides_by_itself_is_not_overruled(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", write(folder, GUARD + "print('nothing today')")]) == 0
    assert said(capsys) == (
        ["nothing today"],
        "headrace run: app.py ended without running an application\n",
    )


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("none.py", "there is no file 'none.py'"),
        ("no.such.module", "there is no file and no module 'no.such.module'"),
        ("app.py:Show", "app.py:Show does not exist; app.py has Shows, More"),
        ("app.py:Number", "app.py:Number is no application class; app.py has Shows, More"),
        ("app.py", "app.py runs nothing and has several applications; name one: app.py:Shows, app.py:More"),
        ("empty", "there is no file 'empty/__main__.py'"),
        ("empty.inner", "'empty.inner' is a package without a __main__ module, so it cannot be run"),
    ],
)
def test_a_program_that_cannot_be_found_is_wrong_usage(
    folder: Path, capsys: pytest.CaptureFixture[str], program: str, text: str
) -> None:
    write(folder, "class More(Shows):\n    pass\n")
    for package in ("empty", "empty/inner"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("")
    assert main(["run", program]) == 2
    assert said(capsys) == ([], f"headrace run: {text}\n")


def test_a_missing_import_of_the_program_is_an_error_of_the_program(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, "import no_such_library", "pipes/__init__.py")
    write(folder, "", "pipes/live.py")
    assert main(["run", "pipes.live"]) == 1
    assert "ModuleNotFoundError: No module named 'no_such_library'" in said(capsys)[1]


# What the options do.


def test_every_option_sets_its_variable_for_the_program_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = write(
        folder,
        GUARD
        + "print(*sorted(f'{k}={v}' for k, v in os.environ.items() if k.startswith('HEADRACE_')), sep='\\n')",
    )
    options = (
        "--device none --scheduler event --workers 3 --duration 10s --stop-timeout 5s --count 7 "
        "--set camera.fps=30 --set a.b.c=x=y --config other.yaml --track --trace out.json --log cam.out "
        "--log 'a.*,b.in' --record rec.dat --ports cam.out --ports cam.depth --replay old.dat "
        "--dashboard 0.0.0.0:80 --view out.mp4 --no-progress --log-level info"
    )
    import shlex

    assert main(["run", app, *shlex.split(options)]) == 0
    assert said(capsys)[0] == [
        "HEADRACE_CONFIG=other.yaml",
        "HEADRACE_COUNT=7",
        "HEADRACE_DASHBOARD=0.0.0.0:80",
        "HEADRACE_DEVICE=none",
        "HEADRACE_DURATION=10s",
        "HEADRACE_LOG=cam.out,a.*,b.in",
        "HEADRACE_LOG_LEVEL=info",
        "HEADRACE_PROGRESS=0",
        "HEADRACE_RECORD=rec.dat",
        "HEADRACE_RECORD_PORTS=cam.out,cam.depth",
        "HEADRACE_REPLAY=old.dat",
        "HEADRACE_SCHEDULER=event:3",
        "HEADRACE_SET_a__b__c=x=y",
        "HEADRACE_SET_camera__fps=30",
        "HEADRACE_STOP_TIMEOUT=5s",
        "HEADRACE_TRACE=out.json",
        "HEADRACE_TRACK=1",
        "HEADRACE_VIEW=out.mp4",
    ]
    assert "HEADRACE_COUNT" not in os.environ


@pytest.mark.parametrize(
    ("words", "prepared"),
    [
        ("run --dashboard app.py", "run --dashboard=1 app.py"),
        ("run app.py --dashboard", "run app.py --dashboard=1"),
        ("run --dashboard :8080 app.py", "run --dashboard=:8080 app.py"),
        ("run --dashboard [::1]:80 app.py", "run --dashboard=[::1]:80 app.py"),
        ("run --view app.py", "run --view=page app.py"),
        ("run --track app.py", "run --track=1 app.py"),
        ("run --track times.json app.py", "run --track=times.json app.py"),
        ("run --view rerun,a.png app.py:Live", "run --view=rerun,a.png app.py:Live"),
        ("run --dashboard app.py:Live", "run --dashboard=1 app.py:Live"),
    ],
)
def test_an_option_without_a_value_does_not_swallow_the_program(words: str, prepared: str) -> None:
    assert prepare(words.split()) == prepared.split()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--duration 10", "argument --duration: '10': must be a number with a unit, as in 500ms"),
        ("--stop-timeout never", "argument --stop-timeout: 'never': must be a number with a unit"),
        ("--count 0", "argument --count: '0': must be a whole number of at least 1"),
        ("--scheduler fast", "must be greedy, multithread, event"),
        ("--scheduler event:100000000", "must be a whole number from 1 to 1024; write event:4"),
        ("--workers 1025", "argument --workers: '1025': must be a whole number from 1 to 1024"),
        ("--workers 2 --scheduler greedy", "--workers 2 contradicts --scheduler greedy"),
        ("--workers 2 --scheduler event:3", "--workers 2 contradicts --scheduler event:3"),
        ("--set fps", "must be section.key=value, as in camera.fps=30"),
        ("--ports a.b", "--ports needs --record FILE"),
        ("--fragments left", "--fragments NAMES needs --worker"),
        ("--driver --fragments left", "--fragments NAMES needs --worker"),
        ("--worker-address 10.0.0.1", "--worker-address HOST needs --worker"),
        ("--device gpu", "invalid choice: 'gpu'"),
        ("--log-level loud", "must be one of trace, debug"),
        ("--fast", "unrecognized arguments: --fast; the program's own arguments go after --"),
        ("--coun 3", "unrecognized arguments: --coun 3"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_would_be_right(
    folder: Path, capsys: pytest.CaptureFixture[str], words: str, text: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", write(folder, "print('ran')"), *words.split()])
    assert ended.value.code == 2
    out, err = said(capsys)
    assert text in err
    assert out == []


def test_a_setting_of_no_operator_is_an_error_that_lists_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", write(folder, ""), "--count", "1", "--set", "camera.fps=3"]) == 1
    assert "camera__fps=3: there is no operator 'camera'; there are 'numbers', 'show'" in said(capsys)[1]


def test_settings_that_are_read_take_effect(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = write(
        folder,
        "class Set(Application):\n"
        "    def compose(self):\n"
        "        self.add_flow(numbers(self, self.from_config('numbers')), show(self))\n\n\n"
        "app = Set()\napp.config({'numbers': {'count': 1}})\napp.run()\n",
    )
    assert main(["run", app, "--set", "numbers.count=3"]) == 0
    assert said(capsys) == (["0", "1", "2"], "")


def test_the_log_of_operators_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "from headrace import Operator\n\n\n"
        "class Speaker(Operator):\n"
        "    def compute(self, op_input, op_output, context):\n"
        "        self.logger.info('hello')\n\n\n"
        "class App(Application):\n"
        "    def compose(self):\n"
        "        self.add_operator(Speaker(self, CountCondition(self, 1), name='speaker'))\n\n\n"
        "App().run()\n"
    )
    app = write(folder, text)
    assert main(["run", app, "--log-level", "info"]) == 0
    assert "INFO headrace.operator.speaker: hello\n" in said(capsys)[1]
    assert main(["run", app]) == 0
    assert said(capsys)[1] == ""


# How it ends.


FAILS = """
@op
def inverse(value):
    return 6 / value


class Inverses(Application):
    def compose(self):
        inverses = inverse(self)
        self.add_flow(numbers(self, count=2), inverses)
        self.add_flow(inverses, show(self))


Inverses().run()
"""


def test_an_error_of_the_program_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = write(folder, FAILS)
    line = (folder / app).read_text().splitlines().index("    return 6 / value") + 1
    assert main(["run", app]) == 1
    assert said(capsys) == (
        [],
        (
            "headrace run: ZeroDivisionError: division by zero; raised in compute of operator 'inverse' "
            f"(FunctionOperator); app.py:{line}\n(headrace run --debug ... shows the traceback)\n"
        ),
    )


def test_the_place_of_an_error_is_in_the_program_and_not_in_headrace(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "helper.py").write_text("def connect(app, a, b):\n    app.add_flow(a, b, {('no', 'value')})\n")
    app = write(
        folder,
        "import helper\n\n\nclass Wrong(Application):\n    def compose(self):\n"
        "        helper.connect(self, numbers(self), show(self))\n\n\nWrong().run()\n",
    )
    assert main(["run", app]) == 1
    first, _ = said(capsys)[1].splitlines()
    assert "operator 'numbers' has no output 'no'" in first
    assert first.endswith("; helper.py:2")


@pytest.mark.parametrize(
    ("ending", "status", "shown"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('enough')", 1, "enough\n"),
        ("raise KeyboardInterrupt", 130, "headrace run: interrupted\n"),
    ],
)
def test_the_status_of_the_program_is_kept(
    folder: Path, capsys: pytest.CaptureFixture[str], ending: str, status: int, shown: str
) -> None:
    assert main(["run", write(folder, ending)]) == status
    assert said(capsys)[1] == shown


STARVES = """
@op
def pair(a, b):
    return a


class Pairs(Application):
    def compose(self):
        both = pair(self)
        self.add_flow(both, both, {('out', 'a')})
        self.add_flow(numbers(self, count=2, name='right'), both, {('out', 'b')})


Pairs().run()
"""


@pytest.mark.parametrize("how", ["run()", "run_async().result()"])
def test_a_run_that_starved_ends_with_3_and_says_why(
    folder: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    assert main(["run", write(folder, STARVES.replace("run()", how))]) == 3
    assert "'pair' waits for a message at 'a' from 'pair'" in said(capsys)[1]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_ends_the_run_and_then_the_command(tmp_path: Path, number: Any, status: int) -> None:
    app = write(
        tmp_path,
        "import signal\n\n\n@op\ndef send(value):\n"
        f"    os.kill(os.getpid(), {int(number)})\n\n\n"
        "class Ends(Application):\n    def compose(self):\n"
        "        self.add_flow(numbers(self), send(self))\n\n\nEnds().run()\n",
    )
    done = run_forked(
        "-m", "headrace", "run", app, "--scheduler", "event:1", cwd=tmp_path, HEADRACE_DEVICE="none"
    )
    assert done.returncode == status
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_before_the_run_ends_the_command_as_in_the_run(
    tmp_path: Path, number: Any, status: int
) -> None:
    app = write(tmp_path, f"os.kill(os.getpid(), {int(number)})\n")
    done = run_forked("-m", "headrace", "run", app, cwd=tmp_path, HEADRACE_DEVICE="none")
    assert done.returncode == status
    assert "Traceback" not in done.stderr
