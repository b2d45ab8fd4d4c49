"""What the Kubernetes backend can be set to: where it works, and how long it waits for what."""

from __future__ import annotations

from dataclasses import dataclass

from .peers import PeerSettings


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Times in seconds."""

    context: str | None = None
    namespace: str | None = None
    subdomain: str = "sandboxes"
    cluster_domain: str = "cluster.local"
    peers: PeerSettings | None = None
    launch_timeout: float = 5.0  # for the API server to take a Sandbox; a caller waits for it
    retry_after: float = 2.0  # told to callers while the API server takes nothing
    sync_timeout: float = 10.0  # for the first lists; after it the gateway starts without them
    settle_timeout: float = 5.0  # for the answers of sidecars that were there before
    verdict_wait: float = 15.0  # for the controller to say why a pod ended
    starting_for: float = 60.0  # how long a pool's pod counts as being on its way
    dns_after: float = 5.0  # a start that neither a watch nor its sidecar has told of is then asked by name
    # How long others believe in a gateway's pending create without hearing of it again.
    promise: float = 120.0
    promise_wait: float = 2.0  # for the API server to take one; a caller waits for it
    look_pause: float = 2.0  # between two questions to all who have no owner, for one that is missed
    claimed_within: float = 10.0  # what another gateway started is left to that one for so long
    late_record: float = 10.0  # another gateway's claim without a record by then gets it from this one
    late_end: float = 2.0  # and an end that another gateway seems to have asked for, its end
