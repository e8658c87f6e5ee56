"""Config: the settings of a program, and their sources.

The program names a YAML file or passes a dict. The user may replace the file and set single values in the
environment and, if the program allows it, on the command line:

    ==============  =============================  ====================
    ..              environment                    command line
    ==============  =============================  ====================
    another file    ``HEADRACE_CONFIG=file.yaml``  ``--config file.yaml``
    one value       ``HEADRACE_SET_camera__fps=30``  ``--set camera.fps=30``
    ==============  =============================  ====================

The command line wins over the environment, and both win over the file. Only keys that exist can be set, because a
misspelled key would otherwise silently change nothing. A file replaces the program's own file as a whole: with
merged files, a program would run with a combination of values that neither file contains.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.core.arguments import ArgList
from headrace.core.errors import ConfigError, choices

if TYPE_CHECKING:
    from pathlib import Path

Settings: TypeAlias = "str | Path | Mapping[str, Any]"
"""The configuration of a program: the path of a YAML file, or a dict of sections."""

FILE_VARIABLES = ("HEADRACE_CONFIG", "HOLOSCAN_CONFIG_PATH")
SET_PREFIX = "HEADRACE_SET_"


class Config:
    """The sections of a configuration; ``"section.key"`` reaches inside a section.

    Parameters
    ----------
    source
        The path of a YAML file, or a dict of sections; None if only the environment or `options` name a file.
    options
        The options of the command line, as ``("--config", "file.yaml")`` and ``("--set", "camera.fps=30")``.
    """

    __slots__ = ("_sections", "file", "where")

    def __init__(self, source: Settings | None, options: Iterable[tuple[str, str]] = ()) -> None:
        # Read here, not when the first key is used, so that the traceback of a wrong path shows the line that names
        # it.
        options = list(options)
        chosen = _chosen_file(options)
        self.file: Path | None = None
        self.where = "the configuration"
        self._sections: dict[str, Any]
        if chosen is not None:
            self._read(*chosen)
        elif isinstance(source, Mapping):
            self._sections = _copy(dict(source))
        elif source is not None:
            self._read(source)
        else:
            self._sections = {}
        for variable, value in sorted(os.environ.items()):
            if variable.startswith(SET_PREFIX):
                key = variable.removeprefix(SET_PREFIX).replace("__", ".")
                self._set(key, value, f"{variable}={value}")
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

    def _read(self, file: str | Path, origin: str = "") -> None:
        from pathlib import Path

        self.file = Path(file)
        self.where = repr(str(file))
        suffix = f" ({origin})" if origin else ""
        try:
            text = self.file.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise FileNotFoundError(f"configuration file {self.where} does not exist{suffix}") from None
        except OSError as error:
            raise type(error)(
                f"configuration file {self.where} cannot be read: {error.strerror}{suffix}"
            ) from None
        except UnicodeDecodeError as error:
            raise ValueError(f"configuration file {self.where} is not UTF-8 text: {error}{suffix}") from None
        sections = _load(text, f"configuration file {self.where}{suffix}")
        if sections is None:
            sections = {}
        if not isinstance(sections, dict):
            raise ValueError(
                f"configuration file {self.where} must hold a mapping of sections at its top level, "
                f"not a {type(sections).__name__}"
            )
        self._sections = _copy(sections, f"configuration file {self.where}{suffix}")

    def _set(self, key: str, text: str, origin: str) -> None:
        """Set the value of an existing key, written as in a YAML file."""
        try:
            before = self.value(key)
        except KeyError as error:
            raise ConfigError(f"{origin}: {error}") from None
        value = _copy(_load(text, origin), origin)
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
        return set(self._walk("", self._sections))

    def _walk(self, prefix: str, section: dict[str, Any]) -> Iterator[str]:
        for key, value in section.items():
            yield f"{prefix}{key}"
            if isinstance(value, dict):
                yield from self._walk(f"{prefix}{key}.", value)

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
        return ArgList.of(value) if isinstance(value, dict) else value

    def keywords(self, key: str) -> dict[str, Any]:
        """Return a section, or the single value under its own name, as keyword arguments."""
        value = _copy(self.value(key))
        return value if isinstance(value, dict) else {key.rpartition(".")[2]: value}


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
    for variable in FILE_VARIABLES:
        if value := os.environ.get(variable, ""):
            return value, f"{variable}={value}"
    return None


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


def _load(text: str, what: str) -> Any:
    """Load YAML, with numbers as people write them."""
    import yaml

    try:
        loader = _loader()(text)
    except yaml.YAMLError as error:  # a character that no YAML file may have, such as NUL
        raise ValueError(f"{what} is not valid YAML: {error}") from None
    root = None
    try:
        root = loader.get_single_node()
        return None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        raise ValueError(f"{what} is not valid YAML: {error}") from None
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply to be read, in line {loader.line + 1}") from None
    except Exception as error:  # of the function that reads one value: a 13th month, for example
        raise ValueError(f"{what}: {_wrong_scalar(loader.scalar, root, error)}") from None
    finally:
        loader.dispose()


def _wrong_scalar(node: Any, root: Any, error: Exception) -> str:
    """Return which value of a document cannot be read, and why."""
    path = _path_to(node, root, set())
    key = f"the value of {path!r} in line {node.start_mark.line + 1}" if path else "the value"
    shown = node.value if len(node.value) <= 40 else f"{node.value[:20]}... ({len(node.value)} characters)"
    kind = _KINDS.get(node.tag.rpartition(":")[2], "what its tag says")
    why = str(error).partition(";")[0]
    return f"{key} is not {kind}: {shown} ({why}); write it in quotes, and without a tag, if it is text"


_KINDS = {"timestamp": "a date", "int": "a number that can be read", "float": "a number that can be read"}


def _path_to(target: Any, node: Any, seen: set[int], path: str = "") -> str:
    """Return the keys that lead from a node of YAML to another, or "" if it is the same one."""
    if node is target or id(node) in seen or isinstance(node.value, str):
        return path if node is target else ""
    seen.add(id(node))
    for place, each in enumerate(node.value):
        if isinstance(each, tuple):
            key, inner = each
            step = f"{path}.{key.value}" if path else str(key.value)
            if key is target:
                return step
        else:
            inner, step = each, f"{path}[{place}]"
        if found := _path_to(target, inner, seen, step):
            return found
    return ""


def _loader() -> Any:
    """Return a loader of plain YAML that reads 1e6 as a number, and 010 and 1:30 as text.

    YAML 1.1, which PyYAML implements, requires a dot and a sign (1.0e+6) and reads 1e6 as text. It reads 010 as 8,
    and 1:30 as 90.
    """
    import re

    import yaml

    global _Loader
    if _Loader is None:

        class Loader(yaml.SafeLoader):
            scalar: Any = None  # the last value that was read, for the error if that fails

            def construct_object(self, node: Any, deep: bool = False) -> Any:
                """Construct a value; remember which."""
                if isinstance(node, yaml.ScalarNode):
                    self.scalar = node
                return super().construct_object(node, deep)

            def compose_mapping_node(self, anchor: Any) -> Any:
                """Raise for a duplicate key; YAML would silently use the last one."""
                node = super().compose_mapping_node(anchor)
                seen: set[str] = set()
                for key, _ in node.value:
                    if key.tag == "tag:yaml.org,2002:str":
                        if key.value in seen:
                            raise yaml.constructor.ConstructorError(
                                None, None, f"the key {key.value!r} appears twice", key.start_mark
                            )
                        seen.add(key.value)
                return node

        Loader.add_implicit_resolver(
            "tag:yaml.org,2002:float",
            re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$"),
            list("-+.0123456789"),
        )
        as_text = re.compile(r"[-+]?(?:0[0-9_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)$")
        for first in "-+0123456789":
            # Inserted first, because the first resolver that matches is used.
            Loader.yaml_implicit_resolvers[first].insert(0, ("tag:yaml.org,2002:str", as_text))
        _Loader = Loader
    return _Loader


_Loader: Any = None
