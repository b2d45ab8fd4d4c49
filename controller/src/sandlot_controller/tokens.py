"""Derives the instance tokens of pods from the master key, which the gateways share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sandlot_contract.keyring import BadKeyring, Keyring, read
from sandlot_contract.names import LABEL_KEY
from sandlot_contract.tokens import instance_token
from sandlot_kube.objects import Pod

from .settings import BadSettings


class InstanceTokens:
    def __init__(self, keys: bytes | Keyring) -> None:
        """Take the keys. Raises BadSettings for one that is too short."""
        try:
            self.keys = Keyring(keys) if isinstance(keys, bytes) else keys
        except BadKeyring as error:
            raise BadSettings(f"SANDLOT_KEY_FILE: {error}") from error
        self.changed: list[Callable[[], None]] = []  # called after a change of the keys

    @classmethod
    def from_file(cls, path: Path) -> InstanceTokens:
        """Read the master key, and others beside it. Raises BadSettings."""
        try:
            return cls(read(path))
        except BadKeyring as error:
            raise BadSettings(f"SANDLOT_KEY_FILE: {error}") from error

    def use(self, keys: Keyring) -> None:
        """Replace the keys."""
        self.keys = keys
        for told in self.changed:
            told()

    @property
    def signing_id(self) -> str:
        """The id of the key that tokens of new pods derive from."""
        return self.keys.signing_id

    def instance(self, instance_id: str, key_id: str | None = None) -> str:
        """Return the token of a pod; `key_id`: of its master key, None for a new one."""
        return instance_token(self.keys.key(key_id), instance_id)

    def of(self, pod: Pod) -> str:
        """Return the token of a pod that there is."""
        return self.instance(pod.metadata.name, pod.metadata.labels.get(LABEL_KEY))
