"""Unmodified agent frameworks with the adapters of `sandlot.integrations`, and the examples of their page."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from sandlot import Client, Sandbox

from tests.frameworks.conftest import PYTEST, framework_python
from tests.frameworks.served_image import served_image
from tests.prime.environments import WHOLE
from tests.prime.server import Server

pytestmark = [
    pytest.mark.clients,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.longest,
    pytest.mark.timeout(900),
]

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/agent-frameworks.md"
FRAMEWORKS = {
    "NeMo Gym": "nemo-gym",
    "Pydantic AI": "pydantic-ai-slim",
    "LangChain Deep Agents": "deepagents",
    "mini-swe-agent": "mini-swe-agent",
    "tinker-cookbook": "tinker-cookbook",
}
# Tests of Deep Agents' suite that read a large file in 25 pieces, by as many Python processes; others read it whole.
IN_PIECES = ("paginated_roundtrip", "large_text_with_escaped_content")
# The page has an image with an environment's server in it; here the sandbox, which has a /tmp of its own, gets a server.
SERVED = """from_docker_image(
        "host",
        env_vars={{"SOURCE": {source!r}}},
        start_command="mkdir /task && printf %s \\"$SOURCE\\" > /task/openenv_server.py && "
        "exec {python} -m uvicorn --app-dir /task --port 8000 openenv_server:app",
        """


def example(name: str, language: str = "python") -> str:
    """The Python, say, of a framework's section of the page."""
    section = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith(f"{name}\n")]
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL))


def configuration(name: str, directory: Path) -> Path:
    """A file with the YAML of a framework's section, with an image that is here. It is JSON, which is YAML, too."""
    file = directory / "configuration.yaml"
    text = example(name, "yaml").replace("registry.example.org/task:1", "host")
    file.write_text(json.dumps(yaml.safe_load(text)))
    return file


def assert_nothing_left(server: Server) -> None:
    with Client(url=server.url, api_key=server.api_key) as client:
        assert Sandbox.list(client=client) == []


@pytest.mark.parametrize(("name", "package"), FRAMEWORKS.items(), ids=FRAMEWORKS.values())
def test_the_example_of_the_page_runs(
    server: Server, run_framework: Callable[..., str], name: str, package: str, tmp_path: Path
) -> None:
    script = tmp_path / "example.py"
    script.write_text(example(name))
    run_framework(package, str(script))
    assert_nothing_left(server)


def test_nemo_gym(server: Server, run_framework: Callable[..., str], tmp_path: Path) -> None:
    run_framework("nemo-gym", str(HERE / "nemo_gym_script.py"), str(configuration("NeMo Gym", tmp_path)))
    assert_nothing_left(server)


def test_pydantic_ai(server: Server, run_suite: Callable[..., str]) -> None:
    name = "Pydantic AI's suite for workspaces"
    told = run_suite("pydantic-ai-slim", name, *PYTEST, str(HERE / "pydantic_ai_suite.py"))
    skipped = re.findall(r"^SKIPPED \[\d+\] .*: (.*)$", told, flags=re.MULTILINE)
    assert sorted(skipped) == [
        "backend does not implement SupportsRealpath",  # Pydantic AI then resolves links by the shell
        "root bypasses filesystem permissions",
    ]
    assert_nothing_left(server)


def test_deep_agents(server: Server, run_suite: Callable[..., str]) -> None:
    words = [*PYTEST, "-o", "asyncio_mode=auto", str(HERE / "deepagents_suite.py")]
    if WHOLE not in os.environ:
        words += ["-k", f"not ({' or '.join(IN_PIECES)})"]
    run_suite("deepagents", "langchain-tests", *words)
    assert_nothing_left(server)


def test_mini_swe_agent(server: Server, run_framework: Callable[..., str], tmp_path: Path) -> None:
    file = configuration("mini-swe-agent", tmp_path)
    run_framework("mini-swe-agent", str(HERE / "mini_swe_agent_script.py"), str(file))
    assert_nothing_left(server)


def test_openenv_and_its_example_of_the_page(
    server: Server, run_framework: Callable[..., str], tmp_path: Path
) -> None:
    text = example("OpenEnv")
    source = (HERE / "openenv_server.py").read_text()
    served = SERVED.format(source=source, python=framework_python("openenv-core"))
    assert "from_docker_image(image, " in text
    script = tmp_path / "example.py"
    script.write_text(text.replace("from_docker_image(image, ", served))
    image = served_image(tmp_path / "served.tar")
    run_framework("openenv-core", str(HERE / "openenv_script.py"), str(script), str(image))
    assert_nothing_left(server)


def test_tinker_cookbook(server: Server, run_framework: Callable[..., str]) -> None:
    run_framework("tinker-cookbook", str(HERE / "tinker_cookbook_script.py"))
    assert_nothing_left(server)


def test_losses_in_a_recipe_of_tinker_cookbook(
    server: Server, run_framework: Callable[..., str], tmp_path: Path
) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(example("tinker-cookbook", "py"))  # not "python": by itself it needs PyTorch
    run_framework("tinker-cookbook", str(HERE / "tinker_recipe_script.py"), str(snippet))
    assert_nothing_left(server)
