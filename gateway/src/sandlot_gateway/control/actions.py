"""The audit log's vocabulary: the name of what each control route does, found by method and path.

Not by FastAPI's routing: calls that are refused before it have an action, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandlot_gateway.control.paths import E2B_BASE, PREFIX, e2b_route, is_e2b
from sandlot_gateway.control.unsupported import UNSUPPORTED
from sandlot_gateway.credentials import KEYS_PATH, NEWS_PATH

_SANDBOX = f"{PREFIX}/sandbox"
_ONE = f"{_SANDBOX}/{{sandbox_id}}"
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

# The order decides between paths with ids, as in the application. A path without ids comes before all.
_ACTIONS = {
    f"POST {_SANDBOX}/status:batchGet": "sandbox.get_status",
    f"POST {_SANDBOX}/background-jobs/status:batchGet": "job.get_status",
    f"POST {_SANDBOX}/checkpoints:batchGet": "checkpoint.list",
    f"GET {_SANDBOX}/checkpoints": "checkpoint.list",
    f"GET {_SANDBOX}/checkpoints/{{checkpoint_id}}": "checkpoint.get",
    f"DELETE {_SANDBOX}/checkpoints/{{checkpoint_id}}": "checkpoint.delete",
    f"GET {_SANDBOX}/expose/all": "exposure.list",
    **{
        f"{method} {PREFIX}{path}": "unsupported.call"
        for paths in UNSUPPORTED.values()
        for path in paths
        for method in _METHODS
    },
    f"POST {_SANDBOX}": "sandbox.create",
    f"GET {_SANDBOX}": "sandbox.list",
    f"DELETE {_SANDBOX}": "sandbox.delete_many",
    f"GET {_ONE}": "sandbox.get",
    f"DELETE {_ONE}": "sandbox.delete",
    f"POST {PREFIX}/group": "group.create",
    f"GET {PREFIX}/group/{{group_id}}": "group.get",
    f"DELETE {PREFIX}/group/{{group_id}}": "group.delete",
    f"POST {_ONE}/fork": "sandbox.fork",
    f"POST {_ONE}/reset": "sandbox.reset",
    f"GET {_ONE}/error-context": "sandbox.get_error",
    f"GET {_ONE}/logs": "sandbox.get_logs",
    f"GET {_ONE}/commands": "command.list",
    f"GET {_ONE}/commands/{{op_id}}/output": "command.get_output",
    f"POST {_ONE}/auth": "token.create",
    f"POST {_ONE}/checkpoints": "checkpoint.create",
    f"GET {_ONE}/checkpoints": "checkpoint.list",
    f"DELETE {_ONE}/checkpoints": "checkpoint.delete_many",
    f"POST {_ONE}/expose": "exposure.create",
    f"GET {_ONE}/expose": "exposure.list",
    f"DELETE {_ONE}/expose/{{exposure_id}}": "exposure.delete",
    f"POST {_ONE}/ssh-session": "ssh_session.create",
    f"DELETE {_ONE}/ssh-session/{{session_id}}": "ssh_session.delete",
    f"GET {_ONE}/egress-policy": "egress.get",
    f"PUT {_ONE}/egress-policy": "egress.put",
    f"GET {PREFIX}/pools": "pool.list",
    f"PUT {PREFIX}/pools/{{name}}": "pool.put",
    f"DELETE {PREFIX}/pools/{{name}}": "pool.delete",
    f"GET {PREFIX}/stats": "stats.get",
    f"GET {PREFIX}/usage": "usage.get",
    f"POST {PREFIX}/image-warmups": "warmup.create",
    f"GET {PREFIX}/image-warmups": "warmup.list",
    f"GET {PREFIX}/image-warmups/{{warmup_id}}": "warmup.get",
    f"DELETE {PREFIX}/image-warmups/{{warmup_id}}": "warmup.delete",
    f"GET {PREFIX}/runs": "run.list",
    f"GET {PREFIX}/runs/{{run_id}}": "run.get",
    f"GET {PREFIX}/runs/{{run_id}}/report": "run.get_report",
    f"PUT {PREFIX}/runs/{{run_id}}": "run.put",
    f"DELETE {PREFIX}/runs/{{run_id}}": "run.delete",
    f"POST {PREFIX}/runs/{{run_id}}/renew": "run.check_in",
    f"GET {PREFIX}/template/registry-credentials": "registry_credentials.list",
    f"POST {PREFIX}/template/check-docker-image": "image.check",
    f"GET {PREFIX}/events": "event.list",
    f"GET {PREFIX}/user/whoami": "key.get",
    f"GET {PREFIX}/openapi.json": "openapi.get",
    f"HEAD {PREFIX}/openapi.json": "openapi.get",
    **{
        f"{method} {E2B_BASE}/sandboxes{path}": action
        for method, path, action in (
            ("POST", "", "sandbox.create"),
            ("GET", "", "sandbox.list"),
            ("GET", "/{sandbox_id}", "sandbox.get"),
            ("DELETE", "/{sandbox_id}", "sandbox.delete"),
            ("POST", "/{sandbox_id}/connect", "token.create"),
            ("POST", "/{sandbox_id}/resume", "token.create"),
            ("POST", "/{sandbox_id}/pause", "sandbox.pause"),
            ("POST", "/{sandbox_id}/fork", "sandbox.fork"),
            ("POST", "/{sandbox_id}/timeout", "sandbox.set_deadline"),
            ("POST", "/{sandbox_id}/refreshes", "sandbox.set_deadline"),
            ("PUT", "/{sandbox_id}/network", "egress.put"),
            ("GET", "/{sandbox_id}/metrics", "sandbox.get"),
            ("POST", "/{sandbox_id}/snapshots", "checkpoint.create"),
        )
    },
    f"GET {E2B_BASE}/snapshots": "checkpoint.list",
    f"DELETE {E2B_BASE}/templates/{{checkpoint_id}}": "checkpoint.delete",
    f"POST {E2B_BASE}/v3/templates": "template.create",
    **{
        f"{method} {E2B_BASE}/templates/{path}": action
        for method, path, action in (
            ("POST", "{template_id}/builds/{build_id}", "template.build"),
            ("GET", "{template_id}/builds/{build_id}/status", "template.get_build"),
            ("GET", "{template_id}/files/{files_hash}", "template.create_upload"),
            ("PUT", "{template_id}/files/{files_hash}", "template.upload"),
            ("GET", "aliases/{template_id}", "template.get"),
            ("GET", "{template_id}/tags", "template.list_tags"),
            ("POST", "tags", "template.put_tags"),
            ("DELETE", "tags", "template.delete_tags"),
        )
    },
    "POST /run_code": "code.run",
    "POST /run_jupyter": "code.run",
    "GET /metrics": "metrics.get",
    "GET /internal/sandboxes/{sandbox_id}/instance": "peer.call",
    f"POST {NEWS_PATH}": "peer.call",
    "GET /internal/claims": "peer.call",
    f"GET {KEYS_PATH}": "peer.call",
    "GET /internal/events": "peer.call",
}
# Their ids are the only credential of what they name.
_CREDENTIALS = frozenset({"exposure_id", "session_id"})
_READS = ("get", "list", "check")


@dataclass(frozen=True, slots=True)
class Action:
    name: str

    @property
    def kind(self) -> str:
        """The kind of the resource."""
        return self.name.partition(".")[0]

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.name.partition(".")[2].startswith(_READS)


UNKNOWN = Action("unknown.call")
ACTIONS = frozenset({*_ACTIONS.values(), UNKNOWN.name})


@dataclass(frozen=True, slots=True)
class Found:
    """A call's action, with the ids of its path; an id of the path is that of the resource, or of its sandbox."""

    action: Action
    id: str | None = None
    credential: str | None = None
    sandbox: str | None = None


@dataclass(frozen=True, slots=True)
class _Route:
    segments: tuple[str, ...]  # those that begin with `{` match anything
    action: Action

    def match(self, given: list[str]) -> Found | None:
        ids: dict[str, str] = {}
        for own, one in zip(self.segments, given, strict=True):
            if own.startswith("{"):
                ids[own[1:-1]] = one
            elif own != one:
                return None
        sandbox = ids.pop("sandbox_id", None)
        name, last = next(iter(ids.items()), ("", None))
        if last is None and self.action.kind == "sandbox":
            last = sandbox
        if name in _CREDENTIALS:
            return Found(self.action, credential=last, sandbox=sandbox)
        return Found(self.action, id=last, sandbox=sandbox)


def _routes() -> dict[tuple[str, int], list[_Route]]:
    found: dict[tuple[str, int], list[_Route]] = {}
    for route, name in _ACTIONS.items():
        method, _, path = route.partition(" ")
        if "{" in path:
            segments = tuple(path.split("/"))
            found.setdefault((method, len(segments)), []).append(_Route(segments, Action(name)))
    return found


_ROUTES = _routes()
_FIXED = {
    tuple(route.split(" ")): Found(Action(name)) for route, name in _ACTIONS.items() if "{" not in route
}
_UNKNOWN = Found(UNKNOWN)


def find(method: str, path: str) -> Found:
    """Return what a call of this path does; UNKNOWN if no route serves it."""
    if is_e2b(path):
        path = f"{E2B_BASE}/{e2b_route(path)}"
    fixed = _FIXED.get((method, path))
    if fixed is not None:
        return fixed
    segments = path.split("/")
    for route in _ROUTES.get((method, len(segments)), ()):
        found = route.match(segments)
        if found is not None:
            return found
    return _UNKNOWN
