"""What a sidecar imports in its own image."""

from __future__ import annotations

import json

from sandlot import Client

from tests.kubernetes.boxes import pod_name, pods_exec, warm
from tests.kubernetes.stack import Stack

IMPORTS = """
import sys
import sandlot_sidecar.__main__ as main
lean = main.lean.import_asyncio()
import sandlot_sidecar.config, sandlot_sidecar.executor.main, sandlot_sidecar.server.main
places = {name: getattr(module, "__cached__", None) for name, module in sys.modules.items()}
found = {"lean": lean, "elsewhere": [name for name, place in places.items() if place and ".zip" not in place]}
import json
print(json.dumps(found))
"""


def test_modules_come_from_one_file(stack: Stack, client: Client) -> None:
    """Each other file that a sidecar imports is four descriptors more that gVisor keeps, and the kubelet reads."""
    with warm(client) as box:
        pod = pod_name(box)
        command = ["python3", "-S", "-P", "-OO", "-c", IMPORTS]
        told = json.loads(pods_exec(stack, pod, command, container="sidecar"))
    assert told["lean"] is True
    elsewhere = {name for name in told["elsewhere"] if not name.startswith(("encodings", "httptools"))}
    assert elsewhere == set()
