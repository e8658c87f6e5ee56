"""What the Makefile installs."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.mark.parametrize(
    ("version", "extras"),
    [
        (None, "dev"),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 13 16:51:00 UTC 2025",
            "dev,cu13",
        ),
        ("UNIX Open Kernel Module for x86_64  590.1  Release Build  (x@y)", "dev,cu13"),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
            "dev,cu12",
        ),
    ],
)
def test_a_machine_with_a_driver_gets_cuda_core_to_match(tmp_path, version, extras):
    driver = tmp_path / "version"
    if version is not None:
        driver.write_text(
            "NVRM version: NVIDIA "
            + version
            + "\nGCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
        )
    told = subprocess.run(
        ["make", "--dry-run", f"NVIDIA={driver}", f"VENV={tmp_path}/venv", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"--editable '.[{extras}]'" in told.stdout
