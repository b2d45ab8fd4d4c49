"""A backup of a real release, all of it lost, and a restore as docs/operate.md says: what must last works again."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandlot import Accounting, Client, Pools, Runs, Sandbox

from tests.kubernetes.boxes import POOLED, filled, until, warm
from tests.kubernetes.doctors import sandlot, told_alone
from tests.kubernetes.prime.shared_directory import shared_directory
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import CHART, IMAGE, Stack, program
from tests.kubernetes.upgrades import words

OPERATOR, TRAINER = "a-key-of-an-operator", "a-key-of-a-trainer"
KEYS = f"{OPERATOR}:ops::operate\n{TRAINER}:training:2"
VALUES = {
    "auth.existingApiKeySecret": "keys",
    "gateway.checkpoints.claim": "kept",
    "gateway.replicas": 1,
    "controller.replicas": 1,
    "pools": {"default": {"size": 1, "template": {"image": IMAGE, **POOLED}}},
}
PAGE = CHART.parents[1] / "docs" / "operate.md"


@contextmanager
def empty_cluster() -> Iterator[Stack]:
    """Neither the release nor its volume is there; both go at the end, with all that is in them."""
    with release_of_its_own("backup", runtime="runc") as stack, shared_directory(stack, "kept"):
        try:
            yield stack
        finally:
            stack.uninstall()


def test_a_release_that_is_lost_comes_back_with_what_must_last(tmp_path: Path) -> None:
    backup, plain, archive = (
        tmp_path / name for name in ("backup.tar.gz", "plain.tar.gz", "checkpoints.tar")
    )
    with empty_cluster() as stack:
        secret = ("secret", "generic", "keys", "-n", stack.namespace)
        stack.kubectl("create", *secret, f"--from-literal=api-key={KEYS}")
        stack.install(*words(VALUES))
        filled(stack, size=1)
        checkpoint, epoch = fill(stack)
        restart_gateway(stack)
        before = secrets(stack)
        run(stack, "backup", str(backup), "--with-secrets", directory=tmp_path)
        run(stack, "backup", str(plain), directory=tmp_path)
        assert all(key.encode() not in content(plain) for key in (OPERATOR, TRAINER, *before.values()))
        in_gateway(stack, "copy", stdout=archive)

    with empty_cluster() as stack:
        run(stack, "restore", str(backup), "--only-secrets", directory=tmp_path)
        assert secrets(stack) == before
        values = tmp_path / "values.json"
        values.write_bytes(member(backup, "values.json"))
        stack.helm("install", stack.release, str(CHART), "-n", stack.namespace, "--values", str(values))
        run(stack, "restore", str(backup), directory=tmp_path)
        where = (f"deployment/{stack.fullname}-gateway", "-n", stack.namespace, "--timeout=240s")
        stack.kubectl("rollout", "status", *where)
        filled(stack, size=1)
        assert "created" not in run(stack, "restore", str(backup), directory=tmp_path)
        in_gateway(stack, "back", stdin=archive)
        assert secrets(stack) == before
        check(stack, checkpoint, epoch=epoch)
        told_alone(stack, set(), tmp_path)


def fill(stack: Stack) -> tuple[str, int]:
    """What operators and trainers make; returns the id of a checkpoint, and the epoch of a run."""
    with Client(url=stack.url, api_key=TRAINER) as client:
        lease = client.call("PUT", "/runs/grpo-7", body={"holder": "n1:7", "grace_seconds": 86400})
        # In less than ten seconds, so that its gateway counts it; a longer one is counted ten minutes later.
        warm(client, run="grpo-7").delete()
        with warm(client) as box:
            box.files.write("/kept", b"the trainer's")
            checkpoint = box.checkpoint()
    assert checkpoint.state == "DURABLE"
    with Client(url=stack.url, api_key=OPERATOR) as client:
        Pools(client=client).set("numpy", size=0, image=IMAGE, cpu=0.5, memory="256MiB")
    return checkpoint.id, lease["epoch"]


def check(stack: Stack, checkpoint: str, *, epoch: int) -> None:
    """All that `fill` made is there, and works."""
    with Client(url=stack.url, api_key=OPERATOR) as client:
        assert {each.name for each in Pools(client=client).list()} == {"default", "numpy"}
        rows = Accounting(client=client).usage(tenant="training").rows
        assert ("grpo-7", 1) in [(row.run, row.sandboxes) for row in rows]
    with Client(url=stack.url, api_key=TRAINER) as client:
        lease = Runs(client=client).get("grpo-7")
        assert (lease.state, lease.holder, lease.epoch) == ("ACTIVE", "n1:7", epoch)
        with warm(client) as box:
            assert box.info.pool_hit
            assert box.exec("echo again", timeout=60).stdout == "again\n"
        with Sandbox.create(client=client, checkpoint=checkpoint, wait=180) as box:
            assert box.files.read("/kept") == b"the trainer's"


def restart_gateway(stack: Stack) -> None:
    """One that leaves writes the usage that it has, and does not wait for more."""
    deployment, where = f"deployment/{stack.fullname}-gateway", ("-n", stack.namespace)
    stack.kubectl("rollout", "restart", deployment, *where)
    stack.kubectl("rollout", "status", deployment, *where, "--timeout=180s")
    label = ("-l", "app.kubernetes.io/component=usage")
    until(lambda: stack.get("configmaps", "-n", stack.sandboxes, *label)["items"], seconds=120)


def secrets(stack: Stack) -> dict[str, str]:
    """The release's own namespace's, those of Helm left out."""
    found = stack.get("secrets", "-n", stack.namespace)["items"]
    return {each["metadata"]["name"]: json.dumps(each["data"]) for each in found if each["type"] == "Opaque"}


def run(stack: Stack, *words: str, directory: Path) -> str:
    done = sandlot(stack, *words, directory=directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_gateway(stack: Stack, name: str, *, stdin: Path | None = None, stdout: Path | None = None) -> None:
    """Run the program that the page has under this name."""
    (script,) = [line.split("'")[1] for line in PAGE.read_text().splitlines() if line.startswith(f"{name}='")]
    context = ("--context", stack.context) if stack.context else ()
    command = [program("kubectl"), "--kubeconfig", stack.kubeconfig, *context, "-n", stack.namespace, "exec"]
    command += ["-i", f"deployment/{stack.fullname}-gateway", "--", "python3", "-c", script]
    with open(stdin or "/dev/null", "rb") as given, open(stdout or "/dev/null", "wb") as taken:
        done = subprocess.run(
            command, stdin=given, stdout=taken, stderr=subprocess.PIPE, check=False, timeout=120
        )
    assert done.returncode == 0, done.stderr


def member(path: Path, name: str) -> bytes:
    with tarfile.open(path) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


def content(path: Path) -> bytes:
    with tarfile.open(path) as tar:
        return b"".join(file.read() for each in tar if (file := tar.extractfile(each)) is not None)
