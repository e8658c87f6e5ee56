"""The configuration of a program: a file of YAML, which may lack sections, or be missing altogether."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from headrace.vocabulary import Config as _Config
from headrace_holoscan.core.arguments import Arg, ArgList
from headrace_holoscan.core.yaml_values import load
from headrace_holoscan.lenience import tell


class Config(_Config):
    """The sections of a file; the file of the command line or of ``HOLOSCAN_CONFIG_PATH`` comes before it.

    Parameters
    ----------
    config_file
        The path of the file; empty for a configuration without sections.
    prefix
        Kept, and without meaning.
    chosen
        The file that the command line names.
    """

    __slots__ = ("config_file", "prefix")

    def __init__(self, config_file: str | Path = "", prefix: str = "", chosen: str = "") -> None:
        self.prefix = prefix
        self.config_file = chosen or os.environ.get("HOLOSCAN_CONFIG_PATH") or str(config_file)
        super().__init__(self.config_file or None)
        if "extensions" in self._sections:
            tell(
                f"{self.where} lists extensions, which are libraries of compiled components; they are not loaded",
                "headrace loads no such libraries; its operators are Python classes",
            )

    def _read(self, file: str | Path, origin: str = "") -> None:
        try:
            super()._read(file, origin)
        except FileNotFoundError as error:
            raise RuntimeError(f"Config file '{file}' doesn't exist") from error
        except (OSError, ValueError) as error:
            raise RuntimeError(str(error)) from error

    def _load(self, text: str, what: str) -> Any:
        return load(text, what)

    def found(self, key: str) -> Any:
        """Return the value of a key; an empty section if it is not there, or if there is nothing in it."""
        try:
            value = self.value(key)
        except KeyError as error:
            what = f"Unable to find the parameter item/map with key {key!r}; an empty section is used"
            tell(what, str(error), error=True)
            return {}
        if isinstance(value, list):
            raise RuntimeError(f"{self.where}: {key!r} is a list, and not a section or a single value")
        return {} if value is None else value

    def arguments(self, key: str) -> Any:
        """Return a section as an ArgList; the only value of a section, or a single value, as an Arg."""
        named = self.keywords(key)
        args = ArgList(Arg(name, value, key) for name, value in named.items())
        return args[0] if len(args) == 1 else args

    def keywords(self, key: str) -> dict[str, Any]:
        """Return a section, or a single value under its own name, as keyword arguments."""
        value = self.found(key)
        return dict(value) if isinstance(value, dict) else {key.rpartition(".")[2]: value}
