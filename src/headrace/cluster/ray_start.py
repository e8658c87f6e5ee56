"""How Ray begins for a run: on this machine, as often as it takes, or at an address where somebody listens.

Ray gives its own processes 30 s to start, which is too little on a machine with much other work, and fails then. It
is started anew a few times, each time with a folder of its own, and what an attempt leaves behind is ended. Below
about an eighth of a core Ray does not start at all.

Ray waits long for an address that nobody listens at, and then names its own parts. So the address is tried first.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import signal
import socket
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.core.errors import LinkError, PeerLost

if TYPE_CHECKING:
    from collections.abc import Iterator

ATTEMPTS = 3
VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_gcs_server_port_wait_time_s": "120",  # for the first of its processes; for the others it cannot be set
}
"""What the environment says before Ray is imported."""
QUIET: dict[str, Any] = {"logging_level": "ERROR", "configure_logging": False, "log_to_driver": False}
"""The arguments of ``ray.init`` that keep its lines from those of the program."""
_ANSWER = 5.0  # seconds for a host to answer
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37

_log = logging.getLogger("headrace.parts")


@contextmanager
def ray_on_this_machine(ray: Any, *, cpus: int, gpus: int) -> Iterator[None]:
    """Start Ray with so many cores and GPUs; end it, and remove its files, at the end of a ``with`` block."""
    for attempt in range(1, ATTEMPTS + 1):
        with ExitStack() as stack:
            folder = tempfile.mkdtemp(prefix="headrace-ray-")
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.enter_context(no_orphans(folder))
            stack.callback(ray.shutdown)
            options = {"include_dashboard": False, "num_cpus": cpus, "num_gpus": gpus, "_temp_dir": folder}
            try:
                ray.init(address="local", **options, **QUIET)
            except (ValueError, TypeError):  # it would fail in the same way again
                raise
            except Exception as error:
                if attempt == ATTEMPTS:
                    raise LinkError(
                        f"--cluster auto: Ray did not start on this machine in {ATTEMPTS} attempts: {error} (is it "
                        "very busy? --processes needs no Ray)"
                    ) from error
                _log.warning("Ray did not start (%s); attempt %d of %d", error, attempt + 1, ATTEMPTS)
                continue
            yield
            return


def check_address(address: str) -> None:
    """Raise PeerLost if nobody listens at the address of a cluster."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return  # not the form of an address: Ray says what is wrong with it
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise PeerLost(
            f"--cluster {address}: no cluster of Ray listens there: {error}; on that host, "
            f"`ray start --head --port {port}` starts one"
        ) from error


@contextmanager
def no_orphans(folder: str) -> Iterator[None]:
    """End at the end of a ``with`` block the processes of Ray that have their files in a folder.

    An interrupted start of Ray leaves some behind, which have no parent any more. So this process is the parent of
    orphans meanwhile.
    """
    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        while found := [child for child in _children() if _is_of_ray(child, folder)]:
            for child in found:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(child, 0)
        prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def _children() -> list[int]:
    found = []
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError):  # a thread that has ended
            found += Path(f"/proc/self/task/{task}/children").read_text().split()
    return [int(each) for each in found]


def _is_of_ray(process: int, folder: str) -> bool:
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
    return command.startswith(b"ray::") or folder.encode() in command
