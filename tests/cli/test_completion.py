"""headrace completion: the scripts know every command and option."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli import COMMANDS, main, make_parser
from headrace.installation import installing
from tests.harness import PATIENCE


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_script_has_every_command_and_every_option(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    text = script(shell, capsys)
    for name, parser in make_parser(every=True).get_default("commands").items():
        assert name in text
        for action in parser._actions:
            for flag in action.option_strings[-1:]:
                assert flag in text or f"-l {flag[2:]}" in text


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["headrace", ""], [*COMMANDS]),
        (["headrace", "gr"], ["graph"]),
        (["headrace", "run", "--de"], ["--device", "--debug"]),
        (["headrace", "run", "app.py", "--device", ""], ["auto", "cuda", "sim", "none"]),
        (["headrace", "run", "--scheduler", "e"], ["event"]),
        (["headrace", "run", "ap"], ["app.py"]),
        (["headrace", "run", "app.py", "--config", "se"], ["settings.yaml"]),
        (["headrace", "run", "app.py", "--count", ""], []),
        (["headrace", "graph", "app.py", "-o", "se"], ["settings.yaml"]),
        (["headrace", "completion", ""], ["bash", "zsh", "fish", "tcsh", "powershell"]),
        (["headrace", "partition", ""], []),
    ],
)
def test_bash_completes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], offered: list[str]
) -> None:
    for name in ("app.py", "settings.yaml"):
        (tmp_path / name).write_text("")
    quoted = " ".join(f"'{word}'" for word in words)
    ask = (
        f"\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMPREPLY=(); _shtab_headrace; "
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script("bash", capsys) + ask],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stderr == ""
    assert sorted(done.stdout.split()) == sorted(offered)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_accept_their_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "script"
    file.write_text(script(shell, capsys))
    done = subprocess.run([shell, "-n", str(file)], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_shtab_the_command_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert f"needs shtab; {installing('completion')}" in capsys.readouterr().err
