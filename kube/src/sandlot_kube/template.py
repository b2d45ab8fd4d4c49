"""What makes two instances interchangeable, as resources and annotations hold it, and its key."""

from __future__ import annotations

import hashlib

import msgspec


class Template(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The fields of the gateway's own Template; `memory` and `disk` are bytes, `cpu` is cores."""

    image: str
    cpu: float = 1.0
    memory: int = 1 << 30
    disk: int = 5 << 30
    pids: int = 1024
    gpu_count: int = 0
    gpu_type: str | None = None
    runtime_class: str | None = None


def key(template: Template) -> str:
    """16 hex digits; equal templates have equal keys, here and in the gateway."""
    values = (getattr(template, name) for name in Template.__struct_fields__)
    return hashlib.sha256("|".join(map(str, values)).encode()).hexdigest()[:16]


def encode(template: Template) -> str:
    """For an annotation."""
    return msgspec.json.encode(template).decode()


def decode(text: str | bytes) -> Template:
    """Raises msgspec.ValidationError or msgspec.DecodeError."""
    return _decoder.decode(text)


_decoder = msgspec.json.Decoder(Template)
