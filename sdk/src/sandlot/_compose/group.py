"""Maps a compose file of several services to a group: their ports, the order in which they start, their healthchecks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from sandlot._compose import files, waiting
from sandlot._compose.service import Service, as_mapping, parsed, services_in, words_of

STARTED, HEALTHY = "service_started", "service_healthy"
_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_NAME = re.compile("[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_PORT = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?(?:/tcp)?")


@dataclass(frozen=True, kw_only=True)
class Healthcheck:
    """A command that succeeds once its service is healthy. Times are seconds."""

    test: list[str]
    interval: float = 30.0
    timeout: float = 30.0
    retries: int = 3
    start_period: float = 0.0
    start_interval: float = 5.0


@dataclass(kw_only=True)
class Member:
    """A service of the group."""

    service: Service = field(default_factory=Service)
    ports: list[int] = field(default_factory=list[int])
    after: dict[str, str] = field(default_factory=dict[str, str])  # conditions of its dependencies
    health: Healthcheck | None = None

    def create(self) -> dict[str, Any]:
        """Return its arguments as a member of a group."""
        create = dict(self.service.create)
        if "start_command" not in create:
            create["run_image_command"] = True
        elif self.after:
            create["start_command"] = waiting.after(create["start_command"])
        return {**create, "service": self.service.name, "ports": self.ports}


def read(compose: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[object, str]:
    """Return a compose file's content, and its name in errors. Raises OSError and ValueError."""
    if isinstance(compose, Mapping):
        return compose, "compose"
    return files.load(Path(compose)), str(compose)


def members_of(document: object, *, source: str, variables: Mapping[str, str]) -> list[Member]:
    """Return the services, each after those that it depends on. Raises ValueError with the service and the key."""
    found: dict[str, Member] = {}
    for name, service in services_in(document, source=source).items():
        found[str(name)] = _member(service, f"{source}: services.{name}", name=str(name), variables=variables)
    if not found:
        raise ValueError(f"{source}: services: must name at least one")
    for name, member in found.items():
        _check(member, f"{source}: services.{name}.depends_on", found)
    return list(_ordered(found, source))


def _member(service: object, at: str, *, name: str, variables: Mapping[str, str]) -> Member:
    if not _NAME.fullmatch(name) or name == "localhost":
        raise ValueError(
            f"{at}: must be a name of a-z, 0-9 and -, beginning with a letter, for its host name"
        )
    member = Member()

    def more(key: str, value: object, place: str) -> bool:
        if key in ("expose", "ports"):
            ports = [port for one in _list(value, place) for port in _ports(one, place)]
            member.ports = sorted({*member.ports, *ports})
        elif key == "depends_on":
            member.after = _after(value, place)
        elif key == "healthcheck":
            member.health = _health(value, place)
        return key in ("expose", "ports", "depends_on", "healthcheck")

    member.service = parsed(service, at, name=name, variables=variables, more=more)
    return member


def _check(member: Member, at: str, found: Mapping[str, Member]) -> None:
    for other, condition in member.after.items():
        if other not in found:
            raise ValueError(f"{at}: {other!r} is no service of this file; it has {', '.join(found)}")
        if condition == HEALTHY and found[other].health is None:
            raise ValueError(f"{at}.{other}: {HEALTHY} needs a healthcheck of {other!r}; add one")
    if member.after and "start_command" not in member.service.create:
        raise ValueError(f"{at}: needs the service's command, which then waits; write command beside it")


def _ordered(found: Mapping[str, Member], source: str) -> Iterator[Member]:
    left = dict(found)
    while left:
        ready = [name for name, member in left.items() if not member.after.keys() & left.keys()]
        if not ready:
            raise ValueError(f"{source}: services.{next(iter(left))}.depends_on: goes round in a circle")
        for name in ready:
            yield left.pop(name)


def _list(value: object, at: str) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{at}: must be a list, not {type(value).__name__}")
    return cast(list[object], value)


def _ports(value: object, at: str) -> list[int]:
    """Return the ports in the container; one that the file publishes on the host is not."""
    if isinstance(value, Mapping):
        given = cast(Mapping[str, object], value)
        if given.get("protocol", "tcp") != "tcp":
            raise ValueError(f"{at}: only TCP is linked, not {given['protocol']!r}; remove it")
        value = given.get("target")
    match = _PORT.fullmatch(str(value).rpartition(":")[2])
    if match is None:
        raise ValueError(f"{at}: is no TCP port: {value!r}; write 5432, or 8080:80")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last <= min(65535, first + 15):
        raise ValueError(f"{at}: must be from 1 to 65535, and at most 16 of them: {value!r}")
    return list(range(first, last + 1))


def _after(value: object, at: str) -> dict[str, str]:
    if isinstance(value, list):
        return {str(name): STARTED for name in cast(list[object], value)}
    found: dict[str, str] = {}
    for name, given in as_mapping(value, at).items():
        options = as_mapping(given or {}, f"{at}.{name}")
        condition = options.get("condition", STARTED)
        if condition not in (STARTED, HEALTHY):
            raise ValueError(f"{at}.{name}.condition: must be {STARTED} or {HEALTHY}, not {condition!r}")
        for key in options:
            if key != "condition" and not (key == "required" and options[key] is True):
                raise ValueError(f"{at}.{name}.{key}: has no counterpart in Sandlot; remove it")
        found[str(name)] = str(condition)
    return found


def _health(value: object, at: str) -> Healthcheck | None:
    given = as_mapping(value, at)
    known = ("test", "interval", "timeout", "retries", "start_period", "start_interval", "disable")
    for key in given:
        if key not in known:
            raise ValueError(f"{at}.{key}: is unknown; it may have {', '.join(known)}")
    if given.get("disable") is True:
        return None
    test = given.get("test")
    if isinstance(test, str):
        command = ["sh", "-c", test]
    else:
        words = words_of(_list(test, f"{at}.test"), f"{at}.test")
        if words == ["NONE"]:
            return None
        if len(words) == 2 and words[0] == "CMD-SHELL":
            command = ["sh", "-c", words[1]]
        elif len(words) > 1 and words[0] == "CMD":
            command = words[1:]
        else:
            raise ValueError(f"{at}.test: must be a text, or begin with CMD, CMD-SHELL or NONE")
    times = {
        key: _seconds(given[key], f"{at}.{key}") for key in known[1:6] if key != "retries" and key in given
    }
    if times.get("timeout") == 0:
        raise ValueError(f"{at}.timeout: must be more than 0, not {given['timeout']!r}")
    retries = given.get("retries", 3)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 1:
        raise ValueError(f"{at}.retries: must be 1 or more, not {retries!r}")
    return Healthcheck(test=command, retries=retries, **times)


def _seconds(value: object, at: str) -> float:
    match = _TIME.fullmatch(str(value))
    if match is None or not str(value):
        raise ValueError(f"{at}: is no time: {value!r}; write 5s, 500ms or 1m30s")
    return sum(
        float(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1, 0.001), strict=True)
    )
