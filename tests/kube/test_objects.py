"""What we write and read of our resources is what the API server's schemas know: states, phases, a pool's reuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from sandlot_contract import reuse
from sandlot_contract.reuse import ReusePolicy
from sandlot_kube.objects import PoolReuse, SandboxPhase, SandboxPoolSpec, SandboxState
from sandlot_kube.template import Template

CRDS = Path(__file__).parents[2] / "charts" / "sandlot" / "crds"


def properties(plural: str) -> dict[str, Any]:
    (version,) = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return properties("sandboxes")


def test_the_states_of_a_spec_are_the_schemas(schema: dict[str, Any]) -> None:
    state = schema["spec"]["properties"]["state"]
    assert (state["enum"], state["default"]) == ([*SandboxState], SandboxState.PENDING)


def test_the_phases_of_a_status_are_the_schemas(schema: dict[str, Any]) -> None:
    assert schema["status"]["properties"]["phase"]["enum"] == [*SandboxPhase]
    (rule,) = (
        item["rule"]
        for item in schema["status"]["x-kubernetes-validations"]
        if "oldSelf.phase" in item["rule"]
    )
    assert f"!= '{SandboxPhase.ENDED}'" in rule
    assert f"== '{SandboxPhase.ENDED}'" in rule


def test_a_pool_that_does_not_say_it_reuses_its_pods_for_the_same_tenant() -> None:
    fields = properties("sandboxpools")["spec"]["properties"]["reuse"]["properties"]
    assert fields["policy"]["enum"] == [*ReusePolicy]
    usual = {name: field["default"] for name, field in fields.items()}
    assert usual == {"policy": "tenant", "maxUses": reuse.MAX_USES, "maxAge": reuse.MAX_AGE}
    assert SandboxPoolSpec(template=Template()).reuse == msgspec.convert(usual, PoolReuse)
