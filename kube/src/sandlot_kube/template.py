"""The template as stored in resources and annotations; that of a slot pool has no image."""

from __future__ import annotations

import msgspec
from sandlot_contract import template as contract

_USUAL = contract.Template(image="")


class Template(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The fields of the contract's Template, in the same order; a test compares the two."""

    image: str = ""
    cpu: float = _USUAL.cpu
    memory: int = _USUAL.memory
    disk: int = _USUAL.disk
    pids: int = _USUAL.pids
    gpu_count: int = _USUAL.gpu_count
    gpu_type: str | None = _USUAL.gpu_type
    runtime_class: str | None = _USUAL.runtime_class


def key(template: Template) -> str:
    """Return 16 hex digits, equal for equal templates here and in the gateway."""
    return contract.key_of(getattr(template, name) for name in contract.FIELDS)


def encode(template: Template) -> str:
    """Return the template as text for an annotation."""
    return msgspec.json.encode(template).decode()


def decode(text: str | bytes) -> Template:
    """Decode an annotation. Raises msgspec.ValidationError or msgspec.DecodeError."""
    return _decoder.decode(text)


_decoder = msgspec.json.Decoder(Template)
