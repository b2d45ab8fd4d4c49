"""Enforces a policy by the kernel, and by a proxy for connections whose host name has to be read."""

from __future__ import annotations

from ...core.errors import ApiError
from .policy import Policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..executor_client import ExecutorClient
    from ..nameservers import NameServers
    from .proxy import Proxy
    from .tables import Held

# gVisor redirects to this address only.
_LOOPBACK = "127.0.0.1"


class EgressEnforcer:
    """Enforces one policy at a time; `hold` replaces it."""

    def __init__(self, executor: ExecutorClient, names: NameServers) -> None:
        self._executor = executor
        self._names = names
        self._proxy: Proxy | None = None
        self._tables: Held | None = None

    async def hold(self, wanted: dict[str, Any], *, instead_of: dict[str, Any], by_tables: bool) -> None:
        """Replace a policy; on failure the old one stays in force. `by_tables`: under gVisor.

        Raises ApiError, ExecutorError and ExecutorGone.
        """
        policy = _policy(wanted)
        rules = policy.rules(self._names.numbers())
        try:
            proxied = await self._listen(policy, by_tables=by_tables)
            if by_tables:
                from . import tables

                made = tables.Held(allow=policy.allow, rules=rules, proxied=proxied)
                tables.hold(made, instead_of=self._tables or tables.EVERYTHING)
                self._tables = made
            else:
                from . import programs

                made = programs.programs(allow=policy.allow, rules=rules, proxied=proxied)
                await self._executor.ask("egress", programs=made)
        except BaseException:
            self._follow(_policy(instead_of))
            raise
        self._follow(policy)

    async def _listen(self, policy: Policy, *, by_tables: bool) -> dict[int, int]:
        if not policy.ports:
            return {}
        from . import programs, proxy

        if self._proxy is None:
            self._proxy = proxy.Proxy(_LOOPBACK if by_tables else programs.PROXY, names=self._names)
        try:
            return await self._proxy.listen(policy.ports)
        except OSError as error:
            raise ApiError(409, "unsupported", f"the proxy for host names cannot listen: {error}") from error

    def _follow(self, policy: Policy) -> None:
        if self._proxy is not None:
            self._proxy.follow(policy)

    def cut(self) -> None:
        """Cut the proxy's connections; it goes on to listen."""
        if self._proxy is not None:
            self._proxy.cut()

    def close(self) -> None:
        """Cut the proxy's connections; the kernel drops its part with the sandbox."""
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None


def _policy(held: dict[str, Any]) -> Policy:
    return Policy(allow=held["allow"], rules=held["rules"])
