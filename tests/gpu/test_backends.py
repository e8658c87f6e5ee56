"""Choosing a device, and what importing costs."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace import gpu
from headrace.gpu import sim
from headrace.gpu.backend import DEVICE_NAMES
from tests.gpu.bench import lack_of_cuda
from tests.harness.processes import run_forked, run_python

FAKE_CUDA = """
import sys, types
def module(name, **names):
    found = sys.modules[name] = types.ModuleType(name)
    found.__dict__.update(names)
    return found
class CUresult:
    CUDA_SUCCESS = 0
class Device:
    @staticmethod
    def get_all_devices(): return {devices}
def version(): {version}
module("cuda"); module("cuda.bindings")
sys.modules["cuda.bindings"].driver = types.SimpleNamespace(
    CUresult=CUresult, cuDriverGetVersion=version, cuInit=lambda flags: (0,))
module("cuda.core", Device=Device)
"""


def run(code: str, *, device: str | None = None) -> subprocess.CompletedProcess[str]:
    return run_forked("-c", code, HEADRACE_DEVICE=device)


def run_new(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program that has imported nothing yet."""
    return run_python("-c", code, HEADRACE_DEVICE=None)


def fake(version: str = "return 0, 13000", devices: str = "(object(),)") -> str:
    return FAKE_CUDA.format(version=version, devices=devices)


NO_CUDA = "import sys; sys.modules['cuda'] = None\n"  # importing it then fails


def test_without_a_gpu_auto_simulates_and_says_so_once() -> None:
    result = run(NO_CUDA + "from headrace import gpu; gpu.Device(0); gpu.Stream; print(gpu.backend())")
    assert result.stdout.strip() == "sim"
    (line,) = result.stderr.splitlines()
    assert line.startswith("headrace: ")
    assert line.endswith("running on a simulated device, in paced time")


def test_the_kind_of_time_is_that_of_the_machine_in_use() -> None:
    code = "from headrace import gpu; from headrace.gpu import sim\nwith sim.Machine(time='virtual'): gpu.Device(0)"
    (line,) = run(NO_CUDA + code).stderr.splitlines()
    assert line.endswith("running on a simulated device, in virtual time")


def test_a_wrong_choice_names_the_right_ones() -> None:
    result = run("from headrace import gpu; gpu.Device", device="gpu")
    assert "ValueError: HEADRACE_DEVICE='gpu': must be one of auto, cuda, sim, none" in result.stderr


def test_an_empty_choice_is_none() -> None:
    result = run(NO_CUDA + "from headrace import gpu; print(gpu.backend())", device="")
    assert result.stdout.strip() == "sim"


def test_none_means_none() -> None:
    result = run("from headrace import gpu; print(gpu.backend()); gpu.Device", device="none")
    assert result.stdout.strip() == "none"
    assert "DeviceUnavailable: this program needs a device, but HEADRACE_DEVICE=none" in result.stderr


def test_cuda_without_cuda_says_what_is_missing() -> None:
    result = run(NO_CUDA + "from headrace import gpu; gpu.Device", device="cuda")
    assert "DeviceUnavailable: HEADRACE_DEVICE=cuda, but " in result.stderr


def test_auto_takes_cuda_where_there_is_a_device() -> None:
    result = run(fake() + "from headrace import gpu; print(gpu.backend())")
    assert (result.stdout.strip(), result.stderr) == ("cuda", "")


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_driver_before_12_4_is_an_error_that_names_both_versions(device: Any) -> None:
    result = run(fake(version="return 0, 12030") + "from headrace import gpu; gpu.backend()", device=device)
    assert "the NVIDIA driver supports CUDA 12.3; headrace needs 12.4 or newer" in result.stderr
    assert "HEADRACE_DEVICE=sim" in result.stderr


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (
            {"version": "raise RuntimeError('libcuda is missing')"},
            "no usable NVIDIA driver.*libcuda is missing",
        ),
        ({"devices": "()"}, "sees no CUDA device"),
    ],
)
def test_a_driver_that_cannot_be_used_says_why(setting: str, text: str) -> None:
    code = fake(**setting) + "from headrace import gpu; gpu.backend()"
    assert re.search(text + ".*; running on a simulated device", run(code).stderr)
    assert re.search(
        f"DeviceUnavailable: HEADRACE_DEVICE=cuda, but .*{text}", run(code, device="cuda").stderr
    )


def test_importing_headrace_imports_no_gpu_library() -> None:
    code = (
        "import json, sys, headrace, headrace.gpu\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    imported = json.loads(run_new(code).stdout)
    assert not {"cuda", "cupy", "torch", "jax", "numba", "rich", "matplotlib"} & set(imported)


def test_importing_headrace_gpu_imports_only_what_every_program_needs() -> None:
    code = (
        "import json, sys, headrace\n"
        "before = set(sys.modules)\n"
        "import headrace.gpu\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    imported = json.loads(run_new(code).stdout)
    assert not {"numpy", "pathlib", "dataclasses", "ctypes", "headrace.gpu.sim"} & set(imported)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    result = run("from headrace import gpu; gpu.Devcie", device="sim")
    assert "AttributeError: module 'headrace.gpu' has no attribute 'Devcie'" in result.stderr


def test_the_simulation_has_the_listed_device_names():
    assert set(sim.__all__) > DEVICE_NAMES < set(gpu.__all__)
    assert all(hasattr(sim, name) for name in DEVICE_NAMES)


def test_cuda_takes_exactly_the_listed_device_names_from_cuda_core():
    code = (
        fake()
        + "from headrace.gpu.backend import DEVICE_NAMES\n"
        + "GRAPH_NAMES = [name for name in DEVICE_NAMES if name.startswith('Graph') or name.endswith('Node')]\n"
        + "core = sys.modules['cuda.core']\n"
        + "core.graph = types.SimpleNamespace()\n"
        + "core.__path__ = []\n"
        + "for name in set(DEVICE_NAMES) - {'Device', 'CUDAError'}:\n"
        + "    place = core.graph if name in GRAPH_NAMES else core\n"
        + "    setattr(place, name, object())\n"
        + "class CUDAError(Exception): pass\n"
        + "module('cuda.core._utils'); module('cuda.core._utils.cuda_utils', CUDAError=CUDAError)\n"
        + "sys.modules['cuda'].core = core\n"
        + "from headrace import gpu; from headrace.gpu import cuda\n"
        + "print(set(dir(cuda)) == set(DEVICE_NAMES) and gpu.CUDAError is CUDAError)\n"
        + "for name in GRAPH_NAMES: setattr(core, name, getattr(core.graph, name))\n"
        + "print(all(getattr(cuda, name) is getattr(core, name, CUDAError) for name in DEVICE_NAMES))\n"
        + "print(all(getattr(gpu, name) is getattr(cuda, name) for name in DEVICE_NAMES))"
    )
    result = run(code, device="cuda")
    assert (result.stdout.split(), result.stderr) == (["True"] * 3, "")


def test_the_names_are_the_backends_own_objects() -> None:
    code = (
        "from headrace import gpu; from headrace.gpu import sim\n"
        "print(all(getattr(gpu, name) is getattr(sim, name) for name in gpu._DEVICE_NAMES))\n"
        "print(all(hasattr(gpu, name) for name in gpu.__all__) and set(gpu.__all__) == set(dir(gpu)))"
    )
    assert run(code, device="sim").stdout.split() == ["True", "True"]


def test_the_tests_of_this_folder_run_on_a_real_device_too() -> None:
    """Show it among what was skipped where they do not; the files of tests that need one can be imported anyway."""
    for file in sorted((Path(__file__).parent / "real").glob("test_*.py")):
        with contextlib.suppress(pytest.skip.Exception):
            importlib.import_module(f"tests.gpu.real.{file.stem}")
    if lack := lack_of_cuda():
        pytest.skip(f"{lack}: tests/gpu is about the simulated device alone, and tests/gpu/real is left out")
