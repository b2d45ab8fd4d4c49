"""The control API: sandboxes, their ports, and pools."""

from __future__ import annotations

import shutil
from typing import Any
from urllib.parse import parse_qs

from tests.sdk.service.requests import Answer, Call
from tests.sdk.service.state import State


class ControlApi:
    def __init__(self, state: State) -> None:
        self._state = state

    async def handle(self, call: Call) -> Answer:
        if call.headers.get("authorization") != f"Bearer {self._state.api_key}":
            return 401, {"detail": "bad API key"}, {}
        method, document = call.method, call.document
        parts = call.path.removeprefix("/api/v1").strip("/").split("/")
        if parts == ["sandbox"] and method == "POST":
            return self._create(document)
        if parts == ["sandbox"] and method == "GET":
            return self._list(call)
        if parts == ["sandbox"] and method == "DELETE":
            done = [name for name in document.get("sandbox_ids", []) if self._delete(name)]
            failed = [
                {"sandbox_id": name, "error": "no such sandbox"}
                for name in document.get("sandbox_ids", [])
                if name not in done
            ]
            return 200, {"succeeded": done, "failed": failed, "message": ""}, {}
        if parts == ["user", "whoami"]:
            return 200, {"data": {"id": "default"}}, {}
        if parts == ["stats"]:
            return 200, {"sandboxes": {"RUNNING": 1}, "pools": [], "usage": []}, {}
        if parts[0] == "pools":
            return self._pool(method, parts, document)
        if parts[0] == "image-warmups":
            return self._warmup(method, parts, document)
        if parts[0] == "sandbox" and len(parts) > 1:
            return self._one(method, parts[1:], document)
        return 404, {"detail": f"no route {call.path}"}, {}

    def _list(self, call: Call) -> Answer:
        wanted = parse_qs(call.raw_query).get("labels", [])
        found = [
            box
            for box in reversed(self._state.sandboxes.values())
            if set(wanted) <= set(box["labels"])  # type: ignore[call-overload]
            and call.query.get("run") in (None, box["run"])
            and (call.query.get("is_active") != "true" or box["status"] != "TERMINATED")
        ]
        page, size = int(call.query["page"]), int(call.query["per_page"])
        part = found[(page - 1) * size : page * size]
        return 200, {"sandboxes": part, "has_next": page * size < len(found)}, {}

    def _create(self, document: dict[str, Any]) -> Answer:
        field = _refused(document)
        if field is not None:
            return 422, {"detail": f"{field}: no", "errors": [{"param": field, "details": "no"}]}, {}
        key = document["idempotency_key"]
        if key not in self._state.keys:
            name = f"sb-{len(self._state.sandboxes) + 1}"
            self._state.keys[key] = name
            self._state.sandboxes[name] = {
                "id": name,
                "name": document.get("name") or name,
                "dockerImage": document["docker_image"],
                "status": "PENDING" if self._state.pending_reads else "RUNNING",
                "cpuCores": document.get("cpu_cores", 1.0),
                "memoryGB": document.get("memory_gb", 1.0),
                "diskSizeGB": document.get("disk_size_gb", 5.0),
                "labels": document["labels"],
                "run": document.get("run"),
                "environmentVars": document.get("environment_vars") or {},
                "createdAt": "2026-01-01T00:00:00Z",
                "gatewayAuth": self._auth(name),
                "poolHit": True,
                "timings": {"queued": 0.0, "start": 0.0, "claim": 0.001},
            }
        return 201, self._state.sandboxes[self._state.keys[key]], {}

    def _auth(self, name: str) -> dict[str, object]:
        return {"token": self._state.token, "gateway_url": self._state.url, "user_ns": "sbx", "job_id": name}

    def _delete(self, name: str) -> bool:
        if name not in self._state.sandboxes:
            return False
        self._state.sandboxes[name]["status"] = "TERMINATED"
        return True

    def _pool(self, method: str, parts: list[str], document: dict[str, Any]) -> Answer:
        if method == "GET":
            for pool in self._state.pools.values():
                pool.update(ready=pool["size"], starting=0)
            return 200, {"pools": list(self._state.pools.values())}, {}
        if method == "PUT":
            old = self._state.pools.get(parts[1])
            if old is None and "size" not in document:
                return 422, {"detail": "size: needed", "errors": [{"param": "size", "details": "needed"}]}, {}
            old = old or {}
            if (runtime_class := document.get("runtime_class")) not in (None, "", "namespaces"):
                error = {"param": "runtime_class", "details": "not here"}
                return 422, {"detail": f"runtime_class: no {runtime_class!r} here", "errors": [error]}, {}
            usual = {"policy": "tenant", "max_uses": 100, "max_age": 3600}
            reuse = {**old.get("reuse", usual), **document.get("reuse", {})}
            pool = {"name": parts[1], "image": "host", **old, **document, "reuse": reuse}
            pool["runtime_class"] = pool.get("runtime_class") or None
            self._state.pools[parts[1]] = {**pool, "ready": 0, "starting": pool["size"]}
            return 200, self._state.pools[parts[1]], {}
        if self._state.pools.pop(parts[1], None) is None:
            return 404, {"detail": "no such pool"}, {}
        return 200, {}, {}

    def _warmup(self, method: str, parts: list[str], document: dict[str, Any]) -> Answer:
        """One image becomes ready with each look at a warm-up; those that begin with `missing` fail."""
        known = self._state.warmups
        if method == "POST":
            if not document["images"]:
                error = {"param": "images", "details": "needed"}
                return 422, {"detail": "images: needed", "errors": [error]}, {}
            name = f"warmup-{len(known):016x}"
            known[name] = {"left": [one["image"] for one in document["images"]], "errors": []}
            known[name] |= {
                "id": name,
                "tenant": "alpha",
                "images": len(document["images"]),
                "images_ready": 0,
            }
            return 201, self._shown(known[name]), {}
        if len(parts) == 1:
            return 200, {"warmups": [self._shown(one) for one in known.values()]}, {}
        if parts[1] not in known:
            return 404, {"detail": "no such warm-up"}, {}
        if method == "DELETE":
            del known[parts[1]]
            return 200, {}, {}
        one = known[parts[1]]
        if one["left"]:
            image = one["left"].pop()
            if image.startswith("missing"):
                one["errors"].append(
                    {"image": image, "node": None, "message": "the registry has no such image"}
                )
            else:
                one["images_ready"] += 1
        return 200, self._shown(one), {}

    def _shown(self, one: dict[str, Any]) -> dict[str, Any]:
        state = "RUNNING" if one["left"] else "DONE"
        message = "no node prepares images" if one["errors"] else None
        shown = {
            **one,
            "message": message,
            "state": state,
            "images_failed": len(one["errors"]),
            "seconds_left": None,
        }
        del shown["left"]
        return shown

    def _one(self, method: str, parts: list[str], document: dict[str, Any]) -> Answer:
        name = parts[0]
        box = self._state.sandboxes.get(name)
        if box is None:
            return 404, {"detail": f"no sandbox {name}"}, {}
        if parts[1:] == ["auth"]:
            return 200, self._auth(name), {}
        if parts[1:] == ["reset"]:
            shutil.rmtree(self._state.root)
            self._state.root.mkdir()
            return 200, {"equal": True}, {}
        if parts[1:2] == ["expose"]:
            return self._expose(method, name, parts[2:], document)
        if method == "DELETE":
            self._delete(name)
            return 200, {"success": True, "message": ""}, {}
        if box["status"] == "PENDING":
            self._state.pending_reads -= 1
            if self._state.pending_reads <= 0:
                box["status"] = (self._state.lost_verdict and "ERROR") or "RUNNING"
                box["verdict"] = self._state.lost_verdict
        return 200, {key: value for key, value in box.items() if key != "gatewayAuth"}, {}

    def _expose(self, method: str, name: str, parts: list[str], document: dict[str, Any]) -> Answer:
        if method == "POST":
            exposure = {
                "exposure_id": f"ex-{len(self._state.exposures) + 1}",
                "sandbox_id": name,
                "port": document["port"],
                "protocol": document["protocol"],
                "name": document.get("name"),
                "url": f"{self._state.url}/expose/ex-{len(self._state.exposures) + 1}",
                "tls_socket": "",
                "external_endpoint": "127.0.0.1:4242" if document["protocol"] != "HTTP" else None,
            }
            self._state.exposures[str(exposure["exposure_id"])] = exposure
            return 200, exposure, {}
        if method == "GET":
            return 200, {"exposures": list(self._state.exposures.values())}, {}
        del self._state.exposures[parts[0]]
        return 200, {"success": True}, {}


def _refused(document: dict[str, Any]) -> str | None:
    """The first field of a create that a server refuses."""
    if document["docker_image"] == "":
        return "docker_image"
    if document.get("run_image_command"):
        return "run_image_command"  # "host" has none
    if document.get("stop_signal") == "NOPE":
        return "stop_signal"
    if not 0 <= document.get("stop_grace_seconds", 0) <= 5:
        return "stop_grace_seconds"
    for limit, least in (("cpu_cores", 0.1), ("memory_gb", 0.03), ("pids", 16)):
        if document.get(limit, least) < least:
            return limit
    for name in document.get("environment_vars") or ():
        if "=" in name:
            return f"environment_vars.{name}"
    return "labels" if "" in document["labels"] else None
