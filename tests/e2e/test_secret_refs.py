"""Secrets by reference from SDK and command line to a command of a real sandbox, which does not see where they are kept."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import AsyncClient, AsyncSandbox, BadRequest, Client, Sandbox

from tests.cli.conftest import command_line
from tests.stack import private_stack

VALUE = "value-of-the-kept-secret"


@pytest.fixture
def kept() -> Iterator[Path]:
    """Outside of /tmp, which a sandbox of the host's root does not see anyway."""
    directory = Path(tempfile.mkdtemp(prefix="sandlot-test-", dir="/opt"))
    (directory / "default" / "model-api").mkdir(parents=True)
    (directory / "default" / "model-api" / "token").write_text(VALUE)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.root
async def test_a_command_has_the_value_and_code_does_not_see_the_directory(
    kept: Path, tmp_path: Path
) -> None:
    refs = {"TOKEN": "model-api/token"}
    with private_stack("--secrets-dir", str(kept)) as stack:
        with Client(url=stack.url, api_key=stack.api_key) as client:
            with Sandbox.create(secret_refs=refs, client=client) as box:
                assert box.exec("echo $TOKEN").stdout == f"{VALUE}\n"
                assert box.exec(f"grep -r {VALUE[:8]} {kept}; ls -A {kept}").stdout == ""
            with pytest.raises(BadRequest, match=r"secret_refs\.TOKEN: .*'model-api'.*'other'"):
                Sandbox.create(secret_refs={"TOKEN": "model-api/other"}, client=client)
        async with (
            AsyncClient(url=stack.url, api_key=stack.api_key) as client,
            await AsyncSandbox.create(secret_refs=refs, client=client) as box,
        ):
            assert (await box.exec("echo $TOKEN")).stdout == f"{VALUE}\n"
        cli = command_line(stack.url, stack.api_key, tmp_path / "home")
        done = cli("run", "--secret-ref", "TOKEN=model-api/token", "host", "--", "echo $TOKEN")
        assert (done.stdout, done.stderr) == (f"{VALUE}\n", "")
        mistaken = cli("run", "--secret-ref", f"TOKEN={VALUE}", "host", "--", "true")
        assert mistaken.returncode == 2
        assert "secret_refs['TOKEN']: must be SECRET/KEY" in mistaken.stderr
        assert VALUE not in mistaken.stderr + stack.log()
