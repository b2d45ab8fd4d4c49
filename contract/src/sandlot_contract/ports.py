"""The TCP ports that parts listen on unless they are told otherwise; the chart has the same."""

GATEWAY_PORT = 8642  # clients, and metrics
WEBHOOK_PORT = 8641  # of the gateway: sidecars report to it, and sandboxes reach no other
CONTROLLER_PORT = 8080  # health and metrics
SIDECAR_PORT = 8700  # in a pod
