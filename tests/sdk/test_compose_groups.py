"""What a compose file of several services becomes, and that each key without a counterpart is named with its service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sandlot._compose.group import HEALTHY, STARTED, Healthcheck, members_of, read
from sandlot._compose.waiting import MARK, Awaited, after, awaited, in_workdir

DB: dict[str, Any] = {
    "image": "postgres:17",
    "expose": [5432, "6000-6002/tcp"],
    "healthcheck": {
        "test": ["CMD-SHELL", "pg_isready"],
        "interval": "500ms",
        "timeout": "1m30s",
        "retries": 5,
        "start_period": "10s",
    },
}


def services(**of: Any) -> dict[str, Any]:
    return {"services": of}


def test_services_become_members_in_the_order_of_their_starts() -> None:
    web = {
        "image": "web:1",
        "command": "serve --port 80",
        "ports": ["127.0.0.1:8080:80", {"target": 81, "published": "8081", "protocol": "tcp"}],
        "depends_on": {"db": {"condition": HEALTHY, "required": True}},
    }
    agent = {"image": "agent:1", "command": ["sleep", "infinity"], "depends_on": ["web"]}
    found = members_of(services(agent=agent, web=web, db=DB), source="c.yaml", variables={})
    assert [member.service.name for member in found] == ["db", "web", "agent"]
    db, web_member, agent_member = found
    assert db.create() == {
        "image": "postgres:17",
        "run_image_command": True,
        "service": "db",
        "ports": [5432, 6000, 6001, 6002],
    }
    assert db.health == Healthcheck(
        test=["sh", "-c", "pg_isready"], interval=0.5, timeout=90.0, retries=5, start_period=10.0
    )
    waits = ["sh", "-c", 'until [ -e "$0" ]; do sleep 0.1; done; exec "$@"', MARK]
    assert web_member.create() == {
        "image": "web:1",
        "start_command": [*waits, "serve", "--port", "80"],
        "service": "web",
        "ports": [80, 81],
    }
    assert (web_member.after, agent_member.after) == ({"db": HEALTHY}, {"web": STARTED})
    assert agent_member.create()["ports"] == []


@pytest.mark.parametrize(
    ("test", "command"),
    [
        ("true", ["sh", "-c", "true"]),
        (["CMD", "pg_isready", "-q"], ["pg_isready", "-q"]),
        (["NONE"], None),
    ],
    ids=["text", "argv", "none"],
)
def test_a_healthcheck_is_a_text_or_a_list(test: Any, command: list[str] | None) -> None:
    (member,) = members_of(services(db={**DB, "healthcheck": {"test": test}}), source="c", variables={})
    assert (member.health and member.health.test) == command


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "c: services: must be a mapping"),
        (services(), "c: services: must name at least one"),
        (
            services(db=DB, web={"image": "x", "volumes": ["a:/b"]}),
            "c: services.web.volumes: has no counterpart",
        ),
        (services(web={"image": "x", "build": "."}), "c: services.web.build: Sandlot builds no images"),
        (services(my_db=DB), "c: services.my_db: must be a name of a-z"),
        (services(db={"image": "x", "expose": 5432}), "c: services.db.expose: must be a list"),
        (
            services(db={"image": "x", "expose": ["53/udp"]}),
            "c: services.db.expose: is no TCP port: '53/udp'",
        ),
        (
            services(db={"image": "x", "ports": ["1-90"]}),
            "c: services.db.ports: must be from 1 to 65535, and at most 16",
        ),
        (
            services(db={"image": "x", "ports": [{"target": 53, "protocol": "udp"}]}),
            "c: services.db.ports: only TCP is linked, not 'udp'",
        ),
        (
            services(a={"image": "x", "command": "a", "depends_on": ["b"]}),
            "c: services.a.depends_on: 'b' is no service of this file; it has a",
        ),
        (
            services(a={"image": "x", "depends_on": ["db"]}, db=DB),
            "c: services.a.depends_on: needs the service's command",
        ),
        (
            services(
                a={"image": "x", "command": "a", "depends_on": ["b"]},
                b={"image": "x", "command": "b", "depends_on": ["a"]},
            ),
            "c: services.a.depends_on: goes round in a circle",
        ),
        (
            services(
                a={"image": "x", "command": "a", "depends_on": {"b": {"condition": HEALTHY}}},
                b={"image": "x"},
            ),
            "c: services.a.depends_on.b: service_healthy needs a healthcheck of 'b'",
        ),
        (
            services(
                a={
                    "image": "x",
                    "command": "a",
                    "depends_on": {"db": {"condition": "service_completed_successfully"}},
                },
                db=DB,
            ),
            "c: services.a.depends_on.db.condition: must be service_started or service_healthy",
        ),
        (
            services(db={"image": "x", "healthcheck": {"test": "true", "interval": "soon"}}),
            "c: services.db.healthcheck.interval: is no time: 'soon'",
        ),
        (
            services(db={"image": "x", "healthcheck": {"test": ["pg_isready"]}}),
            "c: services.db.healthcheck.test: must be a text, or begin with",
        ),
        (
            services(db={"image": "x", "healthcheck": {"test": "true", "retries": 0}}),
            "c: services.db.healthcheck.retries: must be 1 or more",
        ),
        (
            services(db={"image": "x", "healthcheck": {"test": "true", "timeout": "0s"}}),
            "c: services.db.healthcheck.timeout: must be more than 0",
        ),
        (
            services(db={"image": "x", "healthcheck": {"probe": "true"}}),
            "c: services.db.healthcheck.probe: is unknown",
        ),
    ],
    ids=[
        "no services",
        "empty",
        "volumes",
        "build",
        "name",
        "expose",
        "udp",
        "range",
        "protocol",
        "unknown dependency",
        "no command",
        "circle",
        "no healthcheck",
        "condition",
        "time",
        "test",
        "retries",
        "timeout",
        "key",
    ],
)
def test_what_has_no_counterpart_is_named(document: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        members_of(document, source="c", variables={})


def test_a_file_that_is_not_yaml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text("services: [")
    with pytest.raises(ValueError, match=r"compose\.yaml: is not YAML"):
        read(file)


def test_two_ports_are_no_number_of_base_60(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text("services: {a: {image: x, ports: [22:22, 8000:80], cpus: 1.5}}")
    document, source = read(file)
    (member,) = members_of(document, source=source, variables={})
    assert (member.ports, member.service.create["cpu"]) == ([22, 80], 1.5)


def test_what_a_command_waits_for_is_told_from_the_command() -> None:
    def told(words: list[str]) -> dict[str, Any]:
        return {"executable": words[0], "args": words[1:]}

    inner = in_workdir(["serve"], "/srv")
    assert awaited(told(after(inner))) == Awaited(mark=MARK, workdir="/srv")
    assert awaited(told(inner)) == Awaited(workdir="/srv")
    assert awaited(told(["sh", "-c", "serve"])) == awaited("serve") == awaited(None) == Awaited()
