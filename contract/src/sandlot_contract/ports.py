"""Defines the default TCP ports; the chart has the same."""

GATEWAY_PORT = 8642  # clients, and metrics
WEBHOOK_PORT = 8641  # of the gateway, for sidecars' webhooks; the only port of it that sandboxes can reach
CONTROLLER_PORT = 8080  # health and metrics
SIDECAR_PORT = 8700  # in a pod
NODE_AGENT_PORT = 8660  # in the agent's pod; health and metrics, too
