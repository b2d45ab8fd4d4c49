"""Settings of the Kubernetes backend: its namespace and its timeouts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...settings import Settings
from .peers import PeerSettings


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Times in seconds."""

    context: str | None = None
    namespace: str | None = None
    subdomain: str = "sandboxes"
    cluster_domain: str = "cluster.local"
    peers: PeerSettings | None = None
    node_agent_token_file: Path | None = None  # None: pods keep their images
    registry_credentials: Path | None = None  # directory of TENANT.json
    image_hold: float = 1.0  # for which a create keeps its pod while its image is prepared
    image_stall: float = 300.0  # without progress of a preparation
    image_longest: float = 3600.0  # for a preparation
    image_remembered: float = 10.0  # that a node has an image for a tenant, without asking again
    image_list_pause: float = 10.0  # between two looks at which images a node has
    image_unlaid: float = 30.0  # after a claim that did not lay its image, until the slot's use of it ends
    agent_timeout: float = 5.0  # for a short call of a node agent
    agent_outage: float = (
        90.0  # that a create waits for a node agent that is away, if no other node serves it
    )
    launch_timeout: float = 5.0  # for creating a Sandbox, while a caller waits
    sidecar_tls: bool = False  # the chart switches the pods' on together with the gateways'
    secrets_namespace: str | None = None  # of the Secrets that creates may name; None: they may name none
    secrets_timeout: float = 3.0  # for reading one, while a caller waits
    retry_after: float = 2.0  # Retry-After while the API server rejects writes
    sync_timeout: float = 10.0  # for the first lists; then the gateway starts without them
    settle_timeout: float = 5.0  # for the answers of existing sidecars at the start
    verdict_wait: float = 15.0  # for the controller to record why a pod ended
    starting_for: float = 60.0  # how long a pool's pod counts as starting
    dns_after: float = 5.0  # then a start without a report is polled by its DNS name
    # How long a pending create is valid without renewal by its gateway.
    pending_create_lasts: float = 120.0
    pending_create_wait: float = 2.0  # for writing one, while a caller waits
    delete_wait: float = 2.0  # the longest that a delete waits for sidecars, records and other gateways
    look_pause: float = 2.0  # between two polls of all unowned sidecars
    claimed_within: float = 10.0  # for another gateway to claim what it started
    young: float = 10.0  # until a sandbox in a reused pod gets its record
    late_record: float = 10.0  # then this gateway records another's claim
    late_end: float = 2.0  # then it records an end that another gateway seems to have caused
    usage_settles: float = 60.0  # after an end, until no gateway writes a record of that sandbox any more
    # After a minute, until its ends count as sums: late writes have come, and the controller has deleted none.
    usage_records_settle: float = 600.0
    usage_in_sync: float = 50.0  # for which the watches have worked before that


def kubernetes_settings(settings: Settings) -> KubernetesSettings:
    """Return those that the gateway's settings make."""
    peers = None
    if settings.peers:
        peers = PeerSettings(
            settings.peers, own_host=settings.host, own_port=settings.port, max_body=settings.max_body
        )
    return KubernetesSettings(
        context=settings.kube_context,
        namespace=settings.namespace,
        subdomain=settings.subdomain,
        cluster_domain=settings.cluster_domain,
        node_agent_token_file=settings.node_agent_token_file,
        registry_credentials=settings.registry_credentials,
        sidecar_tls=settings.sidecar_tls_dir is not None,
        secrets_namespace=settings.secrets_namespace,
        peers=peers,
    )
