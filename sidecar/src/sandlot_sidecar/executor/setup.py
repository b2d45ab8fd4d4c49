"""Sets up the sandbox: leaves the host's namespaces, enters the pod's container if there is one, builds a root."""

from __future__ import annotations

from . import cgroups
from .errors import SetupError
from .limits import Limits, validate
from .namespaces import Home
from .plan import Plan
from .sandbox import Sandbox
from .seal import seal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .pod import Pod


def set_up(message: dict[str, Any]) -> Sandbox:
    """Create the sandbox that the server's `setup` describes; raises ExecutorError after cleaning up."""
    values = validate(message.get("limits"))
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
        raise SetupError(f"cannot create the sandbox: {error}") from error
    return sandbox


def _enter_pod(home: Home, message: dict[str, Any]) -> Pod | None:
    """Enter the pod's container, if any, and seal imports; only a pod loads the modules for it."""
    entered = None
    if message.get("target_pid") is not None or message.get("target") is not None:
        from . import pod

        seal()
        entered = pod.enter(home, message)
    seal()
    return entered
