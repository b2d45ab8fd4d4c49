"""How a sidecar is started, and where and how it reports. Every sidecar imports this: constants only."""

CONFIG_VARIABLE = "SANDLOT_SIDECAR_CONFIG"  # its config as JSON, in a pod
# In the environment of a pod's sandbox container, with the instance's id: the sidecar finds the container by it.
TARGET_VARIABLE = "SANDLOT_TARGET"

WEBHOOK_PATH = "/internal/sidecar"  # at the gateway
WEBHOOK_SENDER = (
    b"webhook"  # the HMAC of this with the instance's token shows who sends, before the body is read
)
WEBHOOK_SIGNATURE = "sha256="  # before the hexadecimal HMAC of the body
