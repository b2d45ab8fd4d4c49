"""Keeps the services of the owner's group reachable, from its claim until its end; loads their code for it."""

from __future__ import annotations

from ...core.errors import SidecarError, bad_input
from .. import log
from ..executor_client import ExecutorError, ExecutorGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..executor_client import ExecutorClient
    from ..gateway import Gateway
    from .listeners import Listeners


class OwnedLinks:
    """The links of one instance. `shares_network`: the network `full` is other sandboxes', too.

    `listen`: where the sidecar itself listens.
    """

    def __init__(
        self, executor: ExecutorClient, gateway: Gateway | None, *, shares_network: bool, listen: str
    ) -> None:
        self._executor = executor
        self._gateway = gateway
        self._shares_network = shares_network
        self._own_port = None if listen.startswith("unix:") else int(listen.rpartition(":")[2])
        self._listeners: Listeners | None = None

    def check(self, claim: dict[str, Any]) -> None:
        """Raise a 400 for a claim with services that this sidecar cannot link."""
        if not claim["services"]:
            return
        if self._gateway is None:
            raise bad_input("services need a webhook in the config", field="services")
        if self._shares_network and claim["network"] == "full":
            # Another sandbox could connect to them there, with this one's rights.
            raise bad_input("services need network none: full is the machine's network here", field="network")
        if any(self._own_port in service["ports"] for service in claim["services"]):
            text = (
                f"services: port {self._own_port} is the sidecar's own; let the service listen on another one"
            )
            raise bad_input(text, field="services")

    async def begin(self, claim: dict[str, Any] | None) -> None:
        """Listen for the claim's services and name them, in place of what was there.

        The caller holds the instance's lock. Raises ExecutorGone, and ExecutorError `setup`: names may be there already
        that are not for another owner.
        """
        self.stop()
        services = (claim or {}).get("services")  # an earlier version's record has none
        if claim is None or not services or self._gateway is None:
            return
        from . import hosts, listeners

        listening = self._listeners = listeners.Listeners(self._gateway, sandbox_id=claim["sandbox_id"])
        try:
            await listening.open(self._executor, services)
            await hosts.write(self._executor, services)
        except ExecutorGone:
            raise
        except (SidecarError, OSError) as error:
            self.stop()
            message = f"cannot link the services of the group: {error}"
            raise ExecutorError(503, "setup", message) from error

    async def begin_again(self, claim: dict[str, Any] | None) -> list[str]:
        """Do so for an owner whose code has run, and may have taken ports and files; return notes of what is missing.

        Raises ExecutorGone.
        """
        self.stop()
        services = (claim or {}).get("services")
        if claim is None or not services or self._gateway is None:
            return []
        from . import hosts, listeners

        listening = self._listeners = listeners.Listeners(self._gateway, sandbox_id=claim["sandbox_id"])
        notes: list[str] = []
        for service in services:
            for port in service["ports"]:
                one = {**service, "ports": [port]}
                try:
                    await listening.open(self._executor, [one])
                except ExecutorGone:
                    raise
                except (SidecarError, OSError) as error:
                    notes.append(f"port {port} of the service {service['name']} is not linked: {error}")
        try:
            await hosts.write(self._executor, services)
        except ExecutorGone:
            raise
        except (SidecarError, OSError) as error:
            notes.append(f"/etc/hosts has no names of services: {error}")
        for note in notes:
            log.event("links_failed", error=note)
        return notes

    def stop(self) -> None:
        """Stop listening, and cut all connections."""
        if self._listeners is not None:
            self._listeners.close()
            self._listeners = None
