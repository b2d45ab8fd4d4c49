"""Maps services of a compose file to the arguments of creates; what has no counterpart is an error with its key."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from sandlot._compose.waiting import in_workdir
from sandlot.units import parse_size

Document = Mapping[str, Any]
# Takes a further key of a service, with its value and place; returns whether it knows the key.
More = Callable[[str, object, str], bool]

# Of `x-sandlot`: arguments of Sandbox.create.
EXTENSIONS = frozenset(
    (
        "pool",
        "disk",
        "timeout",
        "idle_timeout",
        "allow",
        "deny",
        "gpu_count",
        "gpu_type",
        "secret_refs",
        "wait",
    )
)
NETWORKS = {"none": "none", "bridge": "full"}
_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?::-([^}]*))?\}|(\w+)|(\{[^}]*\}?))")
_BYTES = re.compile(r"(?<=[kmgt])b$")


@dataclass(frozen=True, kw_only=True)
class Service:
    """What a sandbox is made from; `create` has arguments of Sandbox.create.

    A start command waits for `workdir`, which the caller makes if the image has none.
    """

    name: str = "default"
    create: dict[str, Any] = field(default_factory=dict[str, Any])
    user: str | None = None
    workdir: str | None = None


def service_of(document: object, *, source: str, variables: Mapping[str, str] | None = None) -> Service:
    """Return the one service of a parsed compose file; `variables` replace `${NAME}`. Raises ValueError with the key."""
    services = services_in(document, source=source)
    if len(services) != 1:
        raise ValueError(
            f"{source}: services: must be one, not {', '.join(services) or 'none'}: a sample has one sandbox"
        )
    name, service = next(iter(services.items()))
    return parsed(service, f"{source}: services.{name}", name=str(name), variables=variables)


def services_in(document: object, *, source: str) -> Document:
    """Return the services of a parsed compose file by name, as they are. Raises ValueError."""
    top = as_mapping(document, source)
    for key in top:
        if key not in ("services", "version", "name") and not key.startswith("x-"):
            raise ValueError(f"{source}: {key}: has no counterpart in Sandlot; remove it")
    return as_mapping(top.get("services"), f"{source}: services")


def parsed(
    service: object,
    at: str,
    *,
    name: str,
    variables: Mapping[str, str] | None = None,
    more: More = lambda key, value, place: False,
) -> Service:
    """Return a service; `more` takes what is not one sandbox's alone. Raises ValueError with the place and the key."""
    document = as_mapping(service, at)
    if variables is not None:
        document = cast(Document, _replaced(document, at, variables))
    return _service(document, at, name=name, more=more)


def _service(service: Document, at: str, *, name: str, more: More) -> Service:
    create: dict[str, Any] = {}
    user = workdir = None
    command: list[str] = []
    for key, value in service.items():
        place = f"{at}.{key}"
        if value is None or key == "init":  # the first process of every sandbox is an init
            continue
        if key == "image":
            create["image"] = str(value)
        elif key in ("entrypoint", "command"):
            words = words_of(value, place)
            command = words + command if key == "entrypoint" else command + words
        elif key == "environment":
            create["env"] = _environment(value, place)
        elif key == "user":
            user = str(value)
        elif key == "working_dir":
            workdir = _absolute(value, place)
        elif key == "network_mode":
            if value not in NETWORKS:
                raise ValueError(
                    f"{place}: must be none or bridge, not {value!r}; x-sandlot has allow and deny"
                )
            create["network"] = NETWORKS[value]
        elif key == "x-sandlot":
            create.update(_extensions(value, place))
        elif key == "deploy":
            create.update(_deploy(value, place))
        elif key in ("cpus", "mem_limit", "pids_limit"):
            create.update(_limit(key, value, place))
        elif not more(key, value, place) and not key.startswith("x-"):
            raise ValueError(f"{place}: {_why(key)}")
    if command:
        create["start_command"] = command if workdir is None else in_workdir(command, workdir)
    if user is not None:
        create["user"] = user
    if "image" not in create and "pool" not in create:
        raise ValueError(f"{at}.image: is missing; name an image, or a pool in x-sandlot")
    return Service(name=name, create=create, user=user, workdir=workdir)


def _why(key: str) -> str:
    if key == "build":
        return "Sandlot builds no images; push one to a registry and name it as image"
    return "has no counterpart in Sandlot; remove it, or make it part of the image"


def _limit(key: str, value: object, place: str) -> dict[str, Any]:
    try:
        if key == "cpus":
            return {"cpu": float(str(value))}
        if key == "pids_limit":
            return {"pids": int(str(value))}
        # Docker's `mb` is 1024², too.
        return {"memory": parse_size(_BYTES.sub("", str(value).lower()))}
    except ValueError:
        raise ValueError(f"{place}: is no number that Sandlot can use: {value!r}; write 2, or 512m") from None


def _deploy(value: object, at: str) -> dict[str, Any]:
    """Map `resources.limits`, the only part of `deploy` that applies."""
    names = {"cpus": "cpus", "memory": "mem_limit"}
    found: dict[str, Any] = {}
    limits = _only(_only(value, "resources", at), "limits", f"{at}.resources")
    for key, amount in as_mapping(limits, f"{at}.resources.limits").items():
        if key not in names:
            raise ValueError(f"{at}.resources.limits.{key}: has no counterpart in Sandlot; remove it")
        found.update(_limit(names[key], amount, f"{at}.resources.limits.{key}"))
    return found


def _only(value: object, wanted: str, at: str) -> object:
    mapping = {key: inner for key, inner in as_mapping(value, at).items() if inner is not None}
    for key in mapping:
        if key != wanted:
            raise ValueError(f"{at}.{key}: has no counterpart in Sandlot; remove it")
    return mapping.get(wanted) or {}


def _extensions(value: object, at: str) -> Document:
    mapping = as_mapping(value, at)
    for key in mapping:
        if key not in EXTENSIONS:
            raise ValueError(f"{at}.{key}: is unknown; it may have {', '.join(sorted(EXTENSIONS))}")
    return mapping


def _environment(value: object, at: str) -> dict[str, str]:
    """Return variables; one without a value has this process's, or is left out."""
    if isinstance(value, list):
        pairs = [str(item).partition("=") for item in cast(list[object], value)]
        given = {name: text if equals else None for name, equals, text in pairs}
    else:
        given = dict(as_mapping(value, at))
    found = {name: os.environ.get(name) if text is None else str(text) for name, text in given.items()}
    return {name: text for name, text in found.items() if text is not None}


def words_of(value: object, at: str) -> list[str]:
    """Return a command's words. Raises ValueError."""
    if isinstance(value, list):
        return [str(word) for word in cast(list[object], value)]
    try:
        return shlex.split(str(value))
    except ValueError as error:
        raise ValueError(f"{at}: cannot be split into words: {error}; write a list") from None


def _absolute(value: object, at: str) -> str:
    path = str(value)
    if not path.startswith("/"):
        raise ValueError(f"{at}: must be an absolute path, not {path!r}")
    return path.rstrip("/") or "/"


def as_mapping(value: object, at: str) -> Document:
    """Return a value that must be a mapping. Raises ValueError."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{at}: must be a mapping, not {type(value).__name__}")
    return cast(Document, value)


def _replaced(value: object, at: str, variables: Mapping[str, str]) -> object:
    """Replace variables as compose does, but do not take a missing one for empty text."""
    if isinstance(value, Mapping):
        pairs = cast(Mapping[str, object], value).items()
        return {key: _replaced(inner, f"{at}.{key}", variables) for key, inner in pairs}
    if isinstance(value, list):
        return [_replaced(inner, at, variables) for inner in cast(list[object], value)]
    if not isinstance(value, str):
        return value

    def text(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        if match[5]:
            raise ValueError(
                f"{at}: only ${{NAME}} and ${{NAME:-default}} are replaced, not {match[0]}; write $$ for $"
            )
        name = match[2] or match[4]
        default: str | None = match[3]
        found = variables.get(name)
        if default is not None and not found:
            return default
        if found is None:
            raise ValueError(f"{at}: the variable {name} is not set; set it, or write $$ for a dollar")
        return found

    return _VARIABLE.sub(text, value)
