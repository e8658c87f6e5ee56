"""RayHosting: each part of a program is an actor of Ray, with the resources that its fragment asks for.

An actor is a worker of the run (`headrace.parts.agent`): it connects to the driver, and starts the process of its
part. The part does not run in the actor's own process, because that belongs to Ray: its signals, its threads, its
standard output and its ``__main__``.

If the process is lost and the fragment says ``on_loss="restart"``, the driver ends the actor and asks for another
one, which Ray starts on another host if that one is gone. Decided against: to let Ray restart the actor. Ray does
not notice a frozen process or a frozen actor, and would restart for ever one that cannot start.

``auto`` starts Ray on this machine for the run, with a token of its own and files in a folder that is removed
afterwards. Ray listens on all interfaces, whatever address it is given; who does not have the token is refused.
"""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headrace.cluster.ray_start import QUIET, VARIABLES, check_address, ray_on_this_machine
from headrace.core.errors import GraphError
from headrace.lazy import import_or_explain
from headrace.link.handshake import make_token
from headrace.parts.access import Access
from headrace.parts.agent import serve
from headrace.parts.environment import gpus_for, visible
from headrace.parts.hosting import Hosting, Reception
from headrace.parts.messages import Gone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.parts.environment import Launch
    from headrace.parts.hosting import Process
    from headrace.parts.messages import Address, StartPart

AUTO = "auto"


class PartHost:
    """The actor of a part."""

    def __init__(self, part: str) -> None:
        self._part = part

    def run(self, address: Address, access: Access, path: str) -> None:
        """Start the process of a part, until the driver is gone or the run is over.

        Ray has set the GPUs that are visible here. It would pass on what an actor prints, but not all of it at the
        end of the run, so the driver prints it.
        """
        # Ray sets it for its workers. A line would leave the process in two pieces, and only one if it is lost.
        os.environ.pop("PYTHONUNBUFFERED", None)
        os.environ["PYTHONPATH"] = path
        serve(address, access, self._part, is_patient=False, write=None)


class RayHosting(Hosting):
    """The actors of the parts.

    Parameters
    ----------
    address
        ``"auto"``, or the address of a cluster.
    parts
        The fragments.
    access
        How the processes connect to the driver.
    folder
        The folder of the program, which is sent to the hosts of a cluster.
    """

    patience = 30.0
    READINESS = 5.0
    """The seconds between two checks at actors that are not ready: they wait for resources, or are frozen."""

    def __init__(self, address: str, parts: Sequence[Any], access: Access, folder: str) -> None:
        super().__init__(parts)
        self._access = access
        self._ask_at = 0.0
        self._actors: dict[str, Any] = {}
        self.reception: Reception | None = None
        """Where the processes connect to; set before the first start."""
        self.host = "127.0.0.1"
        """The address of this host in the cluster."""
        with ExitStack() as stack:
            stack.callback(_restore, dict(os.environ))
            if address == AUTO:
                # Before the import, because Ray reads them then.
                os.environ.update(VARIABLES)
                os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            else:
                check_address(address)
            self._ray = import_or_explain("ray", "cluster", "to run on a cluster")
            if self._ray.is_initialized():
                raise GraphError(
                    "--cluster: this program uses Ray already; call ray.shutdown() before the run"
                )
            if address == AUTO:
                cpus = max(len(os.sched_getaffinity(0)), _sum(part.cpus for part in parts))
                gpus = len(gpus_for(part.gpus for part in parts))
                stack.enter_context(ray_on_this_machine(self._ray, cpus=cpus, gpus=gpus))
            else:
                stack.callback(self._ray.shutdown)
                self._join_ray(address, folder)
            self._ending = stack.pop_all()

    def _join_ray(self, address: str, folder: str) -> None:
        variables = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        self._ray.init(
            address=address,
            **QUIET,
            runtime_env={"working_dir": folder, "env_vars": variables},
        )
        self.host = self._ray.util.get_node_ip_address()

    def start_elsewhere(self, process: Process) -> None:
        """Create the actor of a part, in the place of one that was lost or is frozen."""
        assert self.reception is not None
        part, fragment = process.part, self._parts[process.part]
        self._end(part)
        former = self._runs.pop(
            part, None
        )  # which is asked no more, although its connection has not ended yet
        if former is not None:
            self._agents.pop(former, None)
            self.note_answer(former)
        self._waiting[part] = process
        gpus = _number(fragment.gpus)
        actor = self._ray.remote(num_cpus=_number(fragment.cpus), num_gpus=gpus)(PartHost)
        host = self._actors[part] = actor.remote(part)
        # Ray's processes have the variables of whoever started Ray.
        end = host.run.remote(self.reception.address, self._access, os.pathsep.join(sys.path))
        end.future().add_done_callback(partial(self._on_end, process, host, self.reception))

    def _start_of(self, process: Process) -> StartPart:
        """Let Ray say which GPUs are visible; it does not say so to simulated devices."""
        gpus, environment = self._parts[process.part].gpus, process.environment
        if gpus is not None:
            environment = {**environment, **visible({}, range(_number(gpus)))}
            del environment["CUDA_VISIBLE_DEVICES"]
        return replace(super()._start_of(process), gpus=None, cpus=None, environment=environment)

    def look(self, absent: Sequence[str]) -> Sequence[str]:
        """Return those of the parts whose actors have a process that is not ready, now and then."""
        now = monotonic()
        if now < self._ask_at:
            return ()
        self._ask_at = now + self.READINESS
        return [part for part in absent if self.has_process(part)]

    def has_process(self, part: str) -> bool:
        """Return whether the actor of a part has a process, which may be frozen: it does not wait for resources.

        Ray has no public way to know. If a version of it has no such table, a part is waited for.
        """
        with suppress(Exception):
            known = self._ray._private.state.actors(self._actors[part]._actor_id.hex())
            return bool(known["Address"]["Port"])
        return False

    def _end(self, part: str) -> None:
        """End the actor of a part, if there is one, and with it the process, even if they are frozen."""
        actor = self._actors.pop(part, None)
        if actor is not None:
            self._ray.kill(actor, no_restart=True)

    def _on_end(self, process: Process, host: Any, reception: Reception, end: Any) -> None:
        """Tell the driver that the actor of a part has failed, in case that it had not connected."""
        error = end.exception()
        if error is not None and self._actors.get(process.part) is host:
            reception.post(Gone(process.part, process.number, f"its actor has failed ({error})"))

    def waits_for(self, parts: Sequence[str]) -> str:
        """Return what the parts ask for that have no process yet."""
        wanted = [
            f"{part!r} (cpus={_number(self._parts[part].cpus)}, gpus={_number(self._parts[part].gpus)})"
            for part in parts
        ]
        there = self._ray.available_resources()
        free = f"cpus={there.get('CPU', 0):g}, gpus={there.get('GPU', 0):g}"
        return f"Ray has not started the processes of {', '.join(wanted)} yet; free in the cluster: {free}"

    def close(self) -> None:
        """End the actors, and Ray itself if it was started here."""
        with self._ending:
            for part in list(self._actors):
                self._end(part)


def open_to_ray(
    options: Mapping[str, str], parts: Sequence[Any], control: Any, launch: Launch
) -> tuple[Reception, Hosting]:
    """Return where processes connect, and Ray, which starts them, for ``headrace run --cluster``."""
    access = Access(make_token(), bool(options.get("HEADRACE_TLS")))
    hosting = RayHosting(options["HEADRACE_CLUSTER"], parts, access, _folder_of(launch.name))
    try:
        reception = hosting.reception = Reception((hosting.host, 0), access)
    except BaseException:
        hosting.close()
        raise
    return reception, hosting


def _folder_of(program: str) -> str:
    """Return the folder of a program: of its file, or the working directory for a module."""
    path = os.path.abspath(program)
    return path if os.path.isdir(path) else os.path.dirname(path)


def _restore(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _number(places: int | Sequence[int] | None) -> int:
    """Return how many GPUs or cores a fragment asks for."""
    return 0 if places is None else places if isinstance(places, int) else len(places)


def _sum(wanted: Iterable[int | Sequence[int] | None]) -> int:
    return sum(map(_number, wanted))
