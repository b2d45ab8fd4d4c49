"""Runs mini-swe-agent's own agent, with its own scripted model, in a sandbox."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import sandlot
from lost import kill_commands, kill_sidecar
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import get_config_from_spec
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output

CLASS = "sandlot.integrations.mini_swe_agent.SandlotEnvironment"
os.environ["FORWARDED"] = "yes"


def environment(**more: Any) -> Any:
    create = {"labels": ["mini"], "memory": "256MiB"}
    settings = {"environment_class": CLASS, "image": "host", "forward_env": ["FORWARDED"], "timeout": 20}
    return get_environment({**settings, "create": create, **more})


def agent(env: Any, *commands: str, path: Path | None = None) -> DefaultAgent:
    outputs = [make_output("", [{"command": command}]) for command in commands]
    templates = {"system_template": "{{system}} {{machine}}", "instance_template": "{{task}}"}
    model = DeterministicModel(outputs=outputs)
    return DefaultAgent(model, env, **templates, cost_limit=0, output_path=path)


def a_run_ends_with_its_submission() -> None:
    env = environment(cwd="/tmp", env={"SEED": "7"})
    run = agent(
        env,
        "echo out; echo err >&2; echo $SEED $FORWARDED > kept; exit 3",
        "python3 -c 'bytearray(1 << 30)'",
        "cd /tmp && echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat kept",
        path=Path("run.json"),
    )
    assert run.run("a task") == {"exit_status": "Submitted", "submission": "7 yes\n"}
    said = [message["content"] for message in run.messages if message["role"] == "user"]
    assert said[1] == "<returncode>3</returncode>\n<output>\nout\nerr\n</output>", said
    assert said[2].startswith("<returncode>137</returncode>"), said
    assert run.messages[0]["content"] == f"{os.uname().sysname} {os.uname().machine}"
    kept = json.loads(Path("run.json").read_text())["info"]
    assert kept["config"]["environment_type"] == CLASS
    slow = env.execute({"command": "echo begun; sleep 60"}, timeout=10)
    assert (slow["returncode"], slow["extra"]) == (-1, {"verdict": "timeout"})
    assert slow["output"].startswith("begun\n")
    assert env.execute({"command": "true"}, cwd="/no/such/place")["returncode"] == 126
    env.cleanup()
    env.cleanup()


def a_loss_is_the_exit_status(*, of_sandbox: bool) -> None:
    env = environment()
    run = agent(env, "echo > /tmp/begun; exec -a lost-mini sleep 600")
    box = sandlot.Sandbox.connect(env.serialize()["info"]["sandbox_id"])

    def lose() -> None:
        while not box.files.exists("/tmp/begun"):
            pass
        if of_sandbox:
            kill_sidecar("lost-mini")
        else:
            kill_commands(box.id)

    threading.Thread(target=lose).start()
    try:
        raise AssertionError(run.run("a task"))
    except sandlot.SandboxLost as error:
        assert error.infrastructure
    assert run.messages[-1]["extra"]["exit_status"] == "SandboxLost"
    env.cleanup()


def a_deleted_sandbox_ends_the_run() -> None:
    env = environment()
    sandlot.Sandbox.connect(env.serialize()["info"]["sandbox_id"]).delete()
    told = DefaultAgent(
        DeterministicModel(outputs=[make_output("", [{"command": "true"}])]),
        env,
        system_template="",
        instance_template="",
        cost_limit=0,
    )
    env.get_template_vars = dict  # asked once for a prompt, when it is gone already
    assert told.run("a task") == {"exit_status": "deleted", "submission": ""}


def the_configuration_of_the_page_makes_one(file: str) -> None:
    env = get_environment(get_config_from_spec(file)["environment"])
    assert type(env).__module__ == CLASS.rpartition(".")[0]
    assert env.execute({"command": "echo made"})["output"] == "made\n"
    env.cleanup()


the_configuration_of_the_page_makes_one(sys.argv[1])
a_run_ends_with_its_submission()
a_loss_is_the_exit_status(of_sandbox=False)
a_loss_is_the_exit_status(of_sandbox=True)
a_deleted_sandbox_ends_the_run()
try:
    environment(create={"secrets": {"A": "b"}})
    raise AssertionError("it took a secret")
except ValueError as error:
    assert "secret_refs" in str(error)
dropped = environment()
del dropped
deadline = time.monotonic() + 90
while sandlot.Sandbox.list(labels=["mini"]):  # a thread deletes those of dropped environments
    assert time.monotonic() < deadline
kept = environment()  # the end of the process ends it
