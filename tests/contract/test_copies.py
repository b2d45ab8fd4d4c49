"""The SDK has no dependency, and so a copy of what it must agree on: the copies and pages say what the contract says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from sandlot import errors, models
from sandlot._protocol import answers, documents, frames
from sandlot.cli.cluster import reading, sources, waits
from sandlot.cli.cluster.checks import definitions, network
from sandlot.cli.cluster.fields import FIELDS
from sandlot.cli.cluster.world import Kind
from sandlot.cli.local import up
from sandlot_contract import frames as contract_frames
from sandlot_contract import headers, names, ports, reuse
from sandlot_contract.statuses import TERMINAL, Status
from sandlot_contract.verdicts import INFRASTRUCTURE, LOST, CommandVerdict, SandboxVerdict
from sandlot_kube import verdicts

ROOT = Path(__file__).parents[2]


def test_the_sdk_knows_every_verdict_of_a_command() -> None:
    assert {*map(str, models.Verdict)} - {models.Verdict.UNKNOWN} == {*map(str, CommandVerdict)}


def test_the_sdk_knows_which_ends_are_the_infrastructures() -> None:
    # `given_back` is no sandbox's end; `sandbox_broken` is what commands are told.
    ends = {*INFRASTRUCTURE, CommandVerdict.SANDBOX_BROKEN} - {SandboxVerdict.GIVEN_BACK}
    assert {*errors.INFRASTRUCTURE} == {*map(str, ends)}


@pytest.mark.parametrize("status", Status)
def test_the_sdk_knows_which_statuses_are_an_end(status: Status) -> None:
    assert models.SandboxInfo(id="sb-1", status=status).ended == (status in TERMINAL)


def test_the_sdk_knows_which_commands_are_lost() -> None:
    assert {*map(str, answers.LOST_OPS)} == {*map(str, LOST)}


@pytest.mark.parametrize("name", ["STDOUT", "STDERR", "START", "END"])
def test_the_sdk_reads_every_kind_of_frame(name: str) -> None:
    wire = contract_frames.frame(getattr(contract_frames, name), b"some")
    kind = getattr(frames, name)
    assert frames.FrameDecoder().feed(wire) == [frames.Frame(kind, b"some")]
    assert frames.encode(kind, b"some") == wire


def test_the_sdk_leaves_keep_alives_out() -> None:
    wire = contract_frames.frame(contract_frames.KEEP_ALIVE, b"")
    decoder = frames.FrameDecoder()
    assert decoder.feed(wire) == []
    assert (decoder.offset, frames.encode(frames.KEEPALIVE, b"")) == (0, wire)


def test_the_sdk_names_no_header_of_ours_that_is_not_known() -> None:
    known = {
        value.lower() for name, value in vars(headers).items() if name.isupper() and isinstance(value, str)
    }
    sources = "".join(path.read_text() for path in (ROOT / "sdk/src/sandlot").rglob("*.py"))
    named = {name.lower() for name in re.findall(r"(?i)x-sandlot-[a-z-]+", sources)}
    assert len(named) >= 3
    assert named <= known


def test_the_sdk_knows_how_a_new_pool_reuses_its_slots() -> None:
    usual = models.PoolReuse()
    contracts = (reuse.POLICY, reuse.MAX_USES, reuse.MAX_AGE)
    assert (usual.policy, usual.max_uses, usual.max_age) == contracts
    assert documents.pool_info({"name": "a", "reuse": None}).reuse == usual


def test_the_page_of_slots_has_the_defaults_of_reuse() -> None:
    page = (ROOT / "docs/slots.md").read_text().partition("\n## Policy\n")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| `?(\w+)`? \|", page, re.MULTILINE))
    assert told == {
        "policy": str(reuse.POLICY),
        "max_uses": str(reuse.MAX_USES),
        "max_age": str(reuse.MAX_AGE),
    }


def test_a_local_stack_of_the_command_line_has_the_gateways_port() -> None:
    assert inspect.signature(up).parameters["port"].default == ports.GATEWAY_PORT


def test_the_check_of_a_cluster_knows_the_ports_and_names() -> None:
    known = (reading.GATEWAY_PORT, reading.CONTROLLER_PORT, network.WEBHOOK_PORT, sources.NODE_AGENT_PORT)
    assert known == (
        ports.GATEWAY_PORT,
        ports.CONTROLLER_PORT,
        ports.WEBHOOK_PORT,
        ports.NODE_AGENT_PORT,
    )
    assert definitions.VERSION == names.VERSION
    assert (waits.IMAGE_REASONS, waits.START_REASONS) == (verdicts.IMAGE_REASONS, verdicts.START_REASONS)
    assert Kind.POOLS.value == (f"/apis/{names.API_VERSION}", names.POOL_PLURAL)
    assert set(FIELDS) == {
        f"{plural}.{names.GROUP}" for plural in (names.SANDBOX_PLURAL, names.POOL_PLURAL, names.WARMUP_PLURAL)
    }


def test_the_page_of_the_sidecar_has_every_verdict() -> None:
    page = (
        (ROOT / "docs/sidecar-contract.md").read_text().partition("\n### Verdicts\n")[2].partition("\n## ")[0]
    )
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [*CommandVerdict]
    sentence = next(line for line in page.splitlines() if line.startswith("Sandbox verdicts:"))
    assert {*SandboxVerdict} <= {*re.findall(r"`(\w+)`", sentence)}
