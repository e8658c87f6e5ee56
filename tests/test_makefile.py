"""What the Makefile installs and runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.mark.parametrize(
    ("module", "extras"),
    [
        (None, "demo"),
        ("Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024", "demo,cupy12"),
        ("Kernel Module  580.65.06  Sun Jul 13 16:51:00 UTC 2025", "demo,cupy"),
        ("Open Kernel Module for x86_64  590.1  Release Build  (somebody@somewhere)", "demo,cupy"),
    ],
)
def test_a_machine_with_a_driver_gets_cuda_core_and_cupy_to_match(
    tmp_path: Path, module: Any, extras: Any
) -> None:
    driver = tmp_path / "version"
    if module is not None:
        driver.write_text(f"NVRM version: NVIDIA UNIX x86_64 {module}\nGCC version:  gcc version 12.3.0\n")
    told = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", f"NVIDIA={driver}", f"VENV={tmp_path}/venv", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"--editable '.[{extras}]'" in told.stdout
    assert "dev" not in told.stdout.replace("/dev/null", "")  # a demo needs no tools of developers
    assert told.stdout.rstrip().endswith("/python examples/endoscope.py")


@pytest.mark.parametrize("target", ["test-all", "sanitize"])
def test_what_needs_every_array_library_installs_them(tmp_path: Path, target: str) -> None:
    told = subprocess.run(
        ["make", "--dry-run", f"NVIDIA={tmp_path}/none", f"VENV={tmp_path}/venv", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--editable '.[dev]'" in told.stdout
    assert "--editable '.[dev,all-cpu]'" in told.stdout


@pytest.mark.parametrize("target", ["test", "test-all"])
def test_the_tests_run_the_files_and_not_what_was_compiled_from_them_before(
    tmp_path: Path, target: str
) -> None:
    told = subprocess.run(
        ["make", "--dry-run", f"VENV={tmp_path}/venv", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "find src -name '*.so' -delete" in told.stdout.partition("-m pytest")[0]
