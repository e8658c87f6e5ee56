"""Config: the settings of a program, and their sources.

The program names a YAML file or passes a dict. The user may replace the file and set single values in the
environment and, if the program allows it, on the command line:

    ==============  =============================  ====================
    ..              environment                    command line
    ==============  =============================  ====================
    another file    ``HEADRACE_CONFIG=file.yaml``  ``--config file.yaml``
    one value       ``HEADRACE_SET_camera__fps=30``  ``--set camera.fps=30``
    ==============  =============================  ====================

The command line wins over the environment, and both win over the file. A setting that is no key of the
configuration is a parameter of an operator, ``operator.parameter``. Only what exists can be set, because a
misspelled name would otherwise silently change nothing. Operators exist when the program has composed, so their
settings are kept here (`parameters`) and checked then (`InnerComposition.check_settings`). A file replaces the
program's own file as a whole: with merged files, a program would run with a combination of values that neither file
contains.

YAML is read as people write it: 1e6 is a number, 010 and 1:30 are text, and a key appears once. YAML 1.1, which
PyYAML implements, requires a dot and a sign (1.0e+6) and reads 1e6 as text. It reads 010 as 8, and 1:30 as 90. Of
duplicate keys it silently uses the last one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.core.construction import ArgList
from headrace.core.errors import ConfigError, choices

if TYPE_CHECKING:
    from pathlib import Path


def load_yaml(text: str, what: str) -> Any:
    """Return what YAML stands for; raise ValueError, which begins with `what`, if it cannot be read."""
    import yaml  # takes long to import

    try:
        return yaml.load(text, _loader())  # which derives from the safe one
    except yaml.YAMLError as error:
        raise ValueError(f"{what} is not valid YAML: {error}") from None
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply to be read") from None


Settings: TypeAlias = "str | Path | Mapping[str, Any]"
"""The configuration of a program: the path of a YAML file, or a dict of sections."""

SET_PREFIX = "HEADRACE_SET_"
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that was set by name and is no key of the configuration, so it must be a parameter of an operator.

    Attributes
    ----------
    key
        The name: ``"operator.parameter"``.
    origin
        The option or variable that set it, for errors.
    missing
        Why it is no key of the configuration; empty if there is no configuration.
    """

    key: str
    value: Any
    origin: str
    missing: str


def setting_name(key: str) -> str:
    """Return a key as environment variables spell it, in which a dot cannot be told from two underscores."""
    return key.replace(".", "__")


class Config:
    """The sections of a configuration; ``"section.key"`` reaches inside a section.

    Parameters
    ----------
    source
        The path of a YAML file, or a dict of sections; None if only the environment or `options` name a file.
    options
        The options of the command line, as ``("--config", "file.yaml")`` and ``("--set", "camera.fps=30")``.

    Attributes
    ----------
    file
        The file that was read, if any.
    parameters
        The settings of operators' parameters, by `setting_name`.
    """

    __slots__ = ("_options", "_sections", "_source", "file", "parameters", "where")

    def __init__(self, source: Settings | None, options: Iterable[tuple[str, str]] = ()) -> None:
        # Read here, not when the first key is used, so that the traceback of a wrong path shows the line that names
        # it.
        options = list(options)
        self._source, self._options = source, options
        chosen = _chosen_file(options)
        self.file: Path | None = None
        self.where = "the configuration"
        self.parameters: dict[str, Setting] = {}
        self._sections: dict[str, Any]
        if chosen is not None:
            self._read(*chosen)
        elif source is None or isinstance(source, Mapping):
            self._sections = _copy(dict(source or {}))
        else:
            self._read(source)
        for key, value, origin in _environment_settings():
            self._set(key, value, origin)
        for option, value in options:
            if option == "--set":
                key, equals, text = value.partition("=")
                if not equals or not key:
                    raise ConfigError(f"--set {value}: must be section.key=value, as in --set camera.fps=30")
                self._set(key, text, f"--set {value}")

    @staticmethod
    def is_named_outside() -> bool:
        """Return whether the environment names a file."""
        return _chosen_file([]) is not None

    def read_again(self) -> Config:
        """Return the configuration as it is now: the file may have changed."""
        return Config(self._source, self._options)

    def changed_keys(self, before: Config) -> list[str]:
        """Return the keys whose values another configuration does not have, and those that only the other has."""
        now, then = self._values(), before._values()
        return sorted(key for key in {**now, **then} if now.get(key, _ABSENT) != then.get(key, _ABSENT))

    def _read(self, file: str | Path, origin: str = "") -> None:
        from pathlib import Path

        self.file = Path(file)
        self.where = repr(str(file))
        what = f"configuration file {self.where}"
        suffix = f" ({origin})" if origin else ""
        try:
            text = self.file.read_text(encoding="utf-8-sig")
        except OSError as error:
            why = (
                "does not exist"
                if isinstance(error, FileNotFoundError)
                else f"cannot be read: {error.strerror}"
            )
            raise type(error)(f"{what} {why}{suffix}") from None
        except UnicodeDecodeError as error:
            raise ValueError(f"{what} is not UTF-8 text: {error}{suffix}") from None
        sections = self._load(text, f"{what}{suffix}")
        if not isinstance(sections, dict | None):
            kind = type(sections).__name__
            raise ValueError(f"{what} must hold a mapping of sections at its top level, not a {kind}")
        self._sections = _copy(sections or {}, f"{what}{suffix}")

    def _load(self, text: str, what: str) -> Any:
        """Return what the text of a file stands for."""
        return load_yaml(text, what)

    def _set(self, key: str, text: str, origin: str) -> None:
        """Set the value of an existing key, or keep it for an operator; it is written as in a YAML file."""
        value = _copy(load_yaml(text, origin), origin)
        try:
            before = self.value(key)
        except KeyError as error:
            if "." not in key:
                raise ConfigError(f"{origin}: {error}") from None
            self.parameters[setting_name(key)] = Setting(key, value, origin, str(error))
            return
        if isinstance(before, dict) and not isinstance(value, dict):
            raise ConfigError(
                f"{origin}: {key!r} is a section; set one of its keys: "
                f"{choices(f'{key}.{name}' for name in before)}"
            )
        *path, last = key.split(".")
        section = self._sections
        for name in path:
            section = section[name]
        section[last] = value

    def keys(self) -> set[str]:
        """Return the name of every section and every ``section.key``."""
        return {key for key, _ in _entries("", self._sections)}

    def _values(self) -> dict[str, Any]:
        """Return the values that are no sections, by their keys with dots."""
        return {key: value for key, value in _entries("", self._sections) if not isinstance(value, dict)}

    def value(self, key: str) -> Any:
        """Return the value of `key`."""
        value: Any = self._sections
        path: list[str] = []
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                where = f" under {'.'.join(path)!r}" if path else ""
                have = choices(sorted(map(str, value)), part) if isinstance(value, dict) else "no keys"
                raise ConfigError(f"{self.where} has no key {part!r}{where}; it has {have}")
            value = value[part]
            path.append(part)
        return value

    def arguments(self, key: str) -> Any:
        """Return a section as an :class:`ArgList`, and a single value as itself."""
        value = _copy(self.value(key))
        return ArgList.of(value, key) if isinstance(value, dict) else value

    def keywords(self, key: str) -> dict[str, Any]:
        """Return a section, or the single value under its own name, as keyword arguments."""
        value = _copy(self.value(key))
        return value if isinstance(value, dict) else {key.rpartition(".")[2]: value}


def _entries(prefix: str, section: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from _entries(f"{prefix}{key}.", value)


def environment_parameters() -> dict[str, Setting]:
    """Return the settings of the environment for a program without a configuration, by `setting_name`."""
    settings = _environment_settings()
    if not settings:
        return {}
    found: dict[str, Setting] = {}
    for key, text, origin in settings:
        found[setting_name(key)] = Setting(key, _copy(load_yaml(text, origin), origin), origin, "")
    return found


def _environment_settings() -> list[tuple[str, str, str]]:
    """Return the keys and values that the environment sets, and the variables."""
    return [
        (variable.removeprefix(SET_PREFIX).replace("__", "."), value, f"{variable}={value}")
        for variable in sorted(variable for variable in os.environ if variable.startswith(SET_PREFIX))
        for value in [os.environ[variable]]
    ]


def take_options(arguments: list[str]) -> list[tuple[str, str]]:
    """Remove ``--config`` and ``--set`` with their values from a command line, and return them.

    Both ``--set key=value`` and ``--set=key=value`` are recognized. Words after ``--`` are left in place.
    """
    options: list[tuple[str, str]] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
            break
        option, equals, value = word.partition("=")
        if option not in ("--config", "--set"):
            rest.append(word)
            continue
        if not equals:
            following = next(words, None)
            if following is None:
                example = "--set camera.fps=30" if option == "--set" else "--config file.yaml"
                raise ConfigError(f"{option} needs a value, as in {example}")
            value = following
        options.append((option, value))
    arguments[:] = rest
    return options


def _chosen_file(options: list[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the file that replaces the program's own, and the option or variable that names it, or None."""
    for option, value in reversed(options):
        if option == "--config":
            return value, f"--config {value}"
    named = os.environ.get("HEADRACE_CONFIG", "")
    return (named, f"HEADRACE_CONFIG={named}") if named else None


def _copy(value: Any, where: str = "the configuration") -> Any:
    """Return a value with new dicts and lists; raise for one that contains itself.

    A section that YAML repeats (``&name``, ``*name``) is loaded as one object, so setting a value in one place
    would set it in all of them. A change that an operator makes to a list must not affect the next run either.
    """
    around: set[int] = set()
    count = 0

    def copy(value: Any, path: str) -> Any:
        nonlocal count
        if not isinstance(value, dict | list):
            return value
        if id(value) in around:
            raise ValueError(f"{where}: {path!r} contains itself; write out what is meant")
        count += len(value)
        if count > _MOST_VALUES:
            # A few lines of YAML that repeat each other (*name) can stand for any number of values.
            raise ValueError(f"{where} has more than {_MOST_VALUES:,} values, at {path!r}")
        around.add(id(value))
        try:
            if isinstance(value, dict):
                return {key: copy(each, f"{path}.{key}" if path else str(key)) for key, each in value.items()}
            return [copy(each, f"{path}[{place}]") for place, each in enumerate(value)]
        finally:
            around.discard(id(value))

    return copy(value, "")


_MOST_VALUES = 1_000_000


_KINDS = {"timestamp": "a date", "int": "a number that can be read", "float": "a number that can be read"}
_EXPONENT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$")
_AS_TEXT = re.compile(r"[-+]?(?:0[0-9_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)$")


@cache
def _loader() -> type[Any]:
    """Return the class that loads YAML, once PyYAML is needed."""
    import yaml

    def wrong(what: str, node: Any) -> yaml.YAMLError:
        return yaml.constructor.ConstructorError(None, None, what, node.start_mark)

    class Loader(yaml.SafeLoader):
        def construct_object(self, node: Any, deep: bool = False) -> Any:
            """Construct a value; say where it is if its type cannot hold it, as a 13th month."""
            try:
                return super().construct_object(node, deep)
            except (yaml.YAMLError, RecursionError):
                raise
            except Exception as error:
                long = len(node.value) > 40
                shown = f"{node.value:.20}... ({len(node.value)} characters)" if long else node.value
                kind = _KINDS.get(node.tag.rpartition(":")[2], "what its tag says")
                why = str(error).partition(";")[0]
                remedy = "write it in quotes, and without a tag, if it is text"
                raise wrong(f"{shown} is not {kind} ({why}); {remedy}", node) from None

        def compose_mapping_node(self, anchor: Any) -> Any:
            """Raise for a duplicate key."""
            node = super().compose_mapping_node(anchor)
            seen: set[str] = set()
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:str":
                    if key.value in seen:
                        raise wrong(f"the key {key.value!r} appears twice", key)
                    seen.add(key.value)
            return node

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))
    for first in "-+0123456789":
        # Inserted first, because the first resolver that matches is used.
        Loader.yaml_implicit_resolvers[first].insert(0, ("tag:yaml.org,2002:str", _AS_TEXT))
    return Loader
