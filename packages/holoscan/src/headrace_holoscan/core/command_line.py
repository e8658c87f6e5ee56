"""The command line of an application: the options that the SDK takes, and the rest, which is the program's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace_holoscan.lenience import tell

_FLAGS = {"--driver": "run_driver", "--worker": "run_worker"}
_VALUES = {
    "--address": "driver_address",
    "--worker-address": "worker_address",
    "--fragments": "worker_targets",
    "--config": "config_path",
}


@dataclass
class CLIOptions:
    """The options of an application."""

    run_driver: bool = False
    run_worker: bool = False
    driver_address: str = ""
    worker_address: str = ""
    worker_targets: list[str] = field(default_factory=list)
    config_path: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """The same as variables of ``headrace run``."""
        given = {
            "HEADRACE_DRIVER": "1" if self.run_driver else "",
            "HEADRACE_WORKER": "1" if self.run_worker else "",
            "HEADRACE_ADDRESS": self.driver_address,
            "HEADRACE_FRAGMENTS": ",".join(self.worker_targets),
            "HEADRACE_WORKER_ADDRESS": self._worker_host,
        }
        return {name: value for name, value in given.items() if value}

    @property
    def _worker_host(self) -> str:
        """The address of the worker without its port: fragments find free ones, so two workers never share one."""
        host = self.worker_address.rpartition(":")[0]
        if "]:" not in self.worker_address and self.worker_address.count(":") != 1:
            return self.worker_address
        tell(
            f"--worker-address {self.worker_address}: the port is ignored",
            "each fragment listens at a free port of that address",
        )
        return host

    def print(self) -> None:
        """Print them."""
        print(repr(self))

    def __repr__(self) -> str:
        return (
            f"<holoscan.core.CLIOptions: run_driver:{self.run_driver} run_worker:{self.run_worker} "
            f"driver_address:{self.driver_address!r} worker_address:{self.worker_address!r} "
            f"worker_targets:{','.join(self.worker_targets)} config_path:{self.config_path!r}>"
        )


def parse(argv: Sequence[str] | None) -> tuple[list[str], CLIOptions]:
    """Return the words that are left for the program, without that of the interpreter, and the options."""
    words = iter([*argv][1:] if argv else sys.argv)
    rest: list[str] = []
    options = CLIOptions()
    for word in words:
        option, equals, value = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif word in _FLAGS:
            setattr(options, _FLAGS[word], True)
        elif option in _VALUES:
            given = value if equals else next(words, None)
            if given is None:
                tell(f"{option} has no value and is ignored", f"{option} needs a value")
            elif option == "--fragments":
                options.worker_targets += given.split(",")
            else:
                setattr(options, _VALUES[option], given)
        else:
            rest.append(word)
    return rest or [""], options
