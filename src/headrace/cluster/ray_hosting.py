"""RayHosting: each part of a program is an actor of Ray, with the resources that its fragment asks for.

An actor is an agent (`headrace.parts.agent`): it starts the process of its part, which connects to the driver, and
waits for its end. The part does not run in the actor's own process, because that belongs to Ray: its signals, its
threads, its standard output and its ``__main__``. If the process is lost and the fragment says
``on_loss="restart"``, the actor exits, and Ray starts it again, on another host if that one is gone.

``auto`` starts Ray on this machine for the run, with a token of its own and files in a folder that is removed
afterwards. Ray listens on all interfaces, whatever address it is given; who does not have the token is refused.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from headrace.lazy import import_or_explain
from headrace.parts.agent import Agent
from headrace.parts.remote import Reception
from headrace.parts.remote_driver import RemoteDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.parts.control import Address, Channel

AUTO = "auto"
_RESTART = "restart"
_VARIABLES = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}


class PartHost:
    """The actor of a part, whose name Ray writes before each line of its output."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __repr__(self) -> str:
        return self._part

    def run(self, address: Address, token: bytes, environment: Mapping[str, str], is_kept: bool) -> int:
        """Start the process of a part and wait for its end; return its status.

        If it `is_kept` and lost, this process exits, and Ray starts both again.
        """
        status = Agent(address, token).start(self._part, environment).wait()
        if status and is_kept:
            os._exit(1)
        return status


class RayHosting:
    """The actors of the parts.

    Parameters
    ----------
    address
        ``"auto"``, or the address of a cluster.
    parts
        The fragments.
    token
        The token of the run.
    """

    def __init__(self, address: str, parts: Sequence[Any], token: bytes) -> None:
        self._parts = {part.name: part for part in parts}
        self._token = token
        self._actors: dict[str, Any] = {}
        self._folder = ""
        self._kept = dict(os.environ)
        self.driver_address: Address = ("127.0.0.1", 0)
        """Where the processes connect to; set before the first start."""
        if address == AUTO:
            # Before the import, because Ray reads them then.
            os.environ.update(_VARIABLES)
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        try:
            self._ray = import_or_explain("ray", "cluster", "to run on a cluster")
            if address == AUTO:
                self._start_ray()
            else:
                self._join_ray(address)
        except BaseException:
            self._clean_up()
            raise

    def _start_ray(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="headrace-ray-")
        self._ray.init(
            address="local",
            include_dashboard=False,
            num_cpus=max(len(os.sched_getaffinity(0)), _cpus(self._parts.values())),
            logging_level="ERROR",
            configure_logging=False,
            _temp_dir=self._folder,
        )

    def _join_ray(self, address: str) -> None:
        self._ray.init(
            address=address,
            logging_level="ERROR",
            configure_logging=False,
            runtime_env={"working_dir": os.path.dirname(os.path.abspath(sys.argv[0])) or "."},
        )
        self.driver_address = (self._ray.util.get_node_ip_address(), 0)

    def start(self, part: str) -> None:
        """Create the actor of a part; one that was lost is started again by Ray."""
        if part in self._actors:
            return
        fragment = self._parts[part]
        is_kept = fragment.on_loss == _RESTART
        actor = self._ray.remote(
            num_cpus=_number(fragment.cpus),
            num_gpus=_number(fragment.gpus),
            max_restarts=-1 if is_kept else 0,
            max_task_retries=-1 if is_kept else 0,
        )(PartHost)
        host = self._actors[part] = actor.remote(part)
        host.run.remote(self.driver_address, self._token, {"PYTHONPATH": os.pathsep.join(sys.path)}, is_kept)

    def add_agent(self, fragments: str, channel: Channel) -> None:
        """Refuse an agent: Ray starts the processes."""
        channel.close()

    def close(self) -> None:
        """End the actors, and Ray itself if it was started here."""
        for actor in self._actors.values():
            self._ray.kill(actor, no_restart=True)
        self._ray.shutdown()
        self._clean_up()

    def _clean_up(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        os.environ.clear()
        os.environ.update(self._kept)


def make_ray_driver(*arguments: Any) -> RemoteDriver:
    """Return a driver whose parts are actors of Ray, as the environment asks for (``headrace run --cluster``)."""
    from headrace.link.handshake import make_token

    application = arguments[0]
    token = make_token()
    hosting = RayHosting(os.environ["HEADRACE_CLUSTER"], application.fragment_graph.fragments, token)
    try:
        reception = Reception(hosting.driver_address, token)
        hosting.driver_address = reception.address
        return RemoteDriver(*arguments, reception=reception, hosting=hosting)
    except BaseException:
        hosting.close()
        raise


def _number(places: int | Sequence[int] | None) -> int:
    """Return how many GPUs or cores a fragment asks for."""
    return 0 if places is None else places if isinstance(places, int) else len(places)


def _cpus(parts: Any) -> int:
    return sum(_number(part.cpus) for part in parts)
