"""A backup of a real release, all of it lost, and a restore as docs/operate.md says: what must last works again."""

from __future__ import annotations

import base64
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sandlot import Accounting, Client, NotFound, Pools, Runs, Sandbox

from tests.checkpoint_copies import DIRECTORY, page_program
from tests.kubernetes.boxes import POOLED, filled, until, warm
from tests.kubernetes.doctors import sandlot, told_alone
from tests.kubernetes.prime.shared_directory import shared_directory
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import CHART, IMAGE, Stack, program
from tests.kubernetes.upgrades import words

pytestmark = pytest.mark.timeout(1800)
OPERATOR, TRAINER = "a-key-of-an-operator", "a-key-of-a-trainer"
KEYS = f"{OPERATOR}:ops::operate\n{TRAINER}:training:2"
VALUES = {
    "auth.existingApiKeySecret": "keys",
    "gateway.checkpoints.claim": "kept",
    "gateway.replicas": 1,
    "controller.replicas": 1,
    "pools": {"default": {"size": 1, "template": {"image": IMAGE, **POOLED}}},
}
NO_FILES = f"import glob, sys; found = glob.glob('{DIRECTORY}/cp-*'); sys.exit(str(found) if found else 0)"


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
        assert "secrets.jsonl" in members(backup)
        assert "secrets.jsonl" not in members(plain)
        told = b"".join(members(plain).values())
        assert [value for value in values_of(before) if value in told] == []
        in_gateway(stack, page_program("copy"), stdout=archive)

    with empty_cluster() as stack:
        run(stack, "restore", str(backup), "--only-secrets", directory=tmp_path)
        assert secrets(stack) == before
        values = tmp_path / "values.json"
        values.write_bytes(members(backup)["values.json"])
        stack.helm("install", stack.release, str(CHART), "-n", stack.namespace, "--values", str(values))
        run(stack, "restore", str(backup), directory=tmp_path)
        where = (f"deployment/{stack.fullname}-gateway", "-n", stack.namespace, "--timeout=240s")
        stack.kubectl("rollout", "status", *where)
        filled(stack, size=1)
        assert "created" not in run(stack, "restore", str(backup), directory=tmp_path)
        in_gateway(stack, NO_FILES)
        with Client(url=stack.url, api_key=TRAINER) as client, pytest.raises(NotFound):
            Sandbox.get_checkpoint(checkpoint, client=client)
        in_gateway(stack, page_program("back"), stdin=archive)
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


def secrets(stack: Stack) -> dict[str, dict[str, str]]:
    """The data of the release's own namespace's, those of Helm left out."""
    found = stack.get("secrets", "-n", stack.namespace)["items"]
    return {each["metadata"]["name"]: each["data"] for each in found if each["type"] == "Opaque"}


def values_of(found: dict[str, dict[str, str]]) -> set[bytes]:
    """Each value as a Secret has it, in base64, and as it is; the keys also one by one."""
    encoded = {value.encode() for data in found.values() for value in data.values()}
    assert len(encoded) > 1
    plain = {base64.b64decode(value) for value in encoded}
    assert KEYS.encode() in plain
    return {*encoded, *plain, OPERATOR.encode(), TRAINER.encode()}


def run(stack: Stack, *words: str, directory: Path) -> str:
    done = sandlot(stack, *words, directory=directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_gateway(stack: Stack, script: str, *, stdin: Path | None = None, stdout: Path | None = None) -> None:
    """Run a program in Python as the page says."""
    context = ("--context", stack.context) if stack.context else ()
    command = [program("kubectl"), "--kubeconfig", stack.kubeconfig, *context, "-n", stack.namespace, "exec"]
    command += ["-i", f"deployment/{stack.fullname}-gateway", "--", "python3", "-c", script]
    with open(stdin or "/dev/null", "rb") as given, open(stdout or "/dev/null", "wb") as taken:
        done = subprocess.run(
            command, stdin=given, stdout=taken, stderr=subprocess.PIPE, check=False, timeout=120
        )
    assert done.returncode == 0, done.stderr


def members(path: Path) -> dict[str, bytes]:
    """What the files in an archive have, by their names."""
    with tarfile.open(path) as tar:
        return {each.name: file.read() for each in tar if (file := tar.extractfile(each)) is not None}
