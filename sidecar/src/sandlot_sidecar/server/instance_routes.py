"""HTTP routes of the instance: health, state, claim, egress, use, end, reset, logs, metrics."""

from __future__ import annotations

from sandlot_contract.phases import Phase
from sandlot_contract.verdicts import SANDBOX_VERDICTS, SandboxVerdict

from ..core.ends import End
from ..core.errors import bad_input
from . import fields, trace
from .egress import body as egress
from .http import EITHER, INSTANCE, NOBODY, Route
from .orphan import Orphan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .http import Http
    from .instance import Instance
    from .request import Request

HEALTH: dict[str, str] = {Phase.WARM: "ok", Phase.CLAIMED: "ok"}


class InstanceRoutes:
    """Handlers of one instance."""

    def __init__(self, instance: Instance, http: Http) -> None:
        self._instance = instance
        self._http = http
        self._orphan = Orphan(instance)

    def add_to(self, http: Http) -> None:
        """Register the routes."""
        http.add("GET", "/healthz", Route(self.health, needs=NOBODY))
        http.add("GET", "/v1/state", Route(self.state, needs=EITHER))
        http.add("GET", "/v1/usage", Route(self.usage, needs=INSTANCE))
        http.add("POST", "/v1/claim", Route(self.claim, needs=INSTANCE, shielded=True))
        http.add("GET", "/v1/egress", Route(self.egress, needs=INSTANCE))
        http.add("PUT", "/v1/egress", Route(self.set_egress, needs=INSTANCE, shielded=True))
        http.add("PUT", "/v1/deadline", Route(self.set_deadline, needs=INSTANCE, shielded=True))
        http.add("POST", "/v1/use", Route(self.use))
        http.add("POST", "/v1/orphan", Route(self.orphan, needs=INSTANCE))
        http.add("POST", "/v1/end", Route(self.end, needs=INSTANCE, shielded=True))
        http.add("POST", "/v1/reset", Route(self.reset, needs=INSTANCE, shielded=True))
        http.add("GET", "/v1/metrics", Route(self.metrics, needs=INSTANCE))
        http.add("GET", "/v1/logs", Route(self.logs))

    def health(self, request: Request) -> None:
        """Report `ok` once a command has run."""
        phase = self._instance.phase
        status = HEALTH.get(phase, phase)
        request.respond_json({"status": status}, status=200 if status == "ok" else 503)

    def state(self, request: Request) -> None:
        """Send the state document."""
        request.respond_json(self._instance.state())

    async def usage(self, request: Request) -> None:
        """Send what the sandbox uses now; this is no use of it."""
        found, _ = await self._instance.executor.ask("usage")
        if found["disk"] is None and self._instance.sandbox.setup["disk_limit"] == "measured":
            found["disk"] = self._instance.disk.used
        request.respond_json(found)

    async def claim(self, request: Request) -> None:
        """Claim the instance by compare-and-set."""
        body = request.json()
        generation = fields.integer(body, "generation", minimum=0)
        traced = trace.of(request)
        await self._instance.claim(body, generation=generation, ids=trace.ids(traced))
        headers = () if traced is None else traced.timing()
        request.respond_json(self._instance.state(), headers=headers)

    def egress(self, request: Request) -> None:
        """Send the current egress policy; nulls if none was set."""
        request.respond_json(egress.document(self._instance.record.egress))

    async def set_egress(self, request: Request) -> None:
        """Set the egress policy; responds once it is in force."""
        await self._instance.changes.set_egress(request.json())
        self.egress(request)

    async def set_deadline(self, request: Request) -> None:
        """Set the owner's deadline; responds with the state once it is recorded."""
        body = request.json()
        sandbox_id = fields.text(body, "sandbox_id", required=True, limit=256) or ""
        seconds = fields.number(body, "timeout", minimum=0.0, maximum=fields.MAX_SECONDS)
        if seconds is None:
            raise bad_input("timeout is required: the seconds until the sandbox ends", field="timeout")
        only_later = fields.flag(body, "only_later", default=False)
        await self._instance.changes.set_deadline(sandbox_id, seconds=seconds, only_later=only_later)
        request.respond_json(self._instance.state())

    def use(self, request: Request) -> None:
        """Answer; the request itself counts as a use."""
        request.respond_json({})

    def orphan(self, request: Request) -> None:
        """Note that the caller of the create has left."""
        body = request.json()
        sandbox_id = fields.text(body, "sandbox_id", required=True, limit=256) or ""
        grace = fields.number(body, "grace", minimum=0.0, maximum=fields.MAX_SECONDS)
        if grace is None:
            raise bad_input("grace is required: the seconds until the unused sandbox ends", field="grace")
        self._orphan.left(sandbox_id, grace=grace)
        request.respond_json({})

    async def end(self, request: Request) -> None:
        """End the sandbox; the first verdict wins."""
        body = request.json()
        verdict = fields.text(body, "verdict", default=SandboxVerdict.DELETED) or ""
        if verdict not in SANDBOX_VERDICTS:
            raise bad_input("verdict must be one of the contract's sandbox verdicts", field="verdict")
        only_unclaimed = fields.flag(body, "only_unclaimed", default=False)
        message = fields.text(body, "message", limit=4096)
        only_of = fields.text(body, "only_of", limit=256)
        only_unused = fields.flag(body, "only_unused", default=False)
        after_owner = fields.flag(body, "after_owner", default=False)
        if after_owner and not only_unclaimed:
            raise bad_input("after_owner is for only_unclaimed: set both", field="after_owner")
        await self._instance.end(
            End(verdict, message),
            only_unclaimed=only_unclaimed,
            only_of=only_of,
            only_unused=only_unused,
            after_owner=after_owner,
        )
        request.respond_json(self._instance.state())

    async def reset(self, request: Request) -> None:
        """Reset to a fresh sandbox and send the proof."""
        body = request.json()
        keep_claim = fields.flag(body, "keep_claim", default=False)
        generation = fields.integer(body, "generation", minimum=0)
        proof = await self._instance.reset(keep_claim=keep_claim, generation=generation)
        request.respond_json({**self._instance.state(), **proof})

    def logs(self, request: Request) -> None:
        """Send the last output of the start command."""
        query = request.query()
        stream = query.get("stream", "all")
        if stream not in ("stdout", "stderr", "all"):
            raise bad_input("stream must be stdout, stderr or all", field="stream")
        tail = fields.query_int(query, "tail")
        start = self._instance.use.start_command
        data = b"" if start is None else start.log.text(stream, tail=fields.MAX_INT if tail is None else tail)
        request.respond(data, kind="text/plain; charset=utf-8")

    def metrics(self, request: Request) -> None:
        """Send the metrics as Prometheus text."""
        from .metrics import render  # imported on first use: an idle sidecar saves its memory

        request.respond(render(self._instance, self._http), kind="text/plain; version=0.0.4")
