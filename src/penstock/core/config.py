"""The YAML file a program takes its settings from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.arguments import ArgList
from penstock.core.errors import choices

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Config"]


class Config:
    """The sections of one YAML file; ``"section.key"`` reaches inside a section."""

    __slots__ = ("_sections", "file")

    def __init__(self, file: str | Path) -> None:
        # Read here and not when the first key is asked for: a wrong path should be reported by the
        # line that names it.
        from pathlib import Path

        import yaml

        self.file = Path(file)
        try:
            text = self.file.read_text()
        except FileNotFoundError:
            raise FileNotFoundError(f"configuration file {str(self.file)!r} does not exist") from None
        sections = yaml.safe_load(text) or {}
        if not isinstance(sections, dict):
            raise ValueError(
                f"configuration file {str(self.file)!r} must hold a mapping of sections at its top level, "
                f"and holds a {type(sections).__name__}"
            )
        self._sections: dict[str, Any] = sections

    def keys(self) -> set[str]:
        """Give every section and ``section.key`` in the file."""
        found: set[str] = set()

        def walk(prefix: str, value: Any) -> None:
            if isinstance(value, dict):
                for key, inner in value.items():
                    found.add(f"{prefix}{key}")
                    walk(f"{prefix}{key}.", inner)

        walk("", self._sections)
        return found

    def value(self, key: str) -> Any:
        """Give what stands under `key`."""
        value: Any = self._sections
        path: list[str] = []
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                where = f" under {'.'.join(path)!r}" if path else ""
                have = choices(sorted(map(str, value))) if isinstance(value, dict) else "no keys"
                raise KeyError(f"{str(self.file)!r} has no key {part!r}{where}; it has {have}")
            value = value[part]
            path.append(part)
        return value

    def arguments(self, key: str) -> Any:
        """Give a section as an :class:`ArgList`, and a single value as itself."""
        value = self.value(key)
        return ArgList.of(value) if isinstance(value, dict) else value

    def keywords(self, key: str) -> dict[str, Any]:
        """Give a section, or the single value under its own name, as keyword arguments."""
        value = self.value(key)
        return dict(value) if isinstance(value, dict) else {key.rpartition(".")[2]: value}
