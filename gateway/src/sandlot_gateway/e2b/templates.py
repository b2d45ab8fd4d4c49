"""What the name of a template stands for: an alias of the setting, a pool, an image, or a snapshot."""

from __future__ import annotations

from collections.abc import Iterable

from sandlot_gateway import local_images
from sandlot_gateway.core.backend import Backend
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox

from .documents import template_of
from .failures import Problem
from .snapshots import PREFIX
from .template import Template


class Templates:
    def __init__(self, entries: Iterable[str], *, backend: Backend) -> None:
        """Take the setting's entries, `NAME=POOL` or `NAME=IMAGE`."""
        split = (entry.partition("=") for entry in entries)
        self._targets = {name: target for name, _, target in split}
        self._names = {target: name for name, target in self._targets.items()}
        self._backend = backend

    def find(self, name: str, who: Tenant) -> Template:
        """Return what a create with this template uses. Raises Problem."""
        target = self._targets.get(name, name)
        if target.startswith(PREFIX):
            return Template(checkpoint=target)
        pool = self._backend.pool(target)
        if pool is not None and who.may_use(pool.owner):
            return Template(pool=target)
        if "/" in target or ":" in target or target == local_images.HOST:
            return Template(image=target)
        raise Problem(
            404,
            f"template {name[:100]!r} was not found: use the name of a pool, an image with its tag, or an alias"
            " that the operator has set (--e2b-templates)",
        )

    def is_operators(self, name: str, who: Tenant) -> bool:
        """Return whether a name is an alias of the setting, or a pool that the caller may use."""
        pool = self._backend.pool(name)
        return name in self._targets or (pool is not None and who.may_use(pool.owner))

    def image(self, name: str) -> Template:
        """Return what stands for an image: another by an alias of the setting, else itself."""
        target = self._targets.get(name, name)
        return (
            Template(pool=target)
            if self._backend.pool(target) is not None and target != name
            else Template(image=target)
        )

    def target(self, name: str) -> str:
        return self._targets.get(name, name)

    def alias(self, sandbox: Sandbox) -> str | None:
        """Return the name of the sandbox's template: its tenant's, or the alias of a pool or an image."""
        kept = sandbox.spec.e2b
        return (
            kept.name if kept is not None and kept.name is not None else self._names.get(template_of(sandbox))
        )
