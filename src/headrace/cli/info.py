"""Show the device, its capabilities, the libraries, and what is missing. With a program, show its
streams: which operators work on each, and where it comes from. The program is executed up to the
point where it would run its application, and ends there.

examples:
  headrace info
  HEADRACE_DEVICE=sim headrace info
  headrace info app.py -- --input video.mp4
"""

from __future__ import annotations

import argparse
import os
import platform
from importlib import metadata
from typing import TYPE_CHECKING

from headrace._runtime import StreamLayout, captured_operators, is_compiled
from headrace.cli import Failed
from headrace.cli.program import status_of
from headrace.cli.run import add_program_arguments
from headrace.gpu.backend import Backend, DeviceUnavailable, device_choices, find_backend
from headrace.installation import installing
from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.application import Fragment

# Each library: the distributions that provide it, and the extra that installs it; "" if none does. The libraries of
# every extra are here, and those that are used if they are there.
LIBRARIES = {
    "NumPy": (["numpy"], ""),
    "PyYAML": (["PyYAML"], ""),
    "cuda-core": (["cuda-core"], "cu13"),
    "cuda-bindings": (["cuda-bindings"], "cu13"),
    "CuPy": (["cupy-cuda13x", "cupy-cuda12x", "cupy"], "cupy"),
    "PyTorch": (["torch"], "torch"),
    "JAX": (["jax"], ""),
    "Numba CUDA": (["numba-cuda"], ""),
    "CV-CUDA": (["cvcuda-cu13", "cvcuda-cu12", "cvcuda"], ""),
    "cuCIM": (["cucim-cu13", "cucim-cu12", "cucim"], ""),
    "OpenCV": (
        [f"opencv-{kind}python{head}" for kind in ("", "contrib-") for head in ("", "-headless")],
        "operators",
    ),
    "PyAV": (["av"], "video"),
    "ONNX Runtime": (["onnxruntime-gpu", "onnxruntime"], "inference"),
    "ONNX": (["onnx"], "demo"),
    "aiohttp": (["aiohttp"], "view"),
    "prometheus_client": (["prometheus_client"], "view"),
    "Pillow": (["Pillow"], "view"),
    "Rerun": (["rerun-sdk"], "rerun"),
    "MCAP": (["mcap"], "record"),
    "shtab": (["shtab"], "completion"),
    "Zenoh": (["eclipse-zenoh"], "zenoh"),
    "cryptography": (["cryptography"], "tls"),
    "Ray": (["ray"], "cluster"),
    "NVTX": (["nvtx"], "nvtx"),
    "CUPTI": (["cupti-python"], "cupti"),
    "OpenTelemetry": (["opentelemetry-api"], "otel"),
    "Rich": (["rich"], "demo"),
    "Matplotlib": (["matplotlib"], "demo"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "headrace info [PROGRAM] [options] [-- arguments of the program]"
    add_program_arguments(parser, is_required=False)


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    if options.program is not None:
        return status_of(options, _of_program)
    if options.arguments:
        options.error(f"unrecognized arguments: {' '.join(options.arguments)}")
    try:
        print(info())
    except ValueError as error:  # a mistake in the environment
        raise Failed(error) from None
    return 0


def _of_program(options: argparse.Namespace) -> int:
    from headrace.cli.graph import of_composed

    print(of_composed(options, "show", streams))
    return 0


def streams(fragment: Fragment) -> str:
    """Return the streams of a composed program as a table."""
    from headrace.observe.figures.tables import table

    layout = StreamLayout(fragment.graph, captured_operators(fragment._headrace.segments))
    found = [
        (each.label, each.kind, each.origin, ", ".join(operator.name for operator in each.operators))
        for each in layout
    ]
    return "\n".join(table(("stream", "kind", "from", "operators"), found, left=4))


def info() -> str:
    """Return the report of the device and the libraries as text."""
    advice: list[str] = []
    lines = [f"headrace {__version__}, Python {platform.python_version()} on {platform.platform()}"]
    lines += [f"Hot path   {'compiled' if is_compiled() else 'pure Python'}", ""]
    lines += [*_devices(advice), "", "Libraries"]
    found = {name: _version_of(candidates) for name, (candidates, _) in LIBRARIES.items()}
    width = max(map(len, found))
    lines += [f"  {name:<{width}}  {version or _missing(name)}" for name, version in found.items()]
    if not found["CuPy"] and not found["PyTorch"]:
        advice.append(f"arrays on the GPU: {installing('cupy')}, or with torch")
    if not (found["Rich"] and found["Matplotlib"]):
        advice.append(f"the demo's table and plot: {installing('demo')}")
    if advice:
        lines += ["", "To enable more features", *(f"  {line}" for line in advice)]
    return "\n".join(lines)


def _devices(advice: list[str]) -> list[str]:
    asked = os.environ.get("HEADRACE_DEVICE") or "auto"
    if asked not in device_choices():
        return [f"Device   none: HEADRACE_DEVICE={asked!r} must be one of {', '.join(device_choices())}"]
    backend = find_backend("cuda" if asked == "auto" else asked)
    try:
        lack = backend.why_not()
    except DeviceUnavailable as error:
        advice.append("a newer NVIDIA driver, for CUDA 12.4 or later")
        return [f"Device   none: {error}"]
    if lack is None:
        return _device(backend, f"HEADRACE_DEVICE={asked}", advice)
    if asked != "auto":
        advice.append(f"a CUDA device: {lack}")
        return [f"Device   none: HEADRACE_DEVICE={asked}, but {lack}"]
    advice.append(f"a real device: {lack}")
    return _device(find_backend("sim"), lack, advice)


def _device(backend: Backend, why: str, advice: list[str]) -> list[str]:
    """Return what there is to say about a device that can be used, and why it was chosen."""
    if not backend.has_devices:
        return [f"Device   none ({why})"]
    clock = backend.clock()
    if clock is None:
        return [f"Device   {backend.description}", *_abilities(backend, advice)]
    time = "virtual" if clock.is_virtual else "paced"
    return [f"Device   simulated ({why})", f"Time     {time}: {_TIMES[time]}", *_abilities(backend, advice)]


_TIMES = {
    "virtual": "figures are the simulation's; the wall clock shows less (HEADRACE_SIM_TIME=virtual)",
    "paced": "figures are the simulation's; the wall clock shows no less",
}


def _abilities(backend: Backend, advice: list[str]) -> list[str]:
    driver = backend.driver_version
    if driver is None:
        return [f"  {device.device_id}  {device.name}" for device in backend.names.Device.get_all_devices()]
    version = ".".join(map(str, driver))
    by_group = driver >= (13, 1)
    how = "by the driver" if by_group else "from the driver's smallest groups"
    lines = [
        f"Driver   CUDA {version}",
        f"Green contexts   yes; unequal partitions {how}; workqueues {'yes' if by_group else 'no'}",
    ]
    if not by_group:
        advice.append(f"partitions in steps of 2 SMs, workqueues: a driver for CUDA 13.1 (now {version})")
    for device in backend.names.Device.get_all_devices():
        sm = device.resources.sm
        major, minor = device.compute_capability
        lines.append(
            f"  {device.device_id}  {device.name}: compute capability {major}.{minor}, {sm.sm_count} SMs, "
            f"partitions of {sm.min_partition_size} SMs or more in steps of {sm.coscheduled_alignment}"
        )
    return lines


def _missing(library: str) -> str:
    _, extra = LIBRARIES[library]
    return f"-  (headrace[{extra}])" if extra else "-"


def _version_of(candidates: list[str]) -> str | None:
    for distribution in candidates:
        try:
            return f"{metadata.version(distribution)} ({distribution})"
        except metadata.PackageNotFoundError:
            continue
    return None
