"""Sets up the sandbox: leaves the machine's namespaces, enters a pod's container where there is one, builds a root."""

from __future__ import annotations

from . import cgroups
from .errors import SetupError
from .limits import Limits, checked
from .namespaces import Home
from .plan import Plan
from .sandbox import Sandbox
from .seal import seal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .pod import Pod


def set_up(message: dict[str, Any]) -> Sandbox:
    """Make the sandbox that the server's `setup` describes; raises ExecutorError, and then nothing is left of it."""
    values = checked(message.get("limits"))
    hostname = str(message.get("hostname") or "sandbox")
    try:
        home = Home()
        pod = _enter_pod(home, message)
        plan = Plan(message.get("root") or {}, target=pod is not None)
        if pod is not None:
            cgroup, plan.store = pod.group, pod.store
        else:
            cgroup = cgroups.find(home, message.get("cgroup_parent"))
        limits = Limits(values, plan=plan, cgroup=cgroup)
        sandbox = Sandbox(home=home, pod=pod, plan=plan, limits=limits, hostname=hostname)
        try:
            sandbox.start()
        except BaseException:
            sandbox.end()
            raise
    except OSError as error:
        raise SetupError(f"the sandbox cannot be made: {error}") from error
    return sandbox


def _enter_pod(home: Home, message: dict[str, Any]) -> Pod | None:
    """Nothing that only a pod needs is loaded elsewhere; afterwards nothing can be loaded any more."""
    entered = None
    if message.get("target_pid") is not None or message.get("target") is not None:
        from . import pod

        seal()
        entered = pod.enter(home, message)
    seal()
    return entered
