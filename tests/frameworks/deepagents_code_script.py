"""Runs Deep Agents Code's own sandbox factory, with the provider that it finds by its entry point."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import sandlot
from deepagents_code.integrations.sandbox_factory import create_sandbox, get_default_working_dir
from deepagents_code.integrations.sandbox_provider import SandboxError, SandboxNotFoundError
from deepagents_code.integrations.sandbox_registry import SandboxRegistry
from sandlot.integrations.deepagents_code import SandlotProvider

NEW = {"image": "host", "labels": ["dcode"]}


context = ContextVar("context", default="")
seen_in: list[str] = []


def left() -> list[str]:
    return [info.id for info in sandlot.Sandbox.list(labels=["dcode"])]


def raised(error: type[Exception], call: object) -> str:
    try:
        call()
    except error as caught:
        return str(caught)
    raise AssertionError(f"no {error.__name__}")


async def cancelled() -> None:
    making = asyncio.create_task(SandlotProvider().aget_or_create(**NEW))
    while not await asyncio.to_thread(left):
        pass
    making.cancel()
    await asyncio.wait((making,))
    assert making.cancelled()


class Labels(list[str]):
    """Tells from which context they are read."""

    def __iter__(self) -> Iterator[str]:
        seen_in.append(context.get())
        return super().__iter__()


async def in_its_context() -> None:
    context.set("the loop's")
    backend = SandlotProvider().get_or_create(**{**NEW, "labels": Labels(["dcode"])})
    SandlotProvider().delete(sandbox_id=backend.id)


configured = SandboxRegistry.load(Path(sys.argv[1]))
assert configured.get_params("sandlot") == {"image": "host", "memory": "2GiB"}
assert isinstance(configured.create_provider("sandlot"), SandlotProvider)
assert "sandlot" in SandboxRegistry.load().available_providers()
assert get_default_working_dir("sandlot") == "/workspace"
with create_sandbox("sandlot", params=NEW) as backend:
    assert backend.execute("pwd").output == "/workspace\n"
    with create_sandbox("sandlot", sandbox_id=backend.id) as again:
        assert again.write("/workspace/a", "text").error is None
    assert backend.execute("cat a").output == "text"  # the second use did not end what it only found
    gone = backend.id
assert left() == []
raised(SandboxNotFoundError, lambda: SandlotProvider().get_or_create(sandbox_id=gone))
raised(SandboxNotFoundError, lambda: SandlotProvider().delete(sandbox_id="sb-00000000000000000000"))
assert "working_dir" in raised(
    SandboxError, lambda: SandlotProvider().get_or_create(working_dir="/etc/hostname", **NEW)
)
asyncio.run(cancelled())
asyncio.run(in_its_context())
assert set(seen_in) == {"the loop's"}, seen_in
assert left() == []
