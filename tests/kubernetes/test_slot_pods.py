"""Pods without an image of their own take those that the node agent prepared after they had started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cluster import cluster
from tests.cluster.paths import IMAGES
from tests.cluster.shell import ClusterError
from tests.kubernetes.boxes import POOLED, until
from tests.kubernetes.node_agents import DIRECTORY, PROGRAM, Agent, call_from, digest_in, leave_no_image
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import Stack

POOL: dict[str, Any] = {"size": 1, "template": POOLED, "reuse": {"policy": "tenant"}}
ARCHIVES = {name: IMAGES / "archives" / f"{name}.tar" for name in ("python", "node-agent")}
# Whether it is the node agent's image.
HAS_AGENT = "python3 -c 'import sandlot_node' 2>/dev/null && echo yes || echo no"
# What a command could find of the directory: by its path, by its mounts, through another process of the sandbox.
SEARCH = """
ls -d {directory} /proc/[0-9]*/root{directory} 2>/dev/null
cat /proc/[0-9]*/mountinfo | grep {directory}
echo searched
"""


@dataclass
class Slot:
    """A warm pod's sidecar, claimed as a gateway does, but from the controller's pod."""

    stack: Stack
    pod: dict[str, Any]
    uses: int = 0
    token: str = ""

    @property
    def name(self) -> str:
        return self.pod["metadata"]["name"]

    @property
    def node(self) -> str:
        return self.pod["spec"]["nodeName"]

    def ask(self, path: str, body: dict[str, Any], *, token: str | None = None) -> dict[str, Any]:
        """`token`: the instance's own where it is left out."""
        url = f"http://{self.pod['status']['podIP']}:8700{path}"
        known = token or self._config()["token"]
        status, answer = call_from(self.stack, "controller", "POST", url, token=known, body=body)
        assert status == 200, answer
        return answer

    def claim(self, image: dict[str, Any] | None = None) -> dict[str, Any]:
        """The state; `image` as the agent tells of it, None: the root stays."""
        self.uses += 1
        self.token = f"token-{self.uses}"
        laid = image and {"id": image["id"], "lower": [image["rootfs"]], "env": image["config"]["env"]}
        owner = {"sandbox_id": f"sbx-{self.name}-{self.uses}", "token": self.token, "tenant": "slots"}
        return self.ask("/v1/claim", {**owner, "generation": self.uses, "image": laid})

    def run(self, command: str) -> str:
        answer = self.ask("/v1/exec", {"command": command, "shell": "sh", "timeout": 60}, token=self.token)
        assert answer["exit_code"] == 0, answer
        return answer["stdout"].strip()

    def reset(self) -> dict[str, Any]:
        return self.ask("/v1/reset", {})

    def answers(self) -> bool:
        """A pod is ready before its sidecar listens."""
        try:
            url = f"http://{self.pod['status']['podIP']}:8700/healthz"
            return call_from(self.stack, "controller", "GET", url, token="")[0] == 200
        except ClusterError:
            return False

    def _config(self) -> dict[str, Any]:
        sidecar = next(each for each in self.pod["spec"]["containers"] if each["name"] == "sidecar")
        return json.loads(next(each["value"] for each in sidecar["env"] if "CONFIG" in each["name"]))


@pytest.fixture(scope="module", params=["gvisor", "runc"])
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    with release_of_its_own("slots", runtime=request.param) as made:
        values = {
            "nodeAgent": {"enabled": True, "config": {"minFree": 0, "useGrace": 1, "housekeeping": 1}},
            "slots": {"enabled": True},
            "pools": {"slots": POOL},
            "gateway.replicas": 1,
            "gateway.config": {"leave": 0, "drain": 0},
            "controller.replicas": 1,
            "controller.config.recordGrace": 600,
        }
        more = ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        made.install("--set-json", more)
        # A gateway would end claims that no gateway made.
        made.kubectl("scale", f"deploy/{made.release}-gateway", "-n", made.namespace, "--replicas=0")
        gateways = ("pod", "-n", made.namespace, "-l", "app.kubernetes.io/component=gateway")
        made.kubectl("wait", "--for=delete", *gateways, "--timeout=240s")
        yield made
        leave_no_image(made)


@pytest.fixture(scope="module")
def references() -> dict[str, str]:
    """The images by which nodes pull them."""
    return {name: cluster.push_image(archive) for name, archive in ARCHIVES.items()}


@pytest.fixture
def slot(stack: Stack) -> Slot:
    """A warm pod that no one has used."""

    def warm() -> dict[str, Any] | None:
        for pod in stack.get("pods", "-n", stack.sandboxes, "-l", "sandlot.dev/pool=slots")["items"]:
            conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
            if conditions.get("Ready") == "True":
                return pod
        return None

    pod = until(warm)
    assert pod is not None
    found = Slot(stack, pod)
    until(found.answers)
    return found


def test_a_pod_takes_images_that_were_prepared_after_its_start(
    slot: Slot, references: dict[str, str]
) -> None:
    agent = Agent(slot.stack, slot.node, component="controller")
    images = {}
    for name, archive in ARCHIVES.items():
        images[name] = agent.prepare(references[name])
        path = f"/v1/images/{images[name]['id']}/uses"
        assert agent.call("POST", path, {"slot": slot.name})[0] == 200
        # The second is prepared when the first was already looked at.
        assert slot.claim(images[name])["image"] == images[name]["id"]
        assert slot.run(f"sha256sum /{PROGRAM}").split()[0] == digest_in(archive, PROGRAM)
        assert slot.run(SEARCH.format(directory=DIRECTORY)) == "searched"
        assert slot.run(HAS_AGENT) == ("yes" if name == "node-agent" else "no")
        version = slot.run("cat /etc/debian_version")
        slot.run("echo changed > /etc/debian_version; rm /usr/bin/env; echo mine > /mine")

        state = slot.reset()
        assert (state["equal"], state["image"]) == (True, images[name]["id"]), state
        assert slot.claim()["image"] == images[name]["id"]
        assert slot.run(f"sha256sum /{PROGRAM}").split()[0] == digest_in(archive, PROGRAM)
        assert slot.run("cat /etc/debian_version; ls /usr/bin/env") == f"{version}\n/usr/bin/env"
        assert slot.run("ls /mine 2>/dev/null || echo gone") == "gone"
        assert slot.reset()["equal"] is True

    for image in images.values():
        status, listed = agent.call("GET", f"/v1/images/{image['id']}")
        assert (status, listed["rootfs"]) == (200, image["rootfs"])
        assert slot.name in listed["uses"]
