"""YAML as people write it: 1e6 is a number, 010 and 1:30 are text, and a key appears once.

YAML 1.1, which PyYAML implements, requires a dot and a sign (1.0e+6) and reads 1e6 as text. It reads 010 as 8, and
1:30 as 90. Of duplicate keys it silently uses the last one.

PyYAML takes long to import, so this module is imported when there is something to load.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_KINDS = {"timestamp": "a date", "int": "a number that can be read", "float": "a number that can be read"}


def load(text: str, what: str) -> Any:
    """Return what YAML stands for; raise ValueError, which begins with `what`, if it cannot be read."""
    try:
        return yaml.load(text, _Loader)  # which derives from the safe one
    except yaml.YAMLError as error:
        raise ValueError(f"{what} is not valid YAML: {error}") from None
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply to be read") from None


class _Loader(yaml.SafeLoader):
    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Construct a value; raise an error with its place for one that its type cannot hold, as a 13th month."""
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception as error:
            shown = (
                node.value
                if len(node.value) <= 40
                else f"{node.value[:20]}... ({len(node.value)} characters)"
            )
            kind = _KINDS.get(node.tag.rpartition(":")[2], "what its tag says")
            why = str(error).partition(";")[0]
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"{shown} is not {kind} ({why}); write it in quotes, and without a tag, if it is text",
                node.start_mark,
            ) from None

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Raise for a duplicate key."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:str":
                if key.value in seen:
                    problem = f"the key {key.value!r} appears twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return node


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)
_AS_TEXT = re.compile(r"[-+]?(?:0[0-9_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)$")
for _first in "-+0123456789":
    # Inserted first, because the first resolver that matches is used.
    _Loader.yaml_implicit_resolvers[_first].insert(0, ("tag:yaml.org,2002:str", _AS_TEXT))
