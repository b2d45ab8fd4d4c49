"""What a sandbox may reach under gVisor: real packets from a pod's own network to servers on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from tests.cable import Cable, cable, serving
from tests.executor.gvisor import NEEDS_RUNSC, GvisorPod
from tests.sidecar.gvisor_sidecar import PORT, NetworkedGvisorSidecar
from tests.web import web

pytestmark = [
    pytest.mark.root,
    pytest.mark.heavy,  # gVisor takes the cores that a test beside it waits for
    *NEEDS_RUNSC,
]

SILENT = "silence"


Make = Callable[..., Awaitable[NetworkedGvisorSidecar]]


@pytest.fixture
def net() -> Iterator[Cable]:
    with cable("g", network=19) as made, serving(made.outside, made.outside6), web(made.outside):
        yield made


@pytest_asyncio.fixture
async def make(net: Cable) -> AsyncIterator[Make]:
    """Starts pods at the end of the cable; arguments are the pod's."""
    made: list[NetworkedGvisorSidecar] = []

    async def start(**options: Any) -> NetworkedGvisorSidecar:
        box = NetworkedGvisorSidecar(GvisorPod(network=net.path, **options), net)
        made.append(box)
        await asyncio.to_thread(box.pod.start)
        await box.start()
        await box.prepare()
        return box

    yield start
    for box in made:
        try:
            await box.close()
        finally:
            await asyncio.to_thread(box.pod.close)


def number(address: str) -> int:
    return int.from_bytes(bytes(int(part) for part in address.split(".")), "big")


def rule(address: str, low: int = 0, high: int = 0, *, prefix: int = 32) -> list[int]:
    return [number(address), prefix, low, high or low]


async def test_it_holds_when_it_is_answered_for_all_that_is_sent(make: Make, net: Cable) -> None:
    box = await make()
    targets = [
        f"tcp {net.outside} 7001",
        f"udp {net.outside} 7003",
        f"sendto {net.outside} 7003",
        f"tcp {net.outside6} 7006",
    ]
    assert await box.reaches(*targets) == ["hi"] * 4
    assert await box.set(allow=False, rules=[rule(net.outside, prefix=30)]) == 2
    assert await box.reaches(*targets) == [SILENT] * 3 + ["hi"]
    assert await box.reaches(f"tcp ::ffff:{net.outside} 7001", seconds=4) == [SILENT]
    assert await box.set(allow=True, rules=[]) == 3
    assert await box.reaches(*targets, seconds=4) == [SILENT] * 4
    assert await box.set(allow=True, rules=[rule(net.outside)]) == 4
    assert await box.reaches(*targets) == ["hi"] * 3 + [SILENT]
    assert await box.set(allow=True, rules=[rule("192.0.2.0", prefix=24)]) == 5
    assert await box.reaches(targets[0], seconds=4) == [SILENT]
    assert await box.set(allow=False, rules=[]) == 6
    assert await box.reaches(*targets) == ["hi"] * 4


async def test_ports_are_told_apart(make: Make, net: Cable) -> None:
    box = await make()
    targets = [f"tcp {net.outside} 7001", f"tcp {net.outside} 7002", f"sendto {net.outside} 7003"]
    await box.set(allow=False, rules=[rule(net.outside, 7002)])
    assert await box.reaches(*targets) == ["hi", SILENT, "hi"]
    await box.set(allow=True, rules=[rule(net.outside, 7002, 7003)])
    assert await box.reaches(*targets) == [SILENT, "hi", "hi"]
    # More ranges of one address than one match takes, and the last of them counts.
    several = [rule(net.outside, 100 * n, 100 * n + 1) for n in range(1, 9)]
    await box.set(allow=True, rules=[*several, rule(net.outside, 7001)])
    assert await box.reaches(*targets) == ["hi", SILENT, SILENT]


async def test_what_runs_is_held_too_and_the_sidecar_is_not(make: Make, net: Cable) -> None:
    box = await make()
    old = (
        "import os, socket, time\n"
        f"s = socket.create_connection(('{net.outside}', 7001))\n"
        "s.sendall(b'one'); print(s.recv(9).decode(), flush=True); open('/joined', 'w'); s.settimeout(1)\n"
        "while not os.path.exists('/again'): time.sleep(0.02)\n"
        "s.sendall(b'two')\n"
        "try: print(s.recv(9).decode())\n"
        "except TimeoutError: print('silence')\n"
    )
    await box.call("PUT", "/v1/files?path=/old.py", content=old.encode())
    await box.op("python3 /old.py", id="old", detach=True)
    await box.exec("until [ -e /joined ]; do sleep 0.02; done")
    await box.set(allow=True, rules=[])
    await box.exec("touch /again")
    await box.ended("old")
    output = await box.call("GET", "/v1/ops/old/output?stream=stdout")
    assert output.text.split() == ["one", SILENT]
    # Its loopback stays, and so does who calls the sidecar, on a new connection too.
    assert await box.reaches(f"tcp 127.0.0.1 {PORT}", "tcp 127.0.0.1 1") == ["HTTP/1.1", "ECONNREFUSED"]
    await box.reconnect(f"http://{net.inside}:{PORT}")
    big = "x" * 1_000_000
    assert (await box.exec(["cat"], stdin=big))["stdout"] == big
    # What the sidecar tells arrives.
    assert (await box.instance("POST", "/v1/reset", json={"keep_claim": True})).status_code == 200
    await box.webhooks.wait("ready", count=2)


async def test_names_are_read_in_the_connections(make: Make, net: Cable) -> None:
    box = await make(name_server=net.outside)
    nowhere, denied = "192.0.2.1", "TLSV1_ALERT_ACCESS_DENIED"
    asked = [
        f"{kind} {nowhere} {name}" for kind in ("http", "tls") for name in ("allowed.test", "other.test")
    ]
    await box.set(allow=True, rules=[["allowed.test", 0]])
    assert await box.asks(*asked) == ["http", "403", "tls", denied]
    # The lookup of the sandbox's own, and the connection to what it finds; nothing else of that address.
    assert await box.asks("http allowed.test allowed.test") == ["http"]
    assert await box.reaches(f"tcp {net.outside} 7001", f"udp {net.outside} 7003", seconds=4) == [SILENT] * 2
    await box.set(allow=False, rules=[["*.allowed.test", 80], [number("192.0.2.7"), 32, 0, 0]])
    assert await box.asks(*asked) == ["http", "http", "silence", "silence"]
    assert await box.asks(f"http {nowhere} sub.allowed.test", "http 192.0.2.7 other.test") == [
        "403",
        "silence",
    ]
    assert await box.reaches(f"tcp {net.outside} 7001", f"tcp {net.outside6} 7006") == ["hi", SILENT]
    # Nothing is read any more.
    await box.set(allow=False, rules=[])
    assert await box.asks(f"http {net.outside} sub.allowed.test", f"tls {net.outside} -") == ["http", "tls"]
    assert await box.reaches(f"tcp {net.outside6} 7006") == ["hi"]


async def test_no_file_leads_an_allowed_name_elsewhere(make: Make, net: Cable) -> None:
    """Neither code, nor whoever else can write to the files that the pod's containers share."""
    box = await make(name_server=net.outside)
    await box.set(allow=True, rules=[["nobody.test", 0], ["allowed.test", 0]])
    asked = ["http 192.0.2.1 nobody.test", "http 192.0.2.1 allowed.test"]
    assert await box.asks(*asked) == ["502", "http"]
    hosts, servers = f"{net.outside} nobody.test\\n192.0.2.9 allowed.test\\n", "nameserver 192.0.2.9\\n"
    written = await box.exec(f"printf '{hosts}' >> /etc/hosts; printf '{servers}' > /etc/resolv.conf")
    assert written["exit_code"] == 0
    assert await box.asks(*asked) == ["502", "http"]
    given = box.pod.directory / "given"
    (given / "hosts").write_text(hosts.replace("\\n", "\n"))
    (given / "resolv.conf").write_text(servers.replace("\\n", "\n"))
    assert await box.asks(*asked) == ["502", "http"]
    # Nor is the port of name servers opened to others.
    await box.set(allow=True, rules=[["allowed.test", 0]])
    assert await box.reaches("udp 192.0.2.9 53", seconds=4) == [SILENT]
    assert await box.asks(*asked) == ["403", "http"]


async def test_a_reset_keeps_names_with_their_claim_and_not_without(make: Make, net: Cable) -> None:
    box = await make(name_server=net.outside)
    await box.set(allow=True, rules=[["allowed.test", 0]])
    for keep, said in ((True, ["http", "403"]), (False, ["http", "http"])):
        answer = await box.instance("POST", "/v1/reset", json={"keep_claim": keep})
        assert answer.json()["equal"] is True, answer.text
        await box.prepare()
        assert await box.asks(*(f"http {net.outside} {name}.test" for name in ("allowed", "other"))) == said


async def test_a_reset_keeps_it_with_its_claim_and_takes_it_away_without(make: Make, net: Cable) -> None:
    box = await make()
    target = f"tcp {net.outside} 7001"
    await box.set(allow=False, rules=[rule(net.outside)])
    for keep, seen in ((True, SILENT), (False, "hi")):
        answer = await box.instance("POST", "/v1/reset", json={"keep_claim": keep})
        assert answer.json()["equal"] is True, answer.text
        await box.prepare()
        assert await box.reaches(target) == [seen]
    assert (await box.instance("GET", "/v1/egress")).json() == {"policy": None, "generation": 1}


@pytest.mark.parametrize("net_raw", [True, False])
async def test_code_cannot_write_the_filter(make: Make, net: Cable, net_raw: bool) -> None:
    box = await make(net_raw=net_raw)
    if net_raw:
        await box.set(allow=True, rules=[])
    assert await box.undo() == []
    assert await box.reaches(f"tcp {net.outside} 7001") == [SILENT if net_raw else "hi"]


async def test_without_raw_sockets_it_is_refused_and_says_what_is_needed(make: Make, net: Cable) -> None:
    box = await make(net_raw=False)
    refused = await box.put(allow=True, rules=[])
    assert (refused.status_code, refused.json()["error"]) == (409, "unsupported")
    assert 'net-raw = "true"' in refused.json()["message"]
    assert (await box.instance("GET", "/v1/egress")).json() == {"policy": None, "generation": 1}
    assert await box.reaches(f"tcp {net.outside} 7001") == ["hi"]
    assert (await box.put(allow=False, rules=[])).json()["generation"] == 1


async def test_more_rules_than_gvisor_takes_are_refused_and_change_nothing(make: Make, net: Cable) -> None:
    box = await make()
    nets = [[(10 << 24) + (n << 8), 24, 0, 0] for n in range(1024)]
    with_ports = [[address, prefix, 1, 2] for address, prefix, _, _ in nets]
    await box.set(allow=False, rules=[rule(net.outside)])
    for rules in (nets, with_ports, nets[:210], with_ports[:139]):
        refused = await box.put(allow=False, rules=rules)
        assert (refused.status_code, refused.json()["error"]) == (409, "unsupported"), len(rules)
        assert "gVisor accepts 32768 bytes of rules" in refused.json()["message"]
    assert await box.reaches(f"tcp {net.outside} 7001", seconds=4) == [SILENT]
    for rules in (nets[:200], with_ports[:130]):
        await box.set(allow=False, rules=[*rules, rule(net.outside)])
        assert await box.reaches(f"tcp {net.outside} 7001", seconds=4) == [SILENT]
