"""What an operator can do about a collection that the API server does not let us list or watch."""

from __future__ import annotations

from sandlot_contract.names import GROUP

from sandlot_kube.errors import KubeError


def undefined(path: str) -> str:
    """Return what is not installed where the API server has no such collection, and what to do."""
    return (
        f"{path.rpartition('/')[2]}.{GROUP} has no CustomResourceDefinition in this cluster, as Helm installs none in an "
        "upgrade; run `kubectl apply --server-side --force-conflicts -f charts/sandlot/crds`"
    )


def explained(error: Exception, path: str) -> str:
    """Return why a collection cannot be listed or watched, with what to do where that is known."""
    # A list is empty where there is nothing, so 404 says that the resource itself is unknown.
    if isinstance(error, KubeError) and error.status == 404 and path.startswith(f"/apis/{GROUP}/"):
        return f"{undefined(path)} (status 404)"
    if isinstance(error, KubeError) and error.status == 403:
        return f"{error}; check the Role and ClusterRole of the service account"
    return str(error) or type(error).__name__
