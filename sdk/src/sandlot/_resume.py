"""Keeps the results of a long batch in a file, so that a later run of it calls only the items that have none."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from sandlot.errors import ConfigError

Item = TypeVar("Item")


class ResultFile:
    """One line of JSON for each result: `{"key": …, "result": …}`. Close it after the batch."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the results of earlier runs. Raises ConfigError if it has other lines."""
        self.path = Path(path)
        self.results: dict[str, Any] = {}
        self._lock = threading.Lock()  # threads of a blocking batch write into it
        self._file = self.path.open("ab+")
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> None:
        self._file.seek(0)
        complete = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break  # the process ended while it wrote this one
            complete += len(line)
            try:
                document = json.loads(line)
                self.results[document["key"]] = document["result"]
            except (ValueError, KeyError, TypeError):
                raise ConfigError(
                    f"resume: line {number} of {self.path} is no result of a batch: name another file"
                ) from None
        self._file.truncate(complete)

    def record(self, key: str, result: Any) -> None:
        """Append a result; it is on the way to the disk before this returns. Raises TypeError if it is not JSON."""
        try:
            line = json.dumps({"key": key, "result": result}, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TypeError(f"resume needs results that are JSON: {error}") from None
        with self._lock:
            self._file.write(line.encode() + b"\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def result_keys(items: Iterable[Item], key: Callable[[Item], str] | None) -> list[tuple[str, Item]]:
    """Return each item with its key: that of the caller, or the item as JSON; equal ones get a number.

    Raises ValueError if an item without a key is not JSON.
    """
    seen: Counter[str] = Counter()
    found: list[tuple[str, Item]] = []
    for number, item in enumerate(items):
        try:
            name = key(item) if key is not None else json.dumps(item, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            if key is not None:
                raise
            raise ValueError(f"key: item {number} is not JSON ({error}), so give `key`, a function") from None
        seen[name] += 1
        found.append((name if seen[name] == 1 else f"{name}#{seen[name]}", item))
    return found
