"""Puts a claim in force: lays its image, sets its limits, network and host name."""

from __future__ import annotations

import socket

from . import spawn
from .errors import ExecutorError, SetupError
from .limits import validate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .ahead import Ahead
    from .boot import Boot
    from .exchange import Exchange
    from .image import Image
    from .limits import Limits
    from .runners import Runners

NETWORKS = ("full", "none")


class ClaimApplication:
    """The parts of the sandbox that a claim changes. `hostname`: the one that it has unless a claim sets another.

    `kill_all` kills all processes, `restart` also starts the init again.
    """

    def __init__(
        self,
        *,
        boot: Boot,
        runners: Runners,
        limits: Limits,
        ahead: Ahead,
        exchange: Exchange,
        hostname: str,
        kill_all: Callable[[], None],
        restart: Callable[[], object],
    ) -> None:
        self._boot = boot
        self._runners = runners
        self._limits = limits
        self._ahead = ahead
        self._exchange = exchange
        self._default_hostname = hostname
        self._kill_all = kill_all
        self._restart = restart

    def apply(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Apply a claim's image, limits, network and host name; `shell` is the one of a new image.

        `unused` in the request: this generation has had no owner, so its processes may stay. `shared`: the descriptor is
        the mount namespace of a layer to put above the image.
        """
        boot = self._boot
        network, image = network_of(message, boot), boot.plan.claimed(message, fds)
        notes: list[str] = []
        laid: dict[str, Any] = {}
        if message.get("limits") is not None:
            notes = self._limit(validate(message["limits"]))
        hostname = message.get("hostname")
        if image is not None:
            kept = self._lay(image, network, unused=bool(message.get("unused")))
            notes += boot.notes
            laid = {"shell": spawn.path_of_shell("sh") or None, "runners": kept}
        elif network != boot.network:
            boot.hostname = str(hostname or boot.hostname)
            boot.network = network
            # Restart all processes in the new network; keep the files if possible.
            self._restart()
        if hostname and hostname != boot.hostname:
            boot.hostname = str(hostname)
            socket.sethostname(boot.hostname)
        return {"notes": notes, **laid}

    def _limit(self, values: dict[str, Any]) -> list[str]:
        """Enforce a claim's limits on the current root and runners, unless they are; return notes."""
        limits = self._limits
        if limits.are_set(values):
            return list(limits.notes)
        notes = [*limits.replace(values), *limits.resize(self._boot.root)]
        self._runners.limit()  # by the limits that are set now
        return notes

    def _lay(self, image: Image, network: str, *, unused: bool) -> bool:
        """Lay an image; return whether the runners have stayed, which then have to hear of it."""
        boot = self._boot
        if not boot.plan.overlay:
            raise ExecutorError("no_overlay", "the root is not an overlay: leave image out", field="image")
        if unused and (network, self._default_hostname) == (boot.network, boot.hostname):
            self._ahead.discard()
            if self._exchange.run(image):
                return True
        self._ahead.drop()
        self._kill_all()
        self._runners.retired.await_empty()
        if boot.fresh is not None and (left := boot.fresh.left_sockets(boot.home)):
            raise SetupError(f"the earlier image left sockets: {str(left)[:200]}; start another sandbox")
        boot.network, boot.hostname = network, self._default_hostname  # which a reset compares with
        boot.lay(image)
        return False


def network_of(message: dict[str, Any], boot: Boot) -> str:
    """Return the network that a request asks for, by default the current one. Raises ExecutorError."""
    network = message.get("network") or boot.network
    if network not in NETWORKS:
        raise ExecutorError("bad_request", "network must be full or none", field="network")
    return network
