"""Where an image can be opened: as a container, or in a sandbox of the local backend or of a cluster's slot pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from sandlot import Client, Sandbox

from tests.conformance.differences import Meant

MEMORY = 512 << 20


class Opened(Protocol):
    """An image in which programs run."""

    def run(self, argv: Sequence[str], *, as_root: bool = False) -> str:
        """Return a program's standard output; without `as_root` the image's own user runs it."""
        ...


class Place(Protocol):
    """Opens images."""

    meant: Sequence[Meant]  # in what it differs from a container on purpose

    def open(self, archive: Path) -> AbstractContextManager[Opened]: ...


class _Box:
    def __init__(self, box: Sandbox) -> None:
        self._box = box

    def run(self, argv: Sequence[str], *, as_root: bool = False) -> str:
        result = self._box.exec(list(argv), user="root" if as_root else None, timeout=100)
        assert result.ok, result
        assert not result.truncated
        return result.stdout


class Sandboxes:
    """Sandboxes of a gateway; `name_of` says by which name it knows an archive, `more` what a create says besides."""

    def __init__(
        self, client: Client, *, meant: Sequence[Meant], name_of: Callable[[Path], str], **more: Any
    ) -> None:
        self.meant = meant
        self._client = client
        self._name_of = name_of
        self._more = more

    @contextmanager
    def open(self, archive: Path) -> Iterator[Opened]:
        with Sandbox.create(self._name_of(archive), memory=MEMORY, client=self._client, **self._more) as box:
            yield _Box(box)
