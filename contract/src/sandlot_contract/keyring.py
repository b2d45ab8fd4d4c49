"""The master key, and others that are valid beside it while it is replaced: several files of one Secret."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from .followed import follow
from .tokens import MIN_KEY, mac

_log = logging.getLogger(__name__)


class BadKeyring(ValueError):
    """Raised for files without usable keys; the message names the file."""


class Keyring:
    """The key that makes new tokens, and others whose tokens are valid, too. Keys are named by ids that reveal nothing."""

    def __init__(self, signing: bytes, *others: bytes) -> None:
        """Take the keys. Raises BadKeyring for one that is too short."""
        for key in (signing, *others):
            if len(key) < MIN_KEY:
                raise BadKeyring(f"the master key must have at least {MIN_KEY} bytes; write random ones")
        self.signing_id = key_id(signing)
        self._keys = {key_id(key): key for key in (signing, *others)}

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of all keys, that of the signing key first."""
        return iter(self._keys)

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def __eq__(self, other: object) -> bool:
        # The order counts: the first one signs.
        return isinstance(other, Keyring) and list(self._keys.items()) == list(other._keys.items())

    __hash__ = None  # type: ignore[assignment]

    def key(self, key_id: str | None) -> bytes:
        """Return the key with this id, or the signing key for None and an unknown id."""
        return self._keys.get(key_id or "") or self._keys[self.signing_id]


def key_id(key: bytes) -> str:
    return mac(key, b"key id")[:8].hex()


def read(path: Path) -> Keyring:
    """Read the signing key from `path`, and others from the files beside it named `NAME-…`. Raises BadKeyring."""
    try:
        others = sorted(each for each in path.parent.iterdir() if each.name.startswith(f"{path.name}-"))
        keys = {each: each.read_bytes() for each in (path, *others)}
    except OSError as error:
        raise BadKeyring(f"cannot read the master key {error.filename}: {error.strerror}") from error
    for each, key in keys.items():
        if len(key) < MIN_KEY:
            raise BadKeyring(f"{each}: the master key must have at least {MIN_KEY} bytes; write random ones")
    return Keyring(*keys.values())


class KeyringFiles:
    """Reads the files, and follows them while the program runs."""

    def __init__(self, path: Path, *, failing: Callable[[bool], None] = lambda failing: None) -> None:
        """`failing` is told whether the last change could not be used."""
        self._path = path
        self._failing = failing

    async def follow(self, use: Callable[[Keyring], None], *, used: Keyring) -> None:
        """Call `use` with each new state of the files until cancelled; what cannot be used is logged, and changes nothing."""

        async def changed(found: Keyring | str) -> None:
            self._failing(isinstance(found, str))
            if isinstance(found, str):
                _log.error("cannot use the changed master key: %s; the earlier keys stay valid", found)
                return
            use(found)
            _log_ids("the master key changed", found)

        # A program that starts during a rotation sees no change, and an operator must see that it knows the keys.
        _log_ids("the master key", used)
        await follow(self._read, changed, used=used, failing=self._failing)

    def _read(self) -> Keyring | str:
        try:
            return read(self._path)
        except BadKeyring as error:
            return str(error)


def _log_ids(what: str, keys: Keyring) -> None:
    others = ", ".join(list(keys)[1:]) or "none"
    _log.info("%s: %s signs, others that are valid: %s", what, keys.signing_id, others)
