"""Reads the profiles in loadtests/profiles: YAML with `$name` for parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml

from loadtests.load.profile import Profile

PROFILES = Path(__file__).resolve().parents[1] / "profiles"
Scalar = int | float | str
_NAME = re.compile(r"\$([a-z][a-z0-9_]*)")


class ProfileError(Exception):
    """The profile is invalid; the message names the file, the field, and what is valid."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A profile with its parameters filled in."""

    name: str
    short: bool
    parameters: dict[str, Scalar]
    profile: Profile


def names(folder: Path = PROFILES) -> list[str]:
    """Return the names of all profiles."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load(
    name: str, *, short: bool = False, given: Mapping[str, str] | None = None, folder: Path = PROFILES
) -> Loaded:
    """Load a profile; `given` parameters override those of `short:`, which override `parameters:`.

    Raises ProfileError.
    """
    path = folder / f"{name}.yaml"
    try:
        document = yaml.safe_load(path.read_text())
    except FileNotFoundError as error:
        raise ProfileError(f"there is no profile {name!r}; there are {', '.join(names(folder))}") from error
    except (OSError, yaml.YAMLError) as error:
        raise ProfileError(f"{path.name}: {error}") from error
    try:
        return parse(document, name=name, short=short, given=given or {})
    except ProfileError as error:
        raise ProfileError(f"{path.name}: {error}") from error


def parse(document: object, *, name: str, short: bool, given: Mapping[str, str]) -> Loaded:
    """Build a profile from a YAML document. Raises ProfileError."""
    if not isinstance(document, dict):
        raise ProfileError("must be a mapping")
    rest = dict(cast("dict[str, Any]", document))
    parameters = _scalars(rest.pop("parameters", {}), field="parameters")
    shorter = _scalars(rest.pop("short", {}), field="short")
    for source, values in (("short", shorter), ("the command line", given)):
        for key in values:
            if key not in parameters:
                there = ", ".join(parameters) or "none"
                raise ProfileError(f"{source}: there is no parameter {key!r}; there are {there}")
    if short:
        parameters |= shorter
    for key, text in given.items():
        parameters[key] = _number_or_text(text)
    used: set[str] = set()
    filled = _filled(rest, parameters=parameters, used=used)
    unused = [key for key in parameters if key not in used]
    if unused:
        raise ProfileError(f"parameters.{unused[0]}: nothing uses it")
    try:
        profile = msgspec.convert(filled, Profile)
    except msgspec.ValidationError as error:
        raise ProfileError(_readable(str(error))) from error
    return Loaded(name=name, short=short, parameters=parameters, profile=profile)


def _scalars(value: object, *, field: str) -> dict[str, Scalar]:
    try:
        return msgspec.convert(value, dict[str, Scalar])
    except msgspec.ValidationError as error:
        raise ProfileError(
            f"{field}: must map names to numbers or strings ({_readable(str(error))})"
        ) from error


def _number_or_text(text: str) -> Scalar:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _filled(value: Any, *, parameters: Mapping[str, Scalar], used: set[str]) -> Any:
    """Replace each string that is exactly `$name` with that parameter."""
    if isinstance(value, dict):
        return {key: _filled(item, parameters=parameters, used=used) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, parameters=parameters, used=used) for item in value]
    if isinstance(value, str) and (match := _NAME.fullmatch(value)):
        key = match[1]
        if key not in parameters:
            raise ProfileError(f"{value} is used and not among the parameters ({', '.join(parameters)})")
        used.add(key)
        return parameters[key]
    return value


def _readable(message: str) -> str:
    """Convert msgspec's `what - at $.path` to `path: what`."""
    what, separator, path = message.partition(" - at `$")
    if not separator:
        return what
    return f"{path.rstrip('`').lstrip('.') or 'the profile'}: {what[0].lower()}{what[1:]}"
