"""A rollout of verifiers 0.4 whose agent runs in its `prime` runtime. Run by the client's Python.

Prints one JSON document. The module is also the harness plugin that the agent's config names.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import verifiers.v1 as vf  # type: ignore[import-not-found]
from scripted_model import serve  # type: ignore[import-not-found]
from verifiers.v1.interception import (  # type: ignore[import-not-found]
    InterceptionServer,
    InterceptionServerConfig,
)
from verifiers.v1.interception.tunnel.custom import CustomTunnelConfig  # type: ignore[import-not-found]
from verifiers.v1.runtimes.prime import PrimeRuntime  # type: ignore[import-not-found]

__all__ = ["ScriptedHarness"]

IMAGE = os.environ["SANDLOT_SCRIPT_IMAGE"]
HOST = os.environ["SANDLOT_SCRIPT_HOST"]
TURNS = [{"command": "echo $((6*7)) > answer"}, {"command": "cat answer; echo $GIVEN"}]

# What runs in the sandbox: a loop over a model's tool calls, with nothing but the standard library.
AGENT = """
import json, subprocess, sys, urllib.request

url, key, model, prompt = sys.argv[1:]
messages = [{"role": "user", "content": prompt}]
tool = {"type": "function", "function": {"name": "bash", "description": "Runs a command.", "parameters": {
    "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}}
while True:
    body = json.dumps({"model": model, "messages": messages, "tools": [tool]}).encode()
    headers = {"authorization": "Bearer " + key, "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url + "/chat/completions", body, headers)) as answer:
        message = json.load(answer)["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        command = json.loads(call["function"]["arguments"])["command"]
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout or "(no output)"})
print(message["content"])
"""


class ScriptedHarness(vf.Harness[vf.HarnessConfig]):
    async def setup(self, runtime: Any) -> None:
        await runtime.write("agent.py", AGENT.encode())

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
    ) -> Any:
        _, prompt = self.resolve_text_prompt(data)
        return await runtime.run_program(
            ["python3", "agent.py", endpoint, secret, ctx.model, prompt], {"GIVEN": "b c"}
        )


class Product(vf.Task):
    @vf.reward
    async def wrote_it(self, runtime: Any) -> float:
        return float(await runtime.read("answer") == b"42\n")

    @vf.metric
    async def echoed(self, runtime: Any) -> float:
        """A live process that is talked to."""
        process = await runtime.open_process(["sh", "-c", "read x; echo got $x; exit 5"], {})
        await process.write(b"word\n")
        said = b"".join([piece async for piece in process.stdout])
        return float(said == b"got word\n" and await process.wait() == 5)


# A connection to nowhere, for a host that is not among those which are allowed.
FORBIDDEN = """
import http.client
asked = http.client.HTTPConnection("192.0.2.1", timeout=60)
asked.request("GET", "/", headers={"Host": "forbidden.example"})
print(asked.getresponse().read().decode())
"""


async def restricted() -> str:
    """What a task that names the hosts it needs gets from another one."""
    runtime = PrimeRuntime(
        vf.PrimeConfig(image=IMAGE, workdir="/tmp/work", memory=1.0, allow=["example.org", "*.example.org"])
    )
    try:
        await runtime.start()
        await runtime.prepare_execution([])
        process = await runtime.open_process(["python3", "-c", FORBIDDEN], {})
        said = b"".join([piece async for piece in process.stdout])
        await process.wait()
        return said.decode()
    except vf.SandboxError as error:
        return str(error)
    finally:
        await runtime.stop()


async def main() -> dict[str, Any]:
    port = int(os.environ["SANDLOT_SCRIPT_PORT"])
    tunnel = CustomTunnelConfig(url=f"http://{HOST}:{port}", port=port)
    with serve(TURNS) as url:
        config = vf.AgentConfig(
            model="scripted",
            client=vf.EvalClientConfig(base_url=url),
            harness={"id": "verifiers_runtime_script"},
            runtime=vf.PrimeConfig(image=IMAGE, workdir="/tmp/work", memory=1.0, labels=["verifiers"]),
        )
        async with (
            InterceptionServer(InterceptionServerConfig(tunnel=tunnel), requires_tunnel=True) as server,
            vf.Agent(config, interception=server) as agent,
        ):
            trace = await agent.run(Product(vf.TaskData(prompt="What is 6*7?"), vf.TaskConfig()))
    return {
        "errors": [error.message for error in trace.errors],
        "reward": trace.reward,
        "metrics": dict(trace.metrics),
        "said": [str(message.content) for message in trace.branches[-1].messages if message.role == "tool"],
        "timing": {
            name: getattr(trace.timing, name).end - getattr(trace.timing, name).start
            for name in ("boot", "setup", "agent", "scoring")
        },
        "restricted": await restricted(),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main()), default=str))
