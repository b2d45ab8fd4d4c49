"""Defines the names of Sandlot's HTTP headers; `…_KEY` in the form of parsers and ASGI.

Every sidecar imports this.
"""

OP = "X-Sandlot-Op"  # a command's id, chosen by its caller: a repeated request does not run it twice
ATTACHED = "X-Sandlot-Attached"  # 1: the stream is that of an earlier command
QUEUED = "X-Sandlot-Queued"  # seconds that the request was queued at the gateway
VERDICT = "X-Sandlot-Verdict"  # how the command or its sandbox has ended
MODE, MTIME = "X-Sandlot-Mode", "X-Sandlot-Mtime"  # of a file
ENTRIES, BYTES = "X-Sandlot-Entries", "X-Sandlot-Bytes"  # of an exported layer
SELECTED = "X-Sandlot-Selected"  # 1: the layer has only what was asked for; older sidecars export everything
# Of a webhook.
INSTANCE, SENDER, SIGNATURE = "X-Sandlot-Instance", "X-Sandlot-Sender", "X-Sandlot-Signature"
GATEWAY = "X-Sandlot-Gateway"  # of its answer: shows that a gateway gave it

(
    OP_KEY,
    ATTACHED_KEY,
    QUEUED_KEY,
    VERDICT_KEY,
    ENTRIES_KEY,
    BYTES_KEY,
    SELECTED_KEY,
    INSTANCE_KEY,
    SENDER_KEY,
    SIGNATURE_KEY,
    GATEWAY_KEY,
) = (
    name.lower().encode()
    for name in (
        OP,
        ATTACHED,
        QUEUED,
        VERDICT,
        ENTRIES,
        BYTES,
        SELECTED,
        INSTANCE,
        SENDER,
        SIGNATURE,
        GATEWAY,
    )
)
