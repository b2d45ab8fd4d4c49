"""Defines how a sidecar is configured and where it reports. Every sidecar imports this: constants only."""

CONFIG_VARIABLE = "SANDLOT_SIDECAR_CONFIG"  # a sidecar's config as JSON, in a pod
# Set to the instance's id in the environment of a pod's sandbox container, by which the sidecar finds it.
TARGET_VARIABLE = "SANDLOT_TARGET"

WEBHOOK_PATH = "/internal/sidecar"  # at the gateway
WEBHOOK_SENDER = (
    b"webhook"  # its HMAC with the instance token authenticates the sender before the body is read
)
WEBHOOK_ANSWER = b"webhook answer"  # its HMAC with the instance token shows that a gateway answers
WEBHOOK_SIGNATURE = "sha256="  # prefix of the body's hexadecimal HMAC
# At the same port: opens a connection to another service of the sandbox's group, authenticated as a webhook is. Signed is
# its target, path and query, which has the time in whole seconds.
LINK_PATH = "/internal/link"
LINK_MAX_AGE = 120  # seconds that it may be old, or the clocks of two nodes differ

# Protocols of a connection to a port in the sandbox, after a 101.
TCP_UPGRADE, UDP_UPGRADE = "sandlot-tcp", "sandlot-udp"

# DNS names in the certificates of encrypted calls, which say what their owner is. Pods have no names of their own.
SIDECAR_NAME = "sidecar.sandlot"
GATEWAY_NAME = "gateway.sandlot"  # of gateways and controllers, which call sidecars
ENCRYPTED = "tls:"  # prefix of the address of a sidecar that speaks TLS
