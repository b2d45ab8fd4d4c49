"""Has the executor prepare the next generation, and resets into it."""

from __future__ import annotations

from typing import Any

from tests.executor.driver import PATH, Driver

PROBE = {"shell": "exit 0", "env": {"PATH": PATH}, "mark": "first", "cwd": "/", "quiet": 30.0}


def ask(
    box: Driver,
    *,
    keep: bool = False,
    probe: dict[str, Any] | None = None,
    exit_code: int = 0,
    network: str = "full",
    **limits: int,
) -> bool:
    """`limits`: of the next owner, else those of the setup."""
    return box.ask(
        "prepare", probe=probe or PROBE, exit_code=exit_code, keep=keep, limits=limits or box.setup["limits"],
        network=network,
    )["prepared"]  # fmt: skip


def prepare(box: Driver, **options: Any) -> None:
    box.events.clear()
    assert not ask(box, **options)
    assert box.wait_event() == {"event": "prepared"}
    assert ask(box, **options)


def reset(box: Driver, *, network: str = "full", **limits: Any) -> dict[str, Any]:
    return box.ask("reset", prepared=True, limits=limits or box.setup["limits"], network=network)
