"""A sidecar as in a pod: its config from the environment, its sandbox in a container that it has to find."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sandlot_sidecar.executor.disk_space import MIN_FILES

from tests.executor.container import FILTER, NEEDS_RUNC, Container
from tests.sidecar.attacks import SPY
from tests.sidecar.calls import has_running
from tests.sidecar.disk_filling import check_evasions, check_full_disk
from tests.sidecar.pod_sidecar import POD_IP, PodSidecar
from tests.sidecar.processes import descendants, links_of, memory_of
from tests.sidecar.stopping import ENDS_BY_ITSELF, check_stop
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN
from tests.waiting import until

pytestmark = [pytest.mark.root, NEEDS_RUNC]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB that takes overlays, as a node's disk."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "disk", tmp_path], check=True)
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


MakePod = Callable[..., Awaitable[PodSidecar]]


@pytest_asyncio.fixture
async def pod() -> AsyncIterator[MakePod]:
    """Starts a container and a sidecar for it; `claim` as for other sidecars."""
    made: list[tuple[Container, PodSidecar]] = []

    async def start(
        *, claim: dict[str, Any] | None = None, state: Path | None = None, **options: Any
    ) -> PodSidecar:
        container = Container(**options)
        sidecar = PodSidecar(container)
        if state is not None:
            sidecar.config["root"]["upper"] = str(state / "upper")
        made.append((container, sidecar))
        await asyncio.to_thread(container.start)
        await sidecar.start()
        if claim is not None:
            await sidecar.claim(**claim)
        return sidecar

    yield start
    for container, sidecar in made:
        try:
            await sidecar.close()
        finally:
            await asyncio.to_thread(container.close)


async def test_it_says_where_a_pod_can_be_reached(pod: MakePod) -> None:
    box = await pod()
    ready = await box.webhooks.wait("ready")
    assert ready["signed"]
    assert ready["address"] == f"{POD_IP}:{box.port}"
    state = (await box.instance("GET", "/v1/state")).json()
    assert (state["address"], state["phase"]) == (f"{POD_IP}:{box.port}", "warm")


async def test_an_op_begins_as_the_image_says(pod: MakePod) -> None:
    user = {"uid": 1234, "gid": 1234, "additionalGids": [1234]}
    box = await pod(user=user, seccomp=FILTER, claim={"env": {"MINE": "1"}, "network": "none"})
    answer = await box.exec(
        "id -u; pwd; echo $FROM_IMAGE $MINE $HOME; env | grep -c SANDLOT_TARGET; ls /sys/class/net"
    )
    assert answer["stdout"].split() == ["1234", "/work", "yes", "1", "/home/user", "0", "lo"], answer
    sent = await box.call("PUT", "/v1/files?path=/home/user/sent", content=b"x")
    assert sent.status_code == 200
    assert (await box.exec("stat -c %u /home/user/sent; echo more >> ~/sent"))["stdout"] == "1234\n"


@pytest.mark.parametrize(("cpu", "said"), [(1.5, "2"), (0.25, "1")])
async def test_processors_are_counted_by_the_limit(pod: MakePod, cpu: float, said: str) -> None:
    box = await pod(claim={"limits": {"cpu": cpu}, "env": {"GOMAXPROCS": "7"}})
    answer = await box.exec(
        "nproc; echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS $PYTHON_CPU_COUNT $GOMAXPROCS"
    )
    assert answer["stdout"].split() == [said, said, said, said, "7"]


@pytest.mark.heavy
async def test_a_full_disk_is_a_verdict_and_the_sandbox_lives(pod: MakePod) -> None:
    await check_full_disk(await pod(claim={"limits": {"disk": 64 << 20}}))


async def test_a_full_disk_of_the_node_is_not_the_code_s_doing(small_disk: Path, pod: MakePod) -> None:
    """The sandbox may write 512 MiB, but somebody else has filled the disk that its volume is on."""
    box = await pod(claim={"limits": {"disk": 512 << 20}}, state=small_disk)
    assert (await box.exec("head -c 1000000 /dev/zero > /work/little"))["verdict"] == "exited"
    with suppress(OSError), (small_disk / "of-another").open("wb") as file:
        while True:
            file.write(bytes(1 << 20))
    answer = await box.exec("head -c 1000000 /dev/zero > /work/more", op="more")
    assert (answer["verdict"], answer["exit_code"]) == ("sandbox_broken", 1), answer
    assert "node" in answer["message"]
    (small_disk / "of-another").unlink()
    assert (await box.exec("head -c 1000000 /dev/zero > /work/more"))["verdict"] == "exited"


@pytest.mark.heavy
async def test_files_without_a_name_or_content_fill_the_disk(pod: MakePod) -> None:
    await check_evasions(await pod(claim={"limits": {"disk": 64 << 20}}), files=MIN_FILES)


async def test_output_that_is_kept_counts_as_the_sandbox_s_disk(pod: MakePod) -> None:
    box = await pod(claim={"limits": {"disk": 64 << 20}})
    flood = "head -c 200000000 /dev/zero; sleep 60"
    document = await box.op(flood, output_limit=1 << 30, wait=50)
    assert (document["verdict"], document["message"]) == ("disk_full", "the sandbox's disk was full")
    assert (await box.exec("echo usable"))["stdout"] == "usable\n"


async def test_no_secret_is_in_any_environment_or_below_the_server(pod: MakePod) -> None:
    box = await pod(claim={"secrets": {"KEY": "hidden-of-a-test"}})
    spy = SPY.replace("TOKENPART", "of-a-test")
    await box.call("PUT", "/v1/files?path=/spy.py", content=spy.encode())
    found = (await box.exec("exec env -u KEY python3 /spy.py"))["stdout"].strip()
    assert found == "[]"
    everybody = descendants(box.pid)
    assert len(everybody) >= 3
    for pid in everybody:
        for name in ("cmdline", "environ"):
            try:
                content = await asyncio.to_thread(Path(f"/proc/{pid}/{name}").read_bytes)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended since
            assert b"of-a-test" not in content, (pid, name)
            assert b"SANDLOT_SIDECAR_CONFIG" not in content, (pid, name)
    executor = await asyncio.to_thread(memory_of, box.executor_pid())
    assert INSTANCE_TOKEN.encode() not in executor
    assert not [link for link in links_of(box.executor_pid()) if "config" in link]


async def test_a_restarted_sidecar_finds_its_claim_and_the_files(pod: MakePod) -> None:
    box = await pod(claim={"env": {"KEPT": "yes"}})
    await box.exec("echo precious > /work/file")
    await _restart(box)
    state = (await box.call("GET", "/v1/state")).json()
    assert (state["phase"], state["sandbox_id"]) == ("claimed", "sb-test")
    assert (await box.exec("cat /work/file; echo $KEPT"))["stdout"] == "precious\nyes\n"


async def test_files_of_a_checkpoint_outlive_a_restart_of_the_sidecar(pod: MakePod) -> None:
    first = await pod(claim={})
    assert (await first.exec("mkdir /app && echo text > /app/file && chmod 640 /app/file"))["exit_code"] == 0
    taken = await first.instance("POST", "/v1/checkpoint")
    assert taken.status_code == 200, taken.text
    second = await pod(claim={"restore": True})
    assert (await second.instance("POST", "/v1/restore", content=taken.content)).status_code == 200
    await _restart(second)
    assert (await second.exec("cat /app/file; stat -c %a /app/file"))["stdout"] == "text\n640\n"


async def test_a_sidecar_that_is_restarted_before_the_files_came_ends(pod: MakePod) -> None:
    box = await pod(claim={"restore": True})
    await box.kill()
    await box.launch()
    ended = await box.webhooks.wait("ended")
    assert ended["verdict"] == "start_failed"
    assert "checkpoint" in ended["message"]
    await box.wait_exit()


async def _restart(box: PodSidecar) -> None:
    await box.kill()
    await box.start()


async def test_a_start_command_has_its_stop_signal_and_its_grace(pod: MakePod) -> None:
    await check_stop(await pod(claim=ENDS_BY_ITSELF))


async def test_the_containers_end_is_the_sandboxs(pod: MakePod) -> None:
    box = await pod(claim={})
    await asyncio.to_thread(box.container.kill)
    ended = await box.webhooks.wait("ended")
    assert ended["verdict"] == "sandbox_lost"
    assert await box.wait_exit() == 0


# Memory that counts for no process, so that the kernel ends the one that is first in its list.
EAT = """
import os
held = os.memfd_create("held")
while True:
    os.write(held, bytes(1 << 20))
"""


async def test_a_container_whose_first_process_is_killed_for_memory_has_run_out_of_it(pod: MakePod) -> None:
    box = await pod(claim={}, linux={"resources": {"memory": {"limit": 128 << 20}}})
    box.container.offer_first_process()
    with suppress(subprocess.CalledProcessError):  # it dies with the container
        await asyncio.to_thread(box.container.exec, "python3", "-c", EAT)
    ended = await box.webhooks.wait("ended")
    assert (ended["verdict"], ended["message"]) == ("oom", "the sandbox's container reached its memory limit")
    assert await box.wait_exit() == 0


@pytest.mark.alone
@pytest.mark.parametrize(("claim", "verdict"), [({}, "evicted"), (None, "deleted")])
async def test_a_pod_that_is_terminated_says_so_within_its_second(
    pod: MakePod, claim: dict[str, Any] | None, verdict: str
) -> None:
    box = await pod(claim=claim)
    running: asyncio.Task[dict[str, Any]] | None = None
    if claim is not None:
        await box.op("trap '' TERM; sleep 600", id="stubborn", detach=True)
        running = asyncio.create_task(box.exec("sleep 600", op="runs"))
        await until(lambda: has_running(box, 2))
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert box.process is not None
    box.process.send_signal(signal.SIGTERM)
    ended = await box.webhooks.wait("ended")
    assert loop.time() - begun < 1.0
    assert ended["verdict"] == verdict
    if running is not None:  # a command is told why, as whoever asks for the sandbox is
        assert (await running)["verdict"] == "evicted"
    assert await box.wait_exit() == 0


def refused(environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "sandlot_sidecar", "--config-env"],
        env=environment, capture_output=True, text=True, timeout=30, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 2
    return done.stderr


def test_a_bad_environment_is_refused_by_name() -> None:
    assert "SANDLOT_SIDECAR_CONFIG" in refused({})
    assert "config" in refused({"SANDLOT_SIDECAR_CONFIG": "{"})
    good = {"instance_id": "i-1", "token": "t", "listen": "0.0.0.0:8700", "state_dir": "/nowhere"}
    assert "target must be" in refused({"SANDLOT_SIDECAR_CONFIG": json.dumps({**good, "target": "yes"})})
    both = {**good, "target": True, "target_pid": 1}
    assert "exclude" in refused({"SANDLOT_SIDECAR_CONFIG": json.dumps(both)})
