"""The maker of clients' environments: the asked version is in it, and the second time it is only found."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.frameworks.conftest import framework_python
from tests.prime.conftest import client_python
from tests.prime.environments import (
    NEWEST_IN,
    EnvironmentFailed,
    IndexUnreachable,
    client_env,
    environment,
    pinned_environment,
)
from tests.prime.not_installed import REQUIRED

pytestmark = pytest.mark.clients


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tests.prime.environments.CACHE", tmp_path / "clients")
    return tmp_path / "clients"


def version(python: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def test_asked_version_is_installed_and_found_again():
    python = client_python("idna", "3.10", also=("certifi==2025.1.31",))
    assert version(python, "idna") == "3.10"
    assert version(python, "certifi") == "2025.1.31"
    made = python.parent.parent.stat().st_ctime_ns
    assert environment("idna", "3.10", also=("certifi==2025.1.31",)) == python
    assert python.parent.parent.stat().st_ctime_ns == made
    assert environment("idna", "3.10") != python


def test_half_made_environment_is_made_again():
    python = client_python("idna", "3.10")
    (python.parent.parent / "complete").unlink()
    python.unlink()
    assert version(environment("idna", "3.10"), "idna") == "3.10"


def test_version_that_does_not_exist_is_said():
    client_python("idna", "3.10")  # or there is no index to ask
    with pytest.raises(EnvironmentFailed, match=r"0\.0\.0\.1") as caught:
        environment("idna", "0.0.0.1")
    assert not isinstance(caught.value, IndexUnreachable)


def test_pinned_list_is_installed_only_with_its_hashes(tmp_path: Path):
    client_python("idna", "3.10")  # or there is no index to ask
    pinned = tmp_path / "a-list.txt"
    pinned.write_text("idna==3.10 --hash=sha256:" + "0" * 64 + "\n")
    with pytest.raises(EnvironmentFailed, match="Hash mismatch"):
        pinned_environment(pinned)
    pinned.write_text(
        "idna==3.10 --hash=sha256:946d195a0d259cbba61165e88e65941f16e9b36ea6ddb97f00452bae8b1287d3\n"
    )
    python = pinned_environment(pinned)
    assert version(python, "idna") == "3.10"
    assert python.parent.parent.name.startswith("a-list-")


@pytest.fixture
def no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))


@pytest.mark.usefixtures("no_index")
def test_index_that_does_not_answer_is_another_error():
    with pytest.raises(IndexUnreachable, match="Failed to fetch"):
        environment("idna", "3.10")


@pytest.mark.usefixtures("no_index")
def test_client_that_cannot_be_installed_is_a_failure_only_where_all_are_required(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv(NEWEST_IN, raising=False)
    for asked in (lambda: client_python("idna", "3.10"), lambda: framework_python("e2b")):
        monkeypatch.delenv(REQUIRED, raising=False)
        with pytest.raises(pytest.skip.Exception, match="needs a package registry"):
            asked()
        monkeypatch.setenv(REQUIRED, "1")
        with pytest.raises(
            pytest.fail.Exception, match=rf"(idna 3\.10|E2B SDK) is not installed.*{REQUIRED}"
        ):
            asked()


def test_client_sees_this_server_and_no_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PRIME_TEAM_ID", "somebody")
    variables = client_env(tmp_path, url="http://127.0.0.1:1", api_key="k")
    assert "PRIME_TEAM_ID" not in variables
    assert variables["HOME"] == str(tmp_path)
    assert variables["PRIME_API_BASE_URL"] == "http://127.0.0.1:1"
