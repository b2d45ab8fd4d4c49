"""Checks that the Secrets and volumes exist that the release's pods mount; no value of a Secret is read."""

from __future__ import annotations

from collections.abc import Iterator

from ..doc import Doc, environment, json_of, walk
from ..finding import Finding, ok, problem
from ..world import Kind, World

_HELM = (
    "the chart creates its own: helm upgrade; one that your values name you create yourself (docs/keys.md)"
)


def check(world: World) -> Iterator[Finding]:
    release = world.release
    wanted: dict[tuple[str, str], set[str]] = {}
    for workload in [one for one in map(world.workload, ("gateway", "controller")) if one is not None]:
        spec = workload.doc("spec", "template", "spec")
        _mounted(wanted, release.namespace, spec, environment(workload))
        _pulled(wanted, release.namespace, spec)
    for daemon in world.list(Kind.DAEMON_SETS, release.sandboxes):
        spec = daemon.doc("spec", "template", "spec")
        _mounted(wanted, release.sandboxes, spec, environment(daemon))
        _pulled(wanted, release.sandboxes, spec)
    for name in json_of(world.settings("controller").get("SANDLOT_IMAGE_PULL_SECRETS", "[]"), []):
        wanted.setdefault((release.sandboxes, str(name)), set())
    if name := world.settings("controller").get("SANDLOT_SIDECAR_TLS_SECRET"):
        wanted.setdefault((release.sandboxes, name), set()).update(("ca.crt", "tls.crt", "tls.key"))
    for (namespace, name), keys in sorted(wanted.items()):
        label = f"secret {namespace}/{name}"
        found = next((one for one in world.list(Kind.SECRETS, namespace) if one.name == name), None)
        if found is None:
            yield problem(label, "it does not exist, so the pods that use it do not start", _HELM)
            continue
        have = _keys(found)
        if have and (lacking := sorted(keys - have)):
            yield problem(label, f"it lacks the key {', '.join(lacking)}", _HELM)
        else:
            yield ok(label, "it exists")


def volumes(world: World) -> Iterator[Finding]:
    workload = world.workload("gateway")
    for volume in workload.docs("spec", "template", "spec", "volumes") if workload is not None else []:
        if not (name := volume.text("persistentVolumeClaim", "claimName")):
            continue
        label = f"volume claim {name}"
        claims = world.list(Kind.CLAIMS, world.release.namespace)
        found = next((one for one in claims if one.name == name), None)
        if found is None:
            yield problem(
                label, "it does not exist, so no gateway starts", "create it (gateway.checkpoints.claim)"
            )
        elif found.text("status", "phase") != "Bound":
            phase = found.text("status", "phase") or "not bound"
            yield problem(label, f"it is {phase}", f"kubectl -n {found.namespace} describe pvc {name}")
        else:
            yield ok(label, "it is bound")


def _mounted(
    wanted: dict[tuple[str, str], set[str]], namespace: str, spec: Doc, variables: dict[str, str]
) -> None:
    """Add the Secrets that a pod mounts, and the keys whose files its variables name."""
    mounts = {
        one.text("name"): one.text("mountPath")
        for container in spec.docs("containers")
        for one in container.docs("volumeMounts")
    }
    for volume in spec.docs("volumes"):
        name = volume.text("secret", "secretName")
        if not name or volume.value("secret", "optional") is True:
            continue
        prefix = f"{mounts.get(volume.text('name'), '')}/"
        files = [value.removeprefix(prefix) for value in variables.values() if value.startswith(prefix)]
        wanted.setdefault((namespace, name), set()).update(files)


def _pulled(wanted: dict[tuple[str, str], set[str]], namespace: str, spec: Doc) -> None:
    for secret in spec.docs("imagePullSecrets"):
        wanted.setdefault((namespace, secret.text("name")), set())


def _keys(secret: Doc) -> set[str]:
    """Return the names of its keys, as the owners of its fields have them; empty if nothing tells them."""
    fields = [one.raw for one in secret.docs("metadata", "managedFields")]
    found = [each["f:data"] for each in walk(fields) if "f:data" in each]
    return {key.removeprefix("f:") for keys in found for key in keys if key.startswith("f:")}
