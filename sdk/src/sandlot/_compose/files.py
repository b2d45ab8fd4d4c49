"""Reads compose files as compose does: YAML in which `22:22` is two ports."""

from __future__ import annotations

from pathlib import Path
from typing import cast

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def load(path: Path) -> object:
    """Return a file's content. Raises OSError, and ValueError also without PyYAML."""
    try:
        import yaml  # only for this: the SDK itself has no dependency
    except ImportError:
        raise ValueError(
            "compose: reading a file needs PyYAML: pip install pyyaml, or pass its content"
        ) from None

    class Loader(yaml.SafeLoader):
        """Takes no text with colons for a number of base 60, as YAML 1.1 does: 22:22 would be 1342."""

        def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
            tag = cast(str, super().resolve(kind, value, implicit))  # pyright: ignore[reportUnknownMemberType]
            return "tag:yaml.org,2002:str" if tag in _NUMBERS and ":" in value else tag

    try:
        return yaml.load(path.read_text(), Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: is not YAML: {error}") from None
