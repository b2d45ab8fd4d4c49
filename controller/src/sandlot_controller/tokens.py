"""Derives the instance tokens of pods from the master key, which the gateways share."""

from __future__ import annotations

from pathlib import Path

from sandlot_contract.tokens import MIN_KEY, instance_token

from .settings import BadSettings


class InstanceTokens:
    def __init__(self, key: bytes) -> None:
        if len(key) < MIN_KEY:
            raise BadSettings(
                f"SANDLOT_KEY_FILE: the master key must have at least {MIN_KEY} bytes; write random ones"
            )
        self._key = key

    @classmethod
    def from_file(cls, path: Path) -> InstanceTokens:
        """Read the master key. Raises BadSettings."""
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise BadSettings(f"SANDLOT_KEY_FILE: cannot read the master key: {error}") from error

    def instance(self, instance_id: str) -> str:
        return instance_token(self._key, instance_id)
