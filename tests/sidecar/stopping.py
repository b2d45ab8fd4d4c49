"""Start commands that trap or ignore their stop signal, and what every kind of sandbox does with one."""

from __future__ import annotations

from typing import Any

from tests.sidecar.support import Sidecar
from tests.waiting import until

IGNORES = "trap '' TERM; echo up; while :; do sleep 0.05; done"


def traps(signal: str, action: str) -> str:
    return f"trap '{action}' {signal}; echo up; while :; do sleep 0.05; done"


async def is_up(box: Sidecar) -> bool:
    return (await box.call("GET", "/v1/logs")).text == "up\n"


async def stopping(box: Sidecar) -> bool:
    return (await box.instance("GET", "/v1/state")).json()["start_command"]["state"] == "stopping"


async def end(box: Sidecar, verdict: str = "deleted") -> dict[str, Any]:
    answer = await box.instance("POST", "/v1/end", json={"verdict": verdict})
    assert answer.status_code == 200
    return answer.json()


ENDS_BY_ITSELF = {
    "start_command": traps("QUIT", "sleep 0.2; exit 7"),
    "stop_signal": "SIGQUIT",
    "stop_grace": 5.0,
}


async def check_stop(box: Sidecar) -> None:
    """Look that the start command of a sandbox claimed with `ENDS_BY_ITSELF` does."""
    await until(lambda: is_up(box))
    await end(box)
    event = await box.webhooks.wait("ended")
    assert (event["verdict"], event["start_command"]) == ("deleted", {"state": "ended", "exit_code": 7})
