"""The names on Kubernetes that gateway and controller must agree on: kinds, labels, annotations, containers."""

GROUP = "sandlot.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
SANDBOX_KIND, SANDBOX_PLURAL = "Sandbox", "sandboxes"
POOL_KIND, POOL_PLURAL = "SandboxPool", "sandboxpools"

LABEL_INSTANCE = f"{GROUP}/instance"
LABEL_POOL = f"{GROUP}/pool"
LABEL_TEMPLATE = f"{GROUP}/template"
LABEL_FOR = f"{GROUP}/for"
LABEL_NAME = "app.kubernetes.io/name"
LABEL_COMPONENT = "app.kubernetes.io/component"
APP = "sandlot"
COMPONENT_SANDBOX = "sandbox"
SANDBOX_PODS = f"{LABEL_NAME}={APP},{LABEL_COMPONENT}={COMPONENT_SANDBOX}"  # the label selector

ANNOTATION_TEMPLATE = f"{GROUP}/template"
ANNOTATION_NOTE = (
    f"note.{GROUP}/"  # and a key, on a Sandbox: what every gateway has to know of it while it lives
)
LABEL_PORT = f"port.{GROUP}/"  # and a number, on a Sandbox: the port of every gateway that is its alone
ANNOTATION_REQUEST = f"{GROUP}/request"  # on a Sandbox: what its caller asked for, as far as all may read it

CONTAINER_SANDBOX, CONTAINER_SIDECAR = "sandbox", "sidecar"
