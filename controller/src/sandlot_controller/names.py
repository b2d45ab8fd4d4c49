"""The names that gateway and controller must agree on: resource kinds, labels, annotations."""

GROUP = "sandlot.dev"
VERSION = "v1alpha1"
SANDBOX_KIND = "Sandbox"
POOL_KIND = "SandboxPool"

LABEL_POOL = f"{GROUP}/pool"
LABEL_TEMPLATE = f"{GROUP}/template"
LABEL_SANDBOX = f"{GROUP}/sandbox"
LABEL_TENANT = f"{GROUP}/tenant"
