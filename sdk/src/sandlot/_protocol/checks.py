"""Validates arguments before a request is sent: each ValueError names the argument and what it must be."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import cast
from urllib.parse import quote

Command = str | Sequence[str]
RUN = re.compile("[A-Za-z0-9._-]{1,63}")


def seconds(value: object, *, name: str) -> float | None:
    """Validate a duration in seconds; None means no limit."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name}: must be a number of seconds greater than 0, not {value!r}")
    return value


def shell(value: object) -> str:
    """Validate the shell of a string command."""
    if not isinstance(value, str) or not (value in ("sh", "bash") or value.startswith("/")):
        raise ValueError(f"shell: must be 'sh', 'bash' or an absolute path in the sandbox, not {value!r}")
    return value


def argv(command: object) -> str | list[str]:
    """Validate a command: a line for the shell, or a program and its arguments."""
    if isinstance(command, str):
        return command
    if isinstance(command, bytes | bytearray) or not isinstance(command, Sequence):
        raise ValueError(f"command: must be a string or a list of strings, not {command!r}")
    words = list(cast(Sequence[object], command))
    if not words:
        raise ValueError("command: must not be empty")
    for index, word in enumerate(words):
        if not isinstance(word, str):
            raise ValueError(f"command[{index}]: must be a string, not {word!r}")
    return cast(list[str], words)


def strings(value: object, *, name: str) -> dict[str, str]:
    """Validate the names and values of an environment."""
    if not isinstance(value, Mapping):
        raise ValueError(f'{name}: must be a dictionary such as {{"NAME": "value"}}, not {value!r}')
    for key, text in cast(Mapping[object, object], value).items():
        if not isinstance(key, str):
            raise ValueError(f"{name}: its names must be strings, not {key!r}")
        if not isinstance(text, str):
            # The value may be a secret, so the message must not contain it.
            raise ValueError(f"{name}[{key!r}]: must be a string, not of type {type(text).__name__}")
    return dict(cast(Mapping[str, str], value))


def secret_refs(value: object) -> dict[str, dict[str, str]]:
    """Validate references to secrets, and return them as on the wire."""
    found: dict[str, dict[str, str]] = {}
    for name, text in strings(value, name="secret_refs").items():
        secret, slash, key = text.partition("/")
        if not slash or not secret or not key or "/" in key:
            # Not the text: a caller may have put the secret itself here.
            raise ValueError(
                f"secret_refs[{name!r}]: must be SECRET/KEY, the names of a secret and of its key"
            )
        found[name] = {"secret": secret, "key": key}
    return found


def targets(value: object, *, name: str) -> list[str] | None:
    """Validate the hosts, addresses and networks of an egress policy; None if there is no list."""
    if value is None:
        return None
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ValueError(
            f'{name}: must be a list such as ["packages.example.org", "10.0.0.0/8:443"], not {value!r}'
        )
    for index, target in enumerate(cast(Sequence[object], value)):
        if not isinstance(target, str):
            raise ValueError(f"{name}[{index}]: must be a string, not {target!r}")
    return list(cast(Sequence[str], value))


def instance(value: object, kind: type, *, name: str, want: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{name}: must be {want}, not {value!r}")


def one_of(value: object, choices: Sequence[str], *, name: str) -> None:
    if value not in choices:
        raise ValueError(f"{name}: must be {' or '.join(map(repr, choices))}, not {value!r}")


def labels(value: object) -> list[str]:
    return words(value, name="labels")


def words(value: object, *, name: str) -> list[str]:
    """Validate a list of strings."""
    if isinstance(value, str):
        raise ValueError(f"{name}: must be a list of strings, not one string")
    found = list(cast(Sequence[object], value))
    for word in found:
        if not isinstance(word, str):
            raise ValueError(f"{name}: must be strings, not {word!r}")
    return cast(list[str], found)


def run(value: object, *, name: str = "run") -> str:
    """Validate the name of a run."""
    if not isinstance(value, str) or not RUN.fullmatch(value):
        raise ValueError(f"{name}: must be 1 to 63 of the characters A-Z a-z 0-9 . _ -, not {value!r}")
    return value


def octal(value: object) -> str | None:
    """Return a file's mode as four octal digits."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 0o7777:
        raise ValueError(f"mode: must be a number such as 0o644, at most 0o7777, not {value!r}")
    return f"{value:04o}"


def port(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise ValueError(f"port: must be a number from 1 to 65535, not {value!r}")
    return value


def size_of_terminal(value: object) -> tuple[int, int] | None:
    """Return columns and rows for a `pty` that is True or a pair, None for False."""
    if value is None or value is False:
        return None
    if value is True:
        return 80, 24
    pair = tuple(cast(Sequence[object], value)) if isinstance(value, Sequence) else ()
    if len(pair) == 2:
        columns, rows = pair
        if isinstance(columns, int) and isinstance(rows, int) and 0 < columns < 65536 and 0 < rows < 65536:
            return columns, rows
    raise ValueError(f"pty: must be True, False or (columns, rows) from 1 to 65535, not {value!r}")


def path(value: object, *, name: str = "path") -> str:
    """Return a path in the sandbox as a string. Raises TypeError for other types, which str() would convert."""
    text: object = os.fspath(cast(os.PathLike[str], value)) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise TypeError(f"{name}: must be a string or an os.PathLike of one, not {value!r}")
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name}: must be text, or bytes as os.fsdecode() gives them, which {text!r} is not: {error.reason}"
        ) from None
    return text


MOST = (1 << 63) - 1  # the largest file offset


def whole(value: object, *, name: str, least: int = 0) -> int:
    """Validate a whole number of bytes."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        low = "-(2**63-1)" if least < 0 else str(least)
        raise ValueError(f"{name}: must be a whole number from {low} to 2**63-1, not {value!r}")
    return value


def concurrency(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"concurrency: must be a whole number of at least 1, not {value!r}")
    return value


def weight(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise ValueError(f"weight: must be a whole number from 1 to 1000, not {value!r}")
    return value


def priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -100 <= value <= 100:
        raise ValueError(f"priority: must be a whole number from -100 to 100, not {value!r}")
    return value


def path_part(value: object, *, name: str) -> str:
    """Quote an id as one segment of a URL's path."""
    if not isinstance(value, str) or not value or value in (".", ".."):
        raise ValueError(f"{name}: must be a string that is not empty, not {value!r}")
    return quote(value, safe="")
