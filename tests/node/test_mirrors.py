"""The agent's files of registries, on a real directory, with a cache that answers or does not."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sandlot_node.metrics import Metrics
from sandlot_node.mirrors.files import MirrorFiles
from sandlot_node.mirrors.mirrors import Mirror, Mirrors

from tests.node.program import Program
from tests.ports import free_port
from tests.waiting import until

HOST = "registry.example:5000"
UPSTREAM = "https://registry.example:5000"
OWNER = "system/sandlot"


class Cache:
    """Answers as a registry does, with a status that can be changed."""

    def __init__(self) -> None:
        self.port = free_port()
        self.status = "200 OK"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        async with server:
            yield

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()


@pytest.fixture
def cache() -> Cache:
    return Cache()


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    return tmp_path / "certs.d"


async def untold() -> str | None:
    """What a containerd says that does not tell where it reads."""
    return None


@asynccontextmanager
async def following(
    certs: Path,
    *mirrors: Mirror,
    owner: str = OWNER,
    read_path: Callable[[], Awaitable[str | None]] = untold,
) -> AsyncIterator[Callable[[str], float | None]]:
    """Run the mirrors of an agent; give what its metric says of a registry."""
    metrics = Metrics()
    files = MirrorFiles(certs, owner=owner)
    made = Mirrors(mirrors, files, metrics, seconds=0.02, read_path=read_path)
    task = asyncio.create_task(made.run())
    try:
        yield lambda host: metrics.registry.get_sample_value("sandlot_node_mirror_active", {"registry": host})
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def mirror_of(cache: Cache, *, host: str = HOST, name: str = "localhost") -> Mirror:
    return Mirror(host=host, upstream=UPSTREAM, cache=name, port=cache.port)


def directories(certs: Path) -> list[str]:
    return [path.name for path in certs.iterdir()]


def contents(certs: Path, host: str = HOST) -> dict[str, Any] | None:
    file = certs / host / "hosts.toml"
    return tomllib.loads(file.read_text()) if file.exists() else None


async def test_the_cache_comes_first_and_the_registry_second(certs: Path, cache: Cache) -> None:
    async with cache.serving(), following(certs, mirror_of(cache)) as active:
        # It is without the cache where the first look was too late for an answer.
        await until(lambda: "host" in (contents(certs) or {}), what="the file is there")
        assert contents(certs) == {
            "server": UPSTREAM,
            "host": {
                f"http://{socket.gethostbyname('localhost')}:{cache.port}": {
                    "capabilities": ["pull"],
                    "dial_timeout": "2s",
                }
            },
        }, "by address: the node does not use the cluster's DNS"
        await until(lambda: active(HOST) == 1, what="the metric says so")
        assert (certs / HOST / "hosts.toml").stat().st_mode & 0o777 == 0o644
    assert not (certs / HOST).exists(), "an agent that ends takes away what it wrote"


async def test_a_cache_that_does_not_answer_is_not_used(certs: Path, cache: Cache) -> None:
    """The file stays: a registry with plain HTTP, or at another host than its images' names say, needs it."""
    registry_alone = {"server": UPSTREAM}
    async with following(certs, mirror_of(cache)) as active:
        await until(lambda: active(HOST) == 0, what="the agent has looked")
        assert contents(certs) == registry_alone
        for _ in range(2):
            async with cache.serving():
                await until(lambda: "host" in (contents(certs) or {}), what="it answers")
                cache.status = "503 Service Unavailable"
                await until(lambda: contents(certs) == registry_alone, what="it answers no more")
                assert active(HOST) == 0
                cache.status = "200 OK"
                await until(lambda: "host" in (contents(certs) or {}), what="it answers again")
            await until(lambda: contents(certs) == registry_alone, what="it is gone")


async def test_a_cache_without_an_address_is_not_used(certs: Path, cache: Cache) -> None:
    async with cache.serving(), following(certs, mirror_of(cache, name="no-such-cache.invalid")) as active:
        await until(lambda: active(HOST) == 0, what="the agent has looked")
        assert contents(certs) == {"server": UPSTREAM}


async def test_lookups_and_mounts_do_not_wait_for_one_another(certs: Path, cache: Cache) -> None:
    """The engine mounts in the loop's own threads."""
    loop, mounted = asyncio.get_running_loop(), threading.Event()
    threads = ThreadPoolExecutor(1)
    loop.set_default_executor(threads)
    mount = loop.run_in_executor(None, mounted.wait)
    try:
        async with cache.serving(), following(certs, mirror_of(cache)) as active:
            await until(lambda: active(HOST) == 1, what="the agent has looked")
    finally:
        mounted.set()
        await mount


def test_a_caches_name_may_be_absolute(cache: Cache) -> None:
    """Otherwise the pod's search domains are asked first, for a name with four dots."""
    assert mirror_of(cache, name="hub.system.svc.cluster.local.").cache.endswith(".")


async def test_a_file_that_containerd_does_not_read_is_no_mirror(
    certs: Path, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str | None] = [f"{certs}:/etc/docker/certs.d"]

    async def read_path() -> str | None:
        return told[0]

    async with cache.serving(), following(certs, mirror_of(cache), read_path=read_path) as active:
        for other in (*told, ""):
            told[0] = other
            await until(lambda: active(HOST) == 0, what="the agent has looked")
            assert contents(certs) is None, "it could hide what the node has in another directory"
            assert f"config_path of registries is {other!r}. Set it to '{certs}'" in caplog.text
            told[0] = f"{certs}/"
            await until(lambda: active(HOST) == 1, what="containerd reads it")


@pytest.mark.parametrize("place", [HOST, "registry.example_5000_", "_default"])
async def test_what_the_node_has_of_its_own_stays(certs: Path, cache: Cache, place: str) -> None:
    """As containerd looks for a registry's directory: our file would hide it, or be hidden by it."""
    own = certs / place / "ca.crt"
    own.parent.mkdir(parents=True)
    own.write_text("a certificate")
    async with cache.serving(), following(certs, mirror_of(cache)) as active:
        await until(lambda: active(HOST) == 0, what="the agent has looked")
        assert contents(certs) is None
        own.unlink()
        own.parent.rmdir()
        await until(lambda: contents(certs) is not None, what="it is the agent's now")
        own.parent.mkdir(exist_ok=True)
        own.write_text("a certificate")
        await until(lambda: contents(certs) is None, what="it is the operator's again")
    assert own.read_text() == "a certificate"


async def test_a_file_of_the_operator_or_of_another_release_stays(certs: Path, cache: Cache) -> None:
    others = 'server = "https://other.example"\n'
    (certs / HOST).mkdir(parents=True)
    (certs / HOST / "hosts.toml").write_text(others)
    MirrorFiles(certs, owner="system/another").write("b.example", upstream=UPSTREAM, cache="http://1.2.3.4:5")
    theirs = (certs / "b.example" / "hosts.toml").read_text()
    async with (
        cache.serving(),
        following(certs, mirror_of(cache), mirror_of(cache, host="b.example")) as active,
    ):
        await until(lambda: (active(HOST), active("b.example")) == (0, 0), what="it has looked")
    assert (certs / HOST / "hosts.toml").read_text() == others
    assert (certs / "b.example" / "hosts.toml").read_text() == theirs


def test_credentials_are_for_the_registry_itself(certs: Path, cache: Cache) -> None:
    files = MirrorFiles(certs, owner=OWNER)
    hub = Mirror(host="docker.io", upstream="https://registry-1.docker.io", cache="localhost", port=1)
    mirrors = Mirrors([mirror_of(cache), hub], files, Metrics(), seconds=1, read_path=untold)
    for name in ("alpine", "a/b:1", "docker.io/alpine", "index.docker.io/library/alpine"):
        assert mirrors.server_of(name) == hub.upstream
    assert mirrors.server_of("elsewhere.example/a") is None
    assert mirrors.server_of(f"{HOST}/a:1") == UPSTREAM, "also before the file is there"
    another = MirrorFiles(certs, owner="system/another")
    another.write(HOST, upstream=UPSTREAM, cache="http://1.2.3.4:5")
    assert mirrors.server_of(f"{HOST}/a:1") == UPSTREAM, "also if the cache is another release's"
    (certs / HOST / "hosts.toml").write_text('server = "https://other.example"\n')
    assert mirrors.server_of(f"{HOST}/a:1") is None, "the operator's own file says who gets them"


async def test_a_killed_agents_files_are_the_next_ones(certs: Path, cache: Cache) -> None:
    """The next one has another registry, or none."""
    files = MirrorFiles(certs, owner=OWNER)
    for host in (HOST, "old.example"):
        files.write(host, upstream=UPSTREAM, cache="http://192.0.2.1:5000")
    async with cache.serving(), following(certs, mirror_of(cache)) as active:
        await until(lambda: active(HOST) == 1, what="the agent has looked")
        assert directories(certs) == [HOST]
        assert "192.0.2.1" not in str(contents(certs))
    files.write(HOST, upstream=UPSTREAM, cache="http://192.0.2.1:5000")
    async with following(certs):
        await until(lambda: not (certs / HOST).exists(), what="no cache is configured any more")


async def test_an_agent_that_is_ended_while_it_starts_leaves_no_file(
    certs: Path, cache: Cache, tmp_path: Path
) -> None:
    """It waits for a containerd that is not there."""
    mirrors = json.dumps([mirror_of(cache).model_dump()])
    agent = Program(tmp_path, tmp_path / "none.sock", SANDLOT_MIRRORS=mirrors, SANDLOT_CERTS=str(certs))
    async with cache.serving():
        agent.begin()
        try:
            await until(lambda: contents(certs) is not None, what="it has written the file")
        finally:
            code = await asyncio.to_thread(agent.end, signal.SIGTERM)
    assert code == 0
    assert directories(certs) == []


async def test_a_directory_that_cannot_be_written_ends_nothing(
    tmp_path: Path, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    certs = tmp_path / "file" / "certs.d"
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    async with cache.serving(), following(certs, mirror_of(cache)) as active:
        await until(lambda: active(HOST) == 0, what="the agent has looked")
        in_the_way.unlink()
        await until(lambda: active(HOST) == 1, what="it can be written")
    assert "Check nodeAgent.containerd.certs" in caplog.text
