"""API keys: from a file, from the environment, with tenants and limits; bad ones are refused at the start."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_gateway.keyfile import KeyFile
from sandlot_gateway.keys import BadKeys, Keys
from sandlot_gateway.settings import Settings

from tests.gateway.conftest import running


def keys(*entries: str) -> Keys:
    return Keys(entries)


async def test_keys_of_a_file_open_their_tenants_sandboxes(state_dir: Path, machine, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# who may\nfile-key:filed:3   # three at once\n\n  bare-key\n")
    async with running(state_dir, machine, api_keys="env-key:given", api_keys_file=file) as box:
        seen = {}
        for key in ("file-key", "bare-key", "env-key"):
            answer = await box.client.get("/api/v1/user/whoami", headers=box.as_tenant(key))
            seen[key] = (answer.json()["data"]["id"], answer.json()["data"]["account_limits"])
        assert seen == {
            "file-key": ("filed", {"max_concurrent_sandboxes": 3}),
            "bare-key": ("default", {"max_concurrent_sandboxes": None}),
            "env-key": ("given", {"max_concurrent_sandboxes": None}),
        }
        refused = await box.client.get("/api/v1/user/whoami", headers=box.as_tenant("# who may"))
        assert refused.status_code == 401


def test_the_environment_names_keys_and_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SANDLOT_API_KEYS", "a:one,b:two:5")
    monkeypatch.setenv("SANDLOT_API_KEYS_FILE", str(tmp_path / "keys"))
    settings = Settings()
    assert settings.api_keys_file == tmp_path / "keys"
    (tmp_path / "keys").write_text("c:three\n")
    found = Keys([*Keys.entries(settings.api_keys), *KeyFile(settings.api_keys_file).entries()])
    assert [found.tenant(key) for key in ("a", "b", "c", "d")] == ["one", "two", "three", None]
    tenant = found.find("b")
    assert tenant is not None
    assert tenant.max_sandboxes == 5


@pytest.mark.parametrize(
    "entry",
    [
        ":tenant",
        "a b:tenant",
        "k\u00e9y",
        "xyzzy:bad tenant",
        "xyzzy:t:many",
        "xyzzy:t:-1",
        "xyzzy:t:1:admin",
        "xyzzy:t:1:use:x",
    ],
)
def test_a_bad_entry_is_named_by_number_and_not_by_its_text(entry: str) -> None:
    with pytest.raises(BadKeys, match="entry 2") as caught:
        keys("good:one", entry)
    key = entry.partition(":")[0]
    assert not key or key not in str(caught.value)


def test_a_bad_entry_says_which_field(tmp_path: Path) -> None:
    fields = {"k:bad tenant": "tenant", "k:t:many": "limit of sandboxes", "k:t:1:admin": "role"}
    for entry, field in fields.items():
        with pytest.raises(BadKeys, match=f"entry 1: the {field}"):
            keys(entry)


@pytest.mark.parametrize(
    ("entry", "role"),
    [
        ("k", "operate"),
        ("k:", "operate"),
        ("k:t", "use"),
        ("k:t:3", "use"),
        ("k:t::operate", "operate"),
        ("k::5:use", "use"),
    ],
)
def test_a_key_has_the_role_of_its_entry(entry: str, role: str) -> None:
    tenant = keys(entry).find("k")
    assert tenant is not None
    assert tenant.role == role


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadKeys, match="no-such"):
        KeyFile(tmp_path / "no-such").entries()


@given(st.text())
def test_no_other_text_is_a_key(text: str) -> None:
    assert keys("the-key:one").tenant(text) == ("one" if text == "the-key" else None)
