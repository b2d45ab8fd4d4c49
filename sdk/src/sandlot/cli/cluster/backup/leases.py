"""The leases of training runs in a backup: which ConfigMaps are some, and how one begins again when it is restored."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from ..doc import Doc

RUN_LABELS = {"app.kubernetes.io/name": "sandlot", "app.kubernetes.io/component": "run"}
_KEY = "lease"
_MOST = 64 << 10  # bytes; a gateway's has 16 texts of metadata


def is_run(doc: Doc) -> bool:
    """Return whether a ConfigMap is a lease that a gateway finds by its name: that of its tenant and run."""
    if not RUN_LABELS.items() <= doc.labels.items() or doc.raw.get("binaryData"):
        return False
    lease = _lease(doc)
    named = f"{lease.get('tenant')}/{lease.get('id')}"
    return doc.name == f"sandlot-run-{hashlib.sha256(named.encode('utf-8', 'replace')).hexdigest()[:32]}"


def renewed(doc: Doc, *, now: float) -> dict[str, Any]:
    """Return the content of a lease from whose restore on its run has its whole grace: no gateway could hear it before."""
    lease = _lease(doc)
    if lease.get("state", "ACTIVE") == "ACTIVE":
        lease["renewed_at"] = now
    return {"data": {_KEY: json.dumps(lease)}}


def _lease(doc: Doc) -> dict[str, Any]:
    text = doc.text("data", _KEY)
    if set(doc.doc("data").raw) != {_KEY} or len(text) > _MOST:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}
