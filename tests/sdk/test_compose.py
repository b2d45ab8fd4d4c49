"""What a compose file of one service becomes, and that each key without a counterpart is named."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sandlot._compose.service import service_of


def one(**service: Any) -> dict[str, Any]:
    return {"services": {"default": {"image": "python:3.13", **service}}}


def test_each_key_becomes_an_argument() -> None:
    document = one(
        user="1000:1000",
        working_dir="/work/",
        environment=["A=1=2", "B"],
        command="sh -c 'sleep 9'",
        entrypoint=["tini", "--"],
        cpus=1.5,
        mem_limit="512mb",
        pids_limit=100,
        network_mode="none",
        init=True,
        hostname=None,
        **{"x-sandlot": {"pool": "big", "idle_timeout": 60}, "x-local": True},
    )
    service = service_of(document, source="compose.yaml")
    assert (service.user, service.workdir) == ("1000:1000", "/work")
    waits = ["sh", "-c", 'until cd "$0" 2>/dev/null; do sleep 0.1; done; exec "$@"']
    assert service.create == {
        "image": "python:3.13",
        "env": {"A": "1=2"},
        "start_command": [*waits, "/work", "tini", "--", "sh", "-c", "sleep 9"],
        "user": "1000:1000",
        "cpu": 1.5,
        "memory": 512 << 20,
        "pids": 100,
        "network": "none",
        "pool": "big",
        "idle_timeout": 60,
    }
    assert (service.name, service_of({"services": {"box": {"image": "x"}}}, source="c").name) == (
        "default",
        "box",
    )
    limits = {"resources": {"limits": {"cpus": "2", "memory": "1g"}}}
    assert service_of(one(deploy=limits), source="c").create == {
        "image": "python:3.13",
        "cpu": 2.0,
        "memory": 1 << 30,
    }


def test_variables_are_replaced_and_a_missing_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_HERE", "yes")
    document = one(image="${NAME}:${TAG:-1}", command="echo $$HOME $NAME", environment={"FROM_HERE": None})
    create = service_of(document, source="c", variables={"NAME": "tools"}).create
    assert (create["image"], create["start_command"]) == ("tools:1", ["echo", "$HOME", "tools"])
    assert create["env"] == {"FROM_HERE": "yes"}
    with pytest.raises(ValueError, match=r"^c: services\.default\.image: the variable NAME is not set"):
        service_of(document, source="c", variables={})
    assert service_of(document, source="c", variables={"NAME": "", "TAG": ""}).create["image"] == ":1"


@pytest.mark.parametrize("text", ["${TAG-1}", "${TAG:?no tag}", "${TAG", "${}"])
def test_another_form_of_a_variable_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape("services.default.image: only ${NAME} and")):
        service_of(one(image=text), source="c", variables={"TAG": "2"})


@pytest.mark.parametrize(
    ("document", "key"),
    [
        (one(build="."), "services.default.build"),
        (one(volumes=["a:/b"]), "services.default.volumes"),
        (one(network_mode="host"), "services.default.network_mode"),
        (one(cpus="many"), "services.default.cpus"),
        (one(mem_limit="some"), "services.default.mem_limit"),
        (one(working_dir="here"), "services.default.working_dir"),
        (one(command="'"), "services.default.command"),
        (one(deploy={"replicas": 2}), "services.default.deploy.replicas"),
        (
            one(deploy={"resources": {"reservations": {}}}),
            "services.default.deploy.resources.reservations",
        ),
        (one(**{"x-sandlot": {"speed": 1}}), "services.default.x-sandlot.speed"),
        ({"services": {"a": {"image": "x"}, "b": {"image": "y"}}}, "services"),
        ({"services": {}}, "services"),
        ({"services": {"a": {"user": "x"}}}, "services.a.image"),
        ({**one(), "volumes": {}}, "volumes"),
    ],
)
def test_what_has_no_counterpart_is_named(document: object, key: str) -> None:
    with pytest.raises(ValueError, match=f"^c: {re.escape(key)}: "):
        service_of(document, source="c")
