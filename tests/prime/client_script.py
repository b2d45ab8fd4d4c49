"""What a user of prime-sandboxes would write, with whatever this version has. Run by the client's own Python.

`client_script.py [vm|container]` prints one JSON document: what each step saw, or that this version has no such step.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import os
import socket
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import prime_sandboxes as sdk  # type: ignore[import-not-found]

IMAGE = os.environ["SANDLOT_SCRIPT_IMAGE"]
RUN = f"run-{uuid.uuid4().hex[:8]}"
MODE = {"vm": {"vm": True}, "container": {"vm": False}}.get(sys.argv[1], {}) if len(sys.argv) > 1 else {}


def request(name: str, **more: Any) -> Any:
    return sdk.CreateSandboxRequest(
        name=name,
        docker_image=IMAGE,
        memory_gb=1,
        timeout_minutes=10,
        labels=[RUN, *more.pop("labels", ())],
        environment_vars={"FROM_CREATE": "made"},
        **MODE,
        **more,
    )


def plain(answer: Any) -> list[Any]:
    return [answer.stdout, answer.stderr, answer.exit_code]


async def error_of(work: Any) -> list[str]:
    """The kind of error, and the kinds that a caller may catch it as."""
    try:
        await work
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("prime")]
        return [*kinds, str(error)]
    return ["no error"]


async def answer_of(work: Any) -> list[Any]:
    try:
        return plain(await work)
    except (sdk.APIError, ValueError) as error:
        return [type(error).__name__, str(error)]


def takes(method: Any, name: str) -> bool:
    return name in inspect.signature(method).parameters


# What Prime's sandboxes run in bash and a plain sh does not know or does otherwise.
BASH = """set -o pipefail
greet() { echo "hello $1"; }; export -f greet
words=(one two three)
bash -c 'greet you'
[[ ${words[-1]} == t* ]] && echo "${#words[@]}"
echo $'a\\tb'; printf '\\x41\\n'
(exec -a other bash -c 'echo $0')
false | true; echo $?
"""


async def commands(client: Any, box: str) -> dict[str, Any]:
    run = client.execute_command
    large = await run(box, "head -c 3000000 /dev/zero | tr '\\0' z")
    characters = await run(box, "head -c 50000 /dev/zero | tr '\\0' z | sed 's/z/\u20ac/g'")
    return {
        "env": plain(
            await run(
                box,
                "echo $A $FROM_CREATE; echo err >&2; pwd; exit 3",
                working_dir="/tmp",
                env={"A": "b c"},
                timeout=20,
            )
        ),
        "bash": plain(await run(box, BASH)),
        "missing": (await run(box, "no-such-program")).exit_code,
        "bytes": (await run(box, "printf 'a\\377b'")).stdout,
        "orphan": plain(await run(box, "sleep 31 & echo started")),
        "large": [len(large.stdout), large.stdout.strip("z")],
        "characters": [len(characters.stdout), characters.stdout.strip("\u20ac")],
        "user": await answer_of(run(box, "id -u", user="root")) if takes(run, "user") else None,
        "cwd": await answer_of(run(box, "true", working_dir="/no/such/place")),
    }


async def timeouts(client: Any, box: str) -> dict[str, Any]:
    began = time.monotonic()
    error = await error_of(client.execute_command(box, "setsid sleep 33 & sleep 33", timeout=1))
    took = time.monotonic() - began
    left = "?"
    while left and time.monotonic() - began < 30:  # the client does not wait for the server's end of it
        left = (await client.execute_command(box, "pgrep -xf 'sleep 33'; true")).stdout
    return {"error": error[0], "took": took, "left": left}


async def files(client: Any, box: str) -> dict[str, Any]:
    content = os.urandom(5_000_000)
    digest = hashlib.sha256(content).hexdigest()
    with tempfile.TemporaryDirectory() as directory:
        up, down = Path(directory, "up"), Path(directory, "down")
        await asyncio.to_thread(up.write_bytes, content)
        told = await client.upload_file(box, "/tmp/made/on/the/way/five", str(up))
        inside = await client.execute_command(box, "sha256sum < /tmp/made/on/the/way/five")
        await client.download_file(box, "/tmp/made/on/the/way/five", str(down))
        back = hashlib.sha256(await asyncio.to_thread(down.read_bytes)).hexdigest()
        missing = await error_of(client.download_file(box, "/tmp/none", str(down)))
        directory_down = await error_of(client.download_file(box, "/tmp", str(down)))
        directory_up = await error_of(client.upload_bytes(box, "/tmp", b"x", "x"))
        slash = await error_of(client.upload_bytes(box, "/tmp/none/", b"x", "x"))
    written = await client.upload_bytes(box, "/tmp/small", b"0123456789", "small")
    return {
        "told": [told.success, told.size],
        "same": [inside.stdout.split()[0] == digest, back == digest],
        "missing": missing[0],
        "refused": [[each[0], each[-1]] for each in (directory_down, directory_up, slash)],
        "bytes": [written.size, (await client.execute_command(box, "cat /tmp/small")).stdout],
    }


async def reading(client: Any, box: str) -> dict[str, Any] | None:
    read = getattr(client, "read_file", None)
    if read is None:
        return None
    await client.upload_bytes(box, "/tmp/read", b"0123456789", "read")
    whole = await read(box, "/tmp/read")
    seen: dict[str, Any] = {
        "whole": [whole.content, whole.size],
        "missing": (await error_of(read(box, "/tmp/none")))[0],
    }
    if takes(read, "offset"):
        for offset, length in ((2, 3), (-4, 100), (8, 100), (50, 5)):
            part = await read(box, "/tmp/read", offset=offset, length=length)
            seen[f"{offset}+{length}"] = [part.content, part.offset, part.total_size, part.truncated]
        await client.execute_command(box, "truncate -s 20M /tmp/huge")
        seen["too large"] = (await error_of(read(box, "/tmp/huge")))[0]
    return seen


async def jobs(client: Any, box: str) -> dict[str, Any]:
    """A job that the test's own polls can follow, and where it exists the call that does it all."""
    await client.execute_command(box, "mkfifo /tmp/gate")
    job = await client.start_background_job(
        box, "cat gate; echo $A; echo err >&2; exit 4", working_dir="/tmp", env={"A": "b c"}
    )
    before = await client.get_background_job(box, job)
    await client.execute_command(box, "echo open > /tmp/gate")
    status = before
    while not status.completed:
        status = await client.get_background_job(box, job)
    seen: dict[str, Any] = {
        "before": before.completed,
        "after": [status.exit_code, status.stdout, status.stderr],
    }
    if hasattr(client, "run_background_job"):
        done = await client.run_background_job(box, "echo done; exit 5", timeout=60, poll_interval=1)
        seen["run"] = [done.exit_code, done.stdout, done.stderr]
    return seen


async def live(client: Any, box: str) -> dict[str, Any] | None:
    if not hasattr(client, "open_process"):
        return None
    refused = await error_of(_open_and_close(client, box))
    if refused != ["no error"]:
        return {"refused": refused}
    process = await client.open_process(
        box, "while read x; do echo got $x; echo err >&2; [ $x = end ] && exit 6; done", working_dir="/tmp"
    )
    lines = []
    for word in (b"one\n", b"end\n"):
        await process.write_stdin(word)
        lines.append((await anext(process.stdout)).decode())
    code = await process.wait()
    errors = b"".join([piece async for piece in process.stderr]).decode()
    await process.aclose()
    ends = {}
    for name in ("terminate", "kill"):
        process = await client.open_process(box, "echo ready; exec sleep 34")
        await anext(process.stdout)
        await getattr(process, name)()
        ends[name] = await process.wait()
        await process.aclose()
    return {"lines": lines, "code": code, "stderr": errors, **ends}


async def _open_and_close(client: Any, box: str) -> None:
    await (await client.open_process(box, "true")).aclose()


async def network(client: Any, box: str) -> dict[str, Any] | None:
    if not hasattr(client, "get_network"):
        return None
    status = await client.get_network(box)
    return {
        "status": [status.policy.allowlist, status.policy.denylist, status.applied],
        "same": (await client.set_network(box, allow=["*"])).applied,
        "names": await policy_of(client.set_network(box, allow=["Example.org", "*.example.org"])),
        "none": await policy_of(client.set_network(box, deny=["*"])),
        "some": await policy_of(client.set_network(box, deny=["192.0.2.0/24"])),
        "open": await policy_of(client.set_network(box, allow=["*"])),
    }


async def policy_of(work: Any) -> list[Any]:
    try:
        status = await work
    except sdk.APIError as error:
        return [type(error).__name__, str(error)]
    return [status.policy.allowlist, status.policy.denylist, status.generation, status.applied]


async def ports(client: Any, box: str) -> dict[str, Any] | None:
    """A web server in the sandbox, seen from outside."""
    if not hasattr(client, "expose"):
        return None
    import httpx

    with (
        socket.socket() as free
    ):  # sandboxes on one machine share its network: other versions run beside this one
        free.bind(("127.0.0.1", 0))
        inside = free.getsockname()[1]
    try:
        exposed = await client.expose(box, inside, name="web")
    except sdk.APIError as error:
        return {"refused": str(error)}
    serve = f"cd /tmp; echo hello > index.html; python3 -m http.server {inside} > /dev/null 2>&1 &"
    await client.execute_command(box, serve)
    async with httpx.AsyncClient() as browser:
        deadline = time.monotonic() + 20
        while (answer := await browser.get(exposed.url + "/index.html")).status_code != 200:
            assert time.monotonic() < deadline, answer.text
    listed = await client.list_exposed_ports(box)
    seen: dict[str, Any] = {}
    if takes(client.expose, "protocol") and "SANDLOT_SCRIPT_TCP" in os.environ:
        plain_port = await client.expose(box, inside, name="plain", protocol="TCP")
        host, _, port = plain_port.external_endpoint.rpartition(":")
        async with httpx.AsyncClient() as browser:
            answer_there = await browser.get(f"http://{host}:{port}/index.html")
        await client.unexpose(box, plain_port.exposure_id)
        seen["tcp"] = answer_there.text
    await client.unexpose(box, exposed.exposure_id)
    after = await client.list_exposed_ports(box)
    return {
        **seen,
        "text": answer.text,
        "listed": [[each.port == inside, each.name] for each in listed.exposures],
        "after": after.exposures,
    }


async def many(client: Any, box: str) -> dict[str, Any]:
    """Five sandboxes: found by label, waited for, deleted at once."""
    made = [await client.create(request(f"many-{number}", labels=["many"])) for number in range(4)]
    ids = [each.id for each in made]
    waited = await client.bulk_wait_for_creation(ids)
    names, pages = [], 0
    while True:
        pages += 1
        page = await client.list(labels=[RUN, "many"], page=pages, per_page=3)
        names += [each.name for each in page.sandboxes]
        if not page.has_next:
            break
    seen: dict[str, Any] = {
        "waited": sorted(set(waited.values())),
        "names": names,
        "pages": pages,
        "total": page.total,
        "other": (await client.list(labels=[RUN, "nobody"])).total,
    }
    if hasattr(client, "get_sandbox_statuses"):
        told = await client.get_sandbox_statuses([*ids, "unknown"])
        seen["statuses"] = [
            sorted({each.status.value for each in told.statuses}),
            [[e.sandbox_id, e.code] for e in told.errors],
        ]
    first = await client.bulk_delete(sandbox_ids=[ids[0], "unknown"])
    seen["by id"] = [first.succeeded == [ids[0]], first.failed]
    second = await client.bulk_delete(labels=[RUN, "many"])
    seen["by label"] = [sorted(second.succeeded) == sorted(ids[1:]), second.failed]
    left = await client.list(labels=[RUN], exclude_terminated=True)
    seen["left"] = [each.id for each in left.sandboxes] == [box]
    return seen


async def ended(client: Any, box: str) -> dict[str, Any]:
    await client.delete(box)
    seen: dict[str, Any] = {"exec": await error_of(client.execute_command(box, "true"))}
    seen["wait"] = (await error_of(client.wait_for_creation(box)))[0]
    seen["status"] = (await client.get(box)).status
    await client.delete(box)  # a second time
    seen["unknown"] = (await error_of(client.delete("unknown")))[-1]
    seen["logs"] = await client.get_logs(box)
    return seen


async def templates() -> dict[str, Any] | None:
    if not hasattr(sdk, "AsyncTemplateClient"):
        return None
    async with sdk.AsyncTemplateClient() as client:
        checked = await client.check_docker_image(IMAGE)
        bad = await client.check_docker_image("no such:image")
        return {
            "credentials": await client.list_registry_credentials(),
            "image": checked.accessible,
            "bad": bad.accessible,
        }


async def typed(client: Any) -> dict[str, Any]:
    """Requests that are refused."""
    async with sdk.AsyncSandboxClient(api_key="wrong") as stranger:
        key = await error_of(stranger.list())
    return {
        "key": key[:-1],
        "image": await error_of(
            client.create(sdk.CreateSandboxRequest(name="x", docker_image="/no/such/directory", **MODE))
        ),
        "get": (await error_of(client.get("unknown")))[-1],
    }


def synchronous() -> dict[str, Any]:
    client = sdk.SandboxClient(sdk.APIClient())
    box = client.create(request("sync")).id
    client.wait_for_creation(box)
    seen: dict[str, Any] = {"exec": plain(client.execute_command(box, "cat; echo $FROM_CREATE", timeout=20))}
    client.upload_bytes(box, "/tmp/s", b"sync", "s")
    seen["cat"] = plain(client.execute_command(box, "cat /tmp/s"))
    client.delete(box)
    try:
        client.execute_command(box, "true")
    except Exception as error:
        seen["gone"] = type(error).__name__
    return seen


async def lifetime(client: Any) -> dict[str, Any]:
    """A sandbox whose time is over. Made by hand: the clients know minutes only."""
    import httpx

    headers = {"Authorization": f"Bearer {os.environ['PRIME_API_KEY']}"}
    body = {"name": "short", "docker_image": IMAGE, "memory_gb": 1, "timeout_seconds": 0.5}
    async with httpx.AsyncClient(base_url=os.environ["PRIME_API_BASE_URL"], headers=headers) as http:
        box = (await http.post("/api/v1/sandbox", json=body, timeout=60)).json()["id"]
    status, deadline = "RUNNING", time.monotonic() + 60
    while status == "RUNNING" and time.monotonic() < deadline:
        status = (await client.get(box)).status
    return {
        "status": status,
        "exec": (await error_of(client.execute_command(box, "true")))[0],
        "wait": (await error_of(client.wait_for_creation(box)))[0],
    }


async def main() -> dict[str, Any]:
    seen: dict[str, Any] = {"version": sdk.__version__}
    async with sdk.AsyncSandboxClient() as client:
        sandbox = await client.create(request("scenario"))
        await client.wait_for_creation(sandbox.id)
        again = await client.get(sandbox.id)
        seen["sandbox"] = [sandbox.status, again.status, again.name, RUN in again.labels]
        seen["vm"] = getattr(again, "vm", None)
        for step in (commands, timeouts, files, reading, jobs, live, network, ports, many, ended):
            seen[step.__name__] = await step(client, sandbox.id)
        seen["typed"] = await typed(client)
        seen["lifetime"] = await lifetime(client)
    seen["templates"] = await templates()
    seen["synchronous"] = await asyncio.to_thread(synchronous)
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main()), default=str))
