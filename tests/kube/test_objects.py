"""The states that we write and read of a Sandbox are those that the API server's schema knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from sandlot_kube.objects import SandboxPhase, SandboxState

CRD = Path(__file__).parents[2] / "charts" / "sandlot" / "crds" / "sandboxes.yaml"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]


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
