"""The life of the instance: start, claim, reset, end; the one place that changes its phase."""

from __future__ import annotations

import asyncio
import os
import time

from .. import kernel
from ..core.errors import ApiError, SidecarError
from ..core.op import Op, State
from . import claim as claims
from . import log, nameservers, statedoc
from . import record as records
from .clock import Clock
from .container import ContainerMemory
from .disk import Disk
from .egress import body as egress
from .egress.owned import OwnedPolicy
from .environment import environment
from .executor_client import ExecutorClient, ExecutorGone
from .journal import Journal
from .ops import Ops
from .restoration import Restoration
from .spec import Spec
from .startcommand import StartCommand
from .tasks import Tasks
from .webhooks import CLAIM_TOLD_AFTER, Webhooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..config import Config

STARTING, WARM, CLAIMED, OVER, FAILED = "starting", "warm", "claimed", "ended", "failed"
PROOF_TIMEOUT = 30.0  # seconds for the first command of a fresh sandbox
END_PATIENCE = 60.0  # seconds of trying to say `ended`
# How a sandbox can end.
VERDICTS = frozenset((
    "deleted", "deadline", "idle", "exited", "oom", "start_failed", "image_pull", "evicted", "node_lost",
    "sidecar_lost", "sandbox_lost", "reset_failed", "init_killed", "given_back",
))  # fmt: skip
# What commands that run are told of a sandbox's end that is no fault of theirs; of any other, `sandbox_ended`.
CAUSES = {
    "evicted": "evicted", "sidecar_lost": "sidecar_lost", "node_lost": "sandbox_broken", "image_pull": "sandbox_broken",
    "sandbox_lost": "sandbox_broken", "reset_failed": "sandbox_broken", "start_failed": "sandbox_broken",
    "given_back": "sandbox_broken",
}  # fmt: skip


class Instance:
    """Owns the executor, the ops, the record on disk, the timers and the webhooks."""

    def __init__(self, *, config: Config, executor: ExecutorClient) -> None:
        self.config = config
        self.executor = executor
        self.record = records.load(config.state_dir)
        self.phase = STARTING
        self.ready_at: float | None = None
        self.setup: dict[str, Any] = {}
        self.notes: list[str] = []
        self.streams = 0  # file transfers and tunnels under way: the sandbox is not idle
        self.ops = Ops(executor=executor, limits=config.ops, state_dir=config.state_dir)
        self.journal = Journal(config.state_dir)
        self.start_command: StartCommand | None = None
        self.webhooks = Webhooks(
            url=config.webhook, instance_id=config.instance_id, token=config.token, heartbeat=config.heartbeat,
            document=self.state,
        )  # fmt: skip
        self.finished = asyncio.Event()  # the process may exit
        self.on_token: Callable[[str | None], None] = lambda token: None
        self._lock = asyncio.Lock()  # claim, reset and end one after the other
        self.tasks = Tasks()
        self.clock = Clock(end=self._time_is_up, in_use=self.in_use)
        self.disk = Disk(self.ops, measured=config.target)
        self.memory = ContainerMemory([])
        # In a pod the file may be the sandbox's own, where there is no overlay above it.
        keep = os.path.join(config.state_dir, "resolv.conf") if config.target else None
        self._egress = OwnedPolicy(
            record=self.record, store=self._store, executor=executor, names=nameservers.read(keep=keep)
        )
        self.restoration = Restoration(
            state_dir=config.state_dir,
            end=lambda text: self.end("start_failed", message=text),
            ready=self._restored,
        )
        self.ops.on_change = self._ops_changed
        self.ops.journal = self.journal.write
        self.webhooks.on_unwanted = self._unwanted
        executor.on_gone = self._executor_gone
        executor.on_event = self._executor_event

    def _ops_changed(self) -> None:
        self.clock.activity()
        self.disk.look()

    # -- start -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Build the sandbox, run a command in it, say that it is ready."""
        if self.record.verdict is not None:  # an earlier process ended it and could not say so
            self.phase = OVER
            self._restore_token()
            self.tasks.spawn(self._say_ended())
            return
        config = self.config
        self.webhooks.prepare()
        lost, over = self.journal.load()
        self.executor.start()
        try:
            self.setup, counters = await self.executor.ask(
                "setup", descriptors=None, root=self._root(), target_pid=config.target_pid, hostname=config.hostname,
                target=config.instance_id if config.target else None, limits=config.limits,
                cgroup_parent=config.cgroup_parent,
            )  # fmt: skip
            self.memory = ContainerMemory(counters)
            self.notes = list(self.setup.get("notes") or [])
            if self.record.claim is not None:
                await self._apply(self.record.claim)
            self._egress.by_tables = bool(self.setup.get("guarded"))
            await self._egress.again()
            self._set_environment()
            self.ops.pool.open()
            await self._prove()
        except SidecarError as error:
            await self._fail("start_failed", str(error))
            return
        if self.record.verdict is not None or self.phase is not STARTING:
            return
        for op_id in over:
            self.ops.table.remember(op_id)
        self._restore_lost(lost)
        if self.record.claim is not None:
            if self.record.claim.get("restore") and not self.restoration.was_done():
                self.tasks.spawn(self.restoration.failed("the sidecar was restarted before"))
                return
            self.phase = CLAIMED
            self._restore_token()
            self.notes.append("the sidecar was restarted: processes of before are gone")
            self._begin_use()
            self._run_start_command()
        else:
            self._rest()
        log.event("ready", phase=self.phase, notes=self.notes)
        self._say_ready()

    def _root(self) -> dict[str, Any]:
        """What the executor builds the root from; in a pod the state directory has room for its changes."""
        root = self.config.root
        if self.config.target and "upper" not in root:
            root = {**root, "upper": os.path.join(self.config.state_dir, "upper")}
        return {**root, "resume": self.record.claim is not None} if "upper" in root else root

    def _rest(self) -> None:
        self.phase = WARM
        self._nobody_waits()

    def _nobody_waits(self) -> None:
        # A pod costs many times what a runner does, and its owner's first command would wait for the runner's birth.
        if not self.config.target:
            self.ops.pool.rest()

    def _restore_token(self) -> None:
        if self.record.claim is not None:
            self.on_token(self.record.claim["token"])

    def _restore_lost(self, lost: list[str]) -> None:
        """Ops that ran when the earlier process died: their end was not seen."""
        for op_id in lost:
            op = self.ops.restore(op_id)
            self.ops.kill(op, "sidecar_lost", message="the sidecar was restarted and did not see the end")

    async def _prove(self) -> None:
        """Run a real command: only then is the sandbox ready."""
        spec = Spec(command="exit 0")
        spec.timeout = PROOF_TIMEOUT
        if self.record.claim is None:
            spec.cwd = "/"
        op, _ = self.ops.create(spec, op_id=None)
        op.detached = True
        await self.ops.watchers.wait_ended(op, timeout=PROOF_TIMEOUT + 5.0)
        self.ops.table.drop(op)
        if op.verdict != "exited" or op.exit_code != 0:
            text = op.message or b"".join(op.log.output(b"e"[0])).decode("utf-8", "replace")[:500]
            raise SidecarError(f"the first command failed ({op.verdict}, exit code {op.exit_code}): {text}")

    def _set_environment(self) -> None:
        root, claim = self.config.root, self.record.claim
        limit = self._conditions(claim)["limits"].get("cpu")
        self.ops.environment = environment(
            image=self.setup.get("env") or {},
            configured=root.get("env") or {},
            claim=claim,
            threads=limit if self.config.target else None,
        )
        self.ops.abreast = max(1 if kernel.is_gvisor() else 2, round(limit or os.cpu_count() or 1))
        workdir = root.get("workdir") or self.setup.get("workdir")
        self.ops.workdir = (claim["workdir"] if claim is not None else None) or workdir or "/"
        self.ops.user = root.get("user")

    # -- claim -----------------------------------------------------------------------------------------------

    async def claim(self, body: dict[str, Any], *, generation: int | None) -> None:
        """Compare and set; on disk and applied before this returns. Raises ApiError."""
        claim = claims.parse(body)
        async with self._lock:
            self._refuse_over()
            if self.phase is STARTING and self.record.claim is None:
                raise ApiError(
                    503, "starting", "the sandbox is not ready yet", headers=(("Retry-After", "1"),)
                )
            if not claims.decide(self.record, claim, generation=generation):
                return
            try:
                if claim["network"] != "full":
                    self.ops.pool.rest()  # runners are born into the network that they give their ops
                await self._apply(claim)
                self.ops.pool.open()
                await asyncio.sleep(0)  # the executor makes the runner while this process waits for the disk
                await self._egress.begin(claim["egress"])
            except BaseException as error:
                # Whatever it is: a claim that was not answered would keep others out.
                self._unclaim()
                if isinstance(error, ExecutorGone):
                    raise ApiError(503, "broken", str(error)) from error
                raise
            self.phase = CLAIMED
            self.on_token(claim["token"])
            self._set_environment()
            self._begin_use()
            if claim["restore"]:
                self.restoration.expect()
            else:
                self._run_start_command()
        log.event("claimed", sandbox_id=claim["sandbox_id"], generation=self.record.generation)
        self.webhooks.claimed(after=CLAIM_TOLD_AFTER)

    def _store(self) -> None:
        # A pod is over when its machine has crashed: there the record only has to outlive this process.
        records.store(self.config.state_dir, self.record, durable=not self.config.target)

    async def set_egress(self, body: dict[str, Any]) -> None:
        """Apply a policy and keep it; both or none. Raises ApiError."""
        wanted = egress.parse(body)
        async with self._lock:
            self._refuse_over()
            claim = self.record.claim
            if claim is None or self.phase is not CLAIMED:
                raise ApiError(409, "not_claimed", "this instance has no owner")
            if claim["network"] != "full":
                raise ApiError(409, "unsupported", "the sandbox has no network")
            try:
                await self._egress.replace(wanted)
            except ExecutorGone as error:
                raise ApiError(503, "broken", str(error)) from error

    def _unclaim(self) -> None:
        self.record.disown()
        self._nobody_waits()

    async def _apply(self, claim: dict[str, Any]) -> None:
        """Limits and network of the claim, where they differ from what the sandbox was built with."""
        template = {"disk": self.config.root.get("disk"), **self.config.limits}
        limits = {name: value for name, value in claim["limits"].items() if template.get(name) != value}
        if limits or claim["network"] != "full":
            answer, _ = await self.executor.ask(
                "apply", hostname=self.config.hostname, **self._conditions(claim)
            )
            self._note(answer)

    def _conditions(self, claim: dict[str, Any] | None) -> dict[str, Any]:
        """What this owner, or nobody yet, has the sandbox run under."""
        if claim is None:
            return {"network": "full", "limits": self.config.limits}
        return {"network": claim["network"], "limits": {**self.config.limits, **claim["limits"]}}

    def _note(self, answer: dict[str, Any]) -> None:
        self.notes += [note for note in answer.get("notes") or [] if note not in self.notes]

    def _run_start_command(self) -> None:
        claim = self.record.claim
        if claim is not None and claim["start_command"] is not None:
            self.start_command = StartCommand(self.ops, claim["start_command"])
            if claim["meta"].get("main"):
                self.ops.watchers.when_ended(self.start_command.op, self._main_ended)

    def _restored(self) -> None:
        self._run_start_command()
        self.webhooks.claimed()  # gateways that did not bring the files learn that they are there

    def _main_ended(self, op: Op) -> None:
        if self.phase is CLAIMED:
            self.tasks.spawn(
                self.end("exited", message=f"the start command ended with exit code {op.exit_code}")
            )

    # -- use -------------------------------------------------------------------------------------------------

    def _begin_use(self) -> None:
        claim = self.record.claim
        if claim is not None:
            self.clock.begin(deadline_at=self.record.deadline_at(), idle_timeout=claim["idle_timeout"])

    def in_use(self) -> bool:
        """Its owner's work is under way: the start command is the sandbox's own."""
        table = self.ops.table
        own = 1 if self.start_command is not None and self.start_command.op.state is not State.ENDED else 0
        return table.running + len(table.queue) - own > 0 or self.streams > 0

    def _time_is_up(self, verdict: str, message: str) -> None:
        self.tasks.spawn(self.end(verdict, message=message))

    # -- reset -----------------------------------------------------------------------------------------------

    async def reset(self, *, keep_claim: bool, generation: int | None = None) -> dict[str, Any]:
        """Back to fresh; returns the executor's proof. Raises ApiError, also where it is at another generation."""
        async with self._lock:
            self._refuse_over()
            claims.check_generation(self.record, generation)
            if self.phase is STARTING:
                raise ApiError(
                    503, "starting", "the sandbox is not ready yet", headers=(("Retry-After", "1"),)
                )
            if not self.setup.get("overlay"):
                raise ApiError(409, "no_overlay", "the root is not an overlay: this sandbox cannot be reset")
            kept = self.record.claim if keep_claim and self.phase is CLAIMED else None
            if kept is not None and kept.get("restore"):
                text = "a sandbox from a checkpoint cannot be reset: only its image is here, not the checkpoint's files"
                raise ApiError(409, "conflict", text)
            self.phase = STARTING
            self.clock.stop()
            self.webhooks.stop()
            await self.ops.end_all("sandbox_ended", message="the sandbox was reset")
            self.start_command = None
            self.journal.clear()
            try:
                answer, _ = await self.executor.ask("reset", **self._conditions(kept))
                equal = bool(answer.get("equal"))
                if equal:
                    self.notes = list(answer.get("notes") or [])
                    await self._after_reset(kept)
            except SidecarError as error:
                await self._fail("reset_failed", str(error))
                raise ApiError(503, "reset_failed", str(error)) from error
            if not equal:
                found = "; ".join(answer["proof"]["differences"])
                await self._fail(
                    "reset_failed", f"the sandbox was not equal to a fresh one after the reset: {found}"
                )
        return {name: answer.get(name) for name in ("took_ms", "proof", "equal")}

    async def _after_reset(self, kept: dict[str, Any] | None) -> None:
        record = self.record
        if kept is None:
            await self._egress.lift()
            self.restoration.reset()
            record.generation += 1
            record.disown()
            self.on_token(None)
            self._store()
        self._set_environment()
        self.ops.forget()
        self.disk.emptied()
        await self._prove()
        if record.claim is not None:
            self.phase = CLAIMED
            self._begin_use()
            self._run_start_command()
        else:
            self._rest()
        log.event("reset", generation=record.generation)
        self._say_ready()

    def _say_ready(self) -> None:
        self.ready_at = time.time()
        self.webhooks.ready()

    # -- end -------------------------------------------------------------------------------------------------

    async def end(
        self,
        verdict: str,
        *,
        message: str | None = None,
        patience: float = END_PATIENCE,
        only_unclaimed: bool = False,
        only_of: str | None = None,
    ) -> None:
        """End the sandbox; the first verdict stays. Raises 409 `claimed` where that was to be asked.

        `only_of`: the sandbox that may own it.
        """
        async with self._lock:  # a claim under way is over by then, and counts
            if self.record.verdict is None:
                claim = self.record.claim
                anothers = only_of is not None and claim is not None and claim["sandbox_id"] != only_of
                if anothers or (only_unclaimed and claim is not None):
                    raise ApiError(409, "claimed", "this instance has an owner")
                await self._end(verdict, message, phase=OVER)
                self.tasks.spawn(self._say_ended(patience=patience))

    async def _end(self, verdict: str, message: str | None, *, phase: str) -> None:
        self.record.verdict, self.record.message = verdict, message
        self.phase = phase
        self.clock.stop()
        self.restoration.forget_timer()
        log.event("ended", verdict=verdict, message=message)
        try:
            self._store()
        except records.StoreError as error:
            log.failure("record_failed", error)
        await self.ops.end_all(CAUSES.get(verdict, "sandbox_ended"), message=message or verdict)
        if not self.executor.gone:
            try:
                await self.executor.ask("end")
            except SidecarError as error:
                log.failure("executor_end_failed", error)

    async def _fail(self, verdict: str, message: str) -> None:
        """The sandbox cannot be used: the instance is `failed` and says so as its end."""
        if self.record.verdict is None:
            await self._end(verdict, message, phase=FAILED)
            self.tasks.spawn(self._say_ended())

    async def _say_ended(self, *, patience: float = END_PATIENCE) -> None:
        await self.webhooks.ended(patience=patience)
        await asyncio.sleep(0.05)  # the answer to `end` leaves before the socket is taken away
        self.finished.set()

    def _unwanted(self, told: dict[str, Any], verdict: str | None) -> None:
        """`verdict`: how its sandbox has ended, where the gateway knew that first, as of a pod that is evicted."""
        owner = told["sandbox_id"]
        # The answer is about what was told: whoever has claimed the instance since then would be ended with it.
        self.tasks.spawn_quiet(
            self.end(
                verdict if verdict in VERDICTS else "deleted",
                message="nobody wants this instance any more",
                only_unclaimed=owner is None,
                only_of=owner,
            )
        )

    def _executor_gone(self) -> None:
        # A container's runtime kills what is left in its groups, the executor too.
        self._lost("the sandbox's executor was lost")

    def _executor_event(self, message: dict[str, Any]) -> None:
        if message.get("event") == "init_lost":
            log.event("init_lost")
            self.ops.broken("the sandbox's first process was lost; a new one was made")
        elif message.get("event") == "init_given_up":
            self._init_given_up()
        elif message.get("event") == "target_lost":
            self._lost("the sandbox's container has ended")

    def _init_given_up(self) -> None:
        if not kernel.init_is_mortal():
            self._lost("the sandbox's first process dies again and again")
        elif self.record.verdict is None:
            message = "its commands killed the sandbox's first process again and again"
            self.ops.all_died(message)
            self.tasks.spawn(self.end("init_killed", message=message))

    def _lost(self, message: str) -> None:
        if self.record.verdict is None:
            if self.memory.exhausted():
                self.tasks.spawn(self.end("oom", message="the sandbox's container reached its memory limit"))
            else:
                self.tasks.spawn(self.end("sandbox_lost", message=message))

    async def close(self) -> None:
        """Give everything back at the end of the process."""
        self.clock.stop()
        self.disk.close()
        self._egress.close()
        await self.webhooks.close()
        await self.ops.end_all("sandbox_ended", message="the sidecar leaves")
        await self.tasks.wait(timeout=5.0)
        await self.ops.close()
        self.journal.close()
        self.executor.on_gone = lambda: None
        self.executor.close()
        self.memory.close()

    # -- documents -------------------------------------------------------------------------------------------

    def _refuse_over(self) -> None:
        if self.phase is OVER or self.phase is FAILED:
            raise ApiError(410, "ended", "the sandbox has ended", verdict=self.record.verdict)

    def gate(self) -> None:
        """What every sandbox route asks first. Raises 410 or 503."""
        if self.phase is not CLAIMED:
            self._refuse_over()
            raise ApiError(503, "starting", "the sandbox is being made", headers=(("Retry-After", "1"),))
        if self.restoration.awaited:
            raise ApiError(503, "starting", "its files are being restored", headers=(("Retry-After", "1"),))

    def state(self) -> dict[str, Any]:
        """The contract's state document."""
        return statedoc.state(self)
