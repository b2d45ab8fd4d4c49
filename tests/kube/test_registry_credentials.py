"""Tenants' credentials of registries: what a file names wrongly is no credential, and ends no create."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sandlot_kube.registry_credentials import Auth, RegistryCredentials

IMAGE = "registry.example/name:1"


@pytest.mark.parametrize("entry", [{"auth": "\u00e4"}, {"auth": "x"}, {"auth": "/w=="}, {"auth": 7}, {}])
def test_an_entry_that_cannot_be_read_is_none(tmp_path: Path, entry: dict[str, Any]) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"auths": {"registry.example": entry}}))
    assert RegistryCredentials(tmp_path).of("t", IMAGE) is None


def test_a_name_that_is_no_address_is_passed_over(tmp_path: Path) -> None:
    auths = {"https://[x/v2/": {"auth": "YTpi"}, "//[": {}, "registry.example": {"auth": "YTpi"}}
    (tmp_path / "t.json").write_text(json.dumps({"auths": auths}))
    assert RegistryCredentials(tmp_path).of("t", IMAGE) == Auth(username="a", password="b")
