"""Defines the Kubernetes names that gateway and controller share: kinds, labels, annotations, containers."""

GROUP = "sandlot.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
SANDBOX_KIND, SANDBOX_PLURAL = "Sandbox", "sandboxes"
POOL_KIND, POOL_PLURAL = "SandboxPool", "sandboxpools"
WARMUP_KIND, WARMUP_PLURAL = "ImageWarmup", "imagewarmups"

LABEL_INSTANCE = f"{GROUP}/instance"
LABEL_POOL = f"{GROUP}/pool"
LABEL_TEMPLATE = f"{GROUP}/template"
LABEL_FOR = f"{GROUP}/for"
LABEL_KEY = f"{GROUP}/key"  # the id of the master key that the pod's tokens derive from
LABEL_NAME = "app.kubernetes.io/name"
LABEL_COMPONENT = "app.kubernetes.io/component"
APP = "sandlot"
COMPONENT_SANDBOX = "sandbox"
COMPONENT_NODE_AGENT = "node-agent"
USAGE_COMPONENT = "usage"
RUN_COMPONENT = "run"
LABEL_TENANT = f"tenant.{GROUP}/"  # prefix of a tenant, on a Secret: "true" if its creates may name it
LABEL_USAGE_DAY = f"{GROUP}/usage-day"  # on the sums of a day, in days of Unix time
SANDBOX_PODS = f"{LABEL_NAME}={APP},{LABEL_COMPONENT}={COMPONENT_SANDBOX}"  # the label selector
NODE_AGENT_PODS = f"{LABEL_NAME}={APP},{LABEL_COMPONENT}={COMPONENT_NODE_AGENT}"

ANNOTATION_TEMPLATE = f"{GROUP}/template"
ANNOTATION_REUSE = f"{GROUP}/reuse"  # on a pool's pod that runs one sandbox after the other: the policy
ANNOTATION_LAYS_IMAGES = f"{GROUP}/lays-images"  # on a pod that a claim may lay another image under: "true"
ANNOTATION_SIDECAR_TLS = f"{GROUP}/sidecar-tls"  # on a pod whose sidecar speaks TLS: "true"
ANNOTATION_NOTE = f"note.{GROUP}/"  # prefix of a key, on a Sandbox: a note for all gateways
LABEL_PORT = f"port.{GROUP}/"  # prefix of a number, on a Sandbox: a port of every gateway reserved for it
ANNOTATION_REQUEST = f"{GROUP}/request"  # on a Sandbox: its create request, without confidential fields

CONTAINER_SANDBOX, CONTAINER_SIDECAR = "sandbox", "sidecar"
