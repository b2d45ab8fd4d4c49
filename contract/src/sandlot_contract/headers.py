"""The names of our HTTP headers that more than one part knows; `…_KEY` as parsers and ASGI give them.

Every sidecar imports this.
"""

OP = "X-Sandlot-Op"  # a command's id, chosen by its caller: a repetition runs nothing twice
ATTACHED = "X-Sandlot-Attached"  # 1: the stream is of a command that ran before
QUEUED = "X-Sandlot-Queued"  # seconds that the request has waited at the gateway
VERDICT = "X-Sandlot-Verdict"  # how the command or its sandbox has ended
MODE, MTIME = "X-Sandlot-Mode", "X-Sandlot-Mtime"  # of a file that is read
ENTRIES, BYTES = "X-Sandlot-Entries", "X-Sandlot-Bytes"  # of a layer that is taken
# Of a webhook.
INSTANCE, SENDER, SIGNATURE = "X-Sandlot-Instance", "X-Sandlot-Sender", "X-Sandlot-Signature"

OP_KEY, ATTACHED_KEY, QUEUED_KEY, VERDICT_KEY, BYTES_KEY, INSTANCE_KEY, SENDER_KEY, SIGNATURE_KEY = (
    name.lower().encode() for name in (OP, ATTACHED, QUEUED, VERDICT, BYTES, INSTANCE, SENDER, SIGNATURE)
)
