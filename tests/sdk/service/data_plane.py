"""The data plane of all sandboxes: whose call it is, and whether that sandbox lives."""

from __future__ import annotations

from tests.sdk.service.answers import raw
from tests.sdk.service.commands import Commands
from tests.sdk.service.files import Files
from tests.sdk.service.requests import Answer, Call
from tests.sdk.service.state import State


class DataPlane:
    def __init__(self, state: State) -> None:
        self._state = state
        self._files = Files(state)
        self.commands = Commands(state)

    async def handle(self, call: Call) -> Answer:
        if call.path == "/readyz":
            return 200, {}, {}
        _, _, name, *route = call.path.split("/", 4)
        rest = "/".join(route)
        if call.headers.get("authorization") != f"Bearer {self._state.token}":
            return 401, {"error": "unauthorized"}, {}
        if self._state.sandboxes.get(name, {}).get("status") != "RUNNING":
            lost = {
                "error": "sandbox_not_found",
                "verdict": self._state.lost_verdict or "deleted",
                "message": "gone",
            }
            return 502, lost, {}
        if rest == "exec":
            return await self.commands.exec(call, name)
        if rest == "logs":
            raw(call.writer, 200, b"start command's output\n", {"Content-Type": "text/plain"})
            return None
        if rest.startswith("ops"):
            return await self.commands.op(call, name, rest.split("/")[1:])
        if rest.startswith("files"):
            return self._files.handle(call, rest.removeprefix("files").strip("/"))
        return 404, {"error": "no_such_route"}, {}
