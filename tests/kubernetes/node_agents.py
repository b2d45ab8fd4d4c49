"""The node agent of one node, and what the images that it prepares have in them."""

from __future__ import annotations

import base64
import hashlib
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kubernetes.stack import Stack
from tests.waiting import wait_until

DIRECTORY = "/var/lib/sandlot/images"
PROGRAM = "usr/bin/dash"  # of every image here, and no link
# Standard input has the call; agents and sidecars let gateway and controller in, so it comes from one.
CALL = """
import json, sys, urllib.error, urllib.request
call = json.load(sys.stdin)
data = None if call["body"] is None else json.dumps(call["body"]).encode()
headers = {"Authorization": "Bearer " + call["token"], "Content-Type": "application/json"}
request = urllib.request.Request(call["url"], data=data, headers=headers, method=call["method"])
try:
    with urllib.request.urlopen(request, timeout=60) as answer:
        print(json.dumps([answer.status, answer.read().decode()]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, error.read().decode()]))
"""


class Agent:
    """The agent of one node, called from a pod of `component`."""

    def __init__(self, stack: Stack, node: str, *, component: str = "gateway") -> None:
        self.stack = stack
        self.node = node
        self.component = component
        secret = stack.get("secret", f"{stack.release}-node-agent", "-n", stack.sandboxes)
        self._token = base64.b64decode(secret["data"]["token"]).decode()

    def pod(self) -> dict[str, Any]:
        """Of the agent that is ready."""
        chosen = (
            "-l",
            "app.kubernetes.io/component=node-agent",
            "--field-selector",
            f"spec.nodeName={self.node}",
        )

        def ready() -> dict[str, Any] | None:
            for pod in self.stack.get("pods", "-n", self.stack.sandboxes, *chosen)["items"]:
                conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
                if "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True":
                    return pod
            return None

        found = wait_until(ready, seconds=120, pause=0.5, what=f"an agent on {self.node}")
        assert found is not None
        return found

    def call(self, method: str, path: str, body: dict[str, str] | None = None) -> tuple[int, Any]:
        url = f"http://{self.pod()['status']['podIP']}:8660{path}"
        return call_from(self.stack, self.component, method, url, token=self._token, body=body)

    def prepare(self, reference: str) -> dict[str, Any]:
        """The image as the agent tells of it, once it is there."""

        def ready() -> dict[str, Any] | None:
            status, image = self.call("POST", "/v1/images?wait=30", {"image": reference})
            assert status in (200, 202), image
            return image if status == 200 else None

        image = wait_until(ready, seconds=240, what=f"{reference} on {self.node}")
        assert image is not None
        return image


def call_from(
    stack: Stack, component: str, method: str, url: str, *, token: str, body: dict[str, Any] | None = None
) -> tuple[int, Any]:
    """One call, whose answer is JSON or empty, from where the network policies let `component` go."""
    call = json.dumps({"method": method, "url": url, "token": token, "body": body})
    pod = f"deploy/{stack.release}-{component}"
    words = ("exec", "-i", "-n", stack.namespace, pod, "--", "python3", "-c", CALL)
    status, text = json.loads(stack.kubectl(*words, stdin=call))
    return status, json.loads(text) if text else None


def leave_no_image(stack: Stack, *, nodes: Sequence[str] | None = None) -> None:
    """Images outlive the release that had them prepared. `nodes`: those with an agent, None: all workers."""
    namespace = ("-n", stack.sandboxes)
    stack.kubectl("delete", "sandboxpools", "--all", *namespace)
    stack.kubectl("delete", "pods", "-l", "app.kubernetes.io/component=sandbox", *namespace, "--wait")
    if nodes is None:
        workers = stack.get("nodes", "-l", "!node-role.kubernetes.io/control-plane")["items"]
        nodes = [each["metadata"]["name"] for each in workers]
    for node in nodes:
        agent = Agent(stack, node, component="controller")
        for image in agent.call("GET", "/v1/images")[1]["images"]:
            path = f"/v1/images/{image['id']}"
            released = lambda agent=agent, path=path: agent.call("DELETE", path)[0] in (204, 404)  # noqa: E731
            # The agent looks three times, 30 s apart, before a slot without a pod holds nothing any more.
            wait_until(released, seconds=150, pause=0.5, what=f"{path} is released")


def digest_in(archive: Path, path: str) -> str:
    """The SHA-256 of a file in the image's first layer."""
    with tarfile.open(archive) as image:
        manifest = json.load(_member(image, "index.json"))["manifests"][0]["digest"]
        layers = json.load(_member(image, f"blobs/{manifest.replace(':', '/')}"))["layers"]
        blob = _member(image, f"blobs/{layers[0]['digest'].replace(':', '/')}")
        with tarfile.open(fileobj=blob) as layer:
            return hashlib.sha256(_member(layer, path).read()).hexdigest()


def _member(archive: tarfile.TarFile, name: str) -> Any:
    found = archive.extractfile(name)
    assert found is not None, name
    return found
