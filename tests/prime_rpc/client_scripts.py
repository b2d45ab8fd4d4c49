"""What a user of prime-sandboxes would write. Run by the client's own Python: `client_scripts.py NAME [ARGUMENT]`.

Each function prints one JSON document at its end. Where the test has to act in the middle, a script says `say(…)`
and waits for a line on its standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from prime_sandboxes import (  # type: ignore[import-not-found]
    APIClient,
    APIError,
    AsyncSandboxClient,
    CommandTimeoutError,
    CreateSandboxRequest,
    SandboxClient,
    SandboxNotRunningError,
)

IMAGE = os.environ["SANDLOT_SCRIPT_IMAGE"]


def say(word: str) -> None:
    print(word, flush=True)


async def told() -> None:
    """Wait for the test."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def new_sandbox(client: AsyncSandboxClient) -> str:
    request = CreateSandboxRequest(name="client", docker_image=IMAGE, timeout_minutes=10)
    sandbox = await client.create(request)
    await client.wait_for_creation(sandbox.id)
    return sandbox.id


def plain(answer: Any) -> list[Any]:
    return [answer.stdout, answer.stderr, answer.exit_code]


async def error_of(work: Any) -> list[str]:
    try:
        return ["no error", str(await work)]
    except Exception as error:
        return [type(error).__name__, str(error)]


async def commands() -> dict[str, Any]:
    """Everything a single command can be asked."""
    async with AsyncSandboxClient() as client:
        box = await new_sandbox(client)

        async def run(command: str, **options: Any) -> list[Any]:
            return plain(await client.execute_command(box, command, **options))

        seen: dict[str, Any] = {
            "env": await run("echo $A; echo err >&2; pwd; exit 3", working_dir="/tmp", env={"A": "b c"}),
            "bash": await run("[[ abc == a* ]] && echo ${BASH_VERSION:+bash}"),
            "user": await run("id -u", user="root"),
            "missing": await run("no-such-program"),
            "signal": await run("kill -9 $$"),
            "bytes": await run("printf 'a\\xffb'"),
            "unicode": await run("printf '%s' \"$0\" 'ü€😀'"),
            "orphan": await run("sleep 4242 & echo started"),
            "cwd": await error_of(client.execute_command(box, "true", working_dir="/no/such/place")),
        }
        long = await client.execute_command(box, "printf %s '" + "y" * 400_000 + "' | wc -c")
        seen["long"] = plain(long)
        large = await client.execute_command(box, "head -c 5000000 /dev/zero | tr '\\0' z")
        seen["large"] = [len(large.stdout), large.stdout.strip("z")]
        await client.delete(box)
        gone = await error_of(client.execute_command(box, "true"))
        seen["gone"] = gone
        assert issubclass(SandboxNotRunningError, RuntimeError)
        return seen


async def left_asleep(client: AsyncSandboxClient, box: str) -> str:
    """The processes named `sleep` that do not end."""
    deadline = time.monotonic() + 90
    left = "?"
    while left and time.monotonic() < deadline:
        left = (await client.execute_command(box, "pgrep -x sleep; true")).stdout
    return left


async def timeouts() -> dict[str, Any]:
    """A command that takes too long, one whose caller loses interest, and what is left of both."""
    async with AsyncSandboxClient() as client:
        box = await new_sandbox(client)
        began = time.monotonic()
        try:
            await client.execute_command(box, "setsid sleep 4343 & sleep 4343", timeout=1)
            kind = "no error"
        except CommandTimeoutError as error:
            kind = f"timeout of {box in str(error)}"
        took = time.monotonic() - began
        task = asyncio.create_task(client.execute_command(box, "touch /tmp/began; sleep 4343"))
        while (await client.execute_command(box, "ls /tmp/began")).exit_code:
            pass
        task.cancel()
        cancelled = type((await asyncio.gather(task, return_exceptions=True))[0]).__name__
        left = await left_asleep(client, box)
        await client.delete(box)
        return {"kind": kind, "took": took, "cancelled": cancelled, "left": left}


async def live() -> dict[str, Any]:
    """Processes that are talked to while they run."""
    async with AsyncSandboxClient() as client:
        box = await new_sandbox(client)
        seen: dict[str, Any] = {}
        shell = "while read x; do echo out $x; echo err $x >&2; [ $x = end ] && exit 5; done"
        process = await client.open_process(box, shell, env={"E": "v"}, working_dir="/tmp")
        lines = []
        for word in (b"one\n", b"two\n", b"end\n"):
            await process.write_stdin(word)
            lines.append((await anext(process.stdout)).decode())
        seen["lines"], seen["code"] = lines, await process.wait()
        seen["stderr"] = b"".join([data async for data in process.stderr]).decode()
        seen["pid"] = process.pid > 0
        await process.aclose()

        process = await client.open_process(
            box, "trap 'exit 6' TERM; echo ready; while :; do sleep 0.05; done"
        )
        await anext(process.stdout)
        await process.terminate()
        seen["trapped"] = await process.wait()
        await process.aclose()

        for name in ("terminate", "kill"):
            process = await client.open_process(box, "echo ready; exec sleep 4444")
            await anext(process.stdout)
            await getattr(process, name)()
            seen[name] = await process.wait()
            await process.aclose()

        process = await client.open_process(box, "echo ready; exec sleep 4444")
        await anext(process.stdout)
        await process.aclose()  # nobody said terminate
        seen["left"] = await left_asleep(client, box)

        megabyte = os.urandom(500_000).hex().encode()
        process = await client.open_process(box, "sha256sum <(head -c 1000000)")
        await process.write_stdin(megabyte)
        import hashlib

        said = (await anext(process.stdout)).decode().split()[0]
        seen["megabyte"] = said == hashlib.sha256(megabyte).hexdigest()
        await process.wait()
        await process.aclose()
        await client.delete(box)
        return seen


async def written_again(process: Any) -> None:
    """Writes `after`. The client may still take the transport that it closes when it notices that the gateway went."""
    for _ in range(100):
        try:
            await process.write_stdin(b"after\n")
        except APIError as error:
            if "already closed transport" not in str(error):
                raise
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError("the client never takes another transport")


async def reattached() -> dict[str, Any]:
    """A live process, while the test kills the gateway and starts it again."""
    async with AsyncSandboxClient() as client:
        box = await new_sandbox(client)
        process = await client.open_process(box, "echo $$; while read x; do echo got $x; done")
        first = (await anext(process.stdout)).decode().strip()
        pid = process.pid
        say("kill")
        await told()
        await written_again(process)
        answer = (await asyncio.wait_for(anext(process.stdout), 60)).decode()
        same = (await client.execute_command(box, f"test -d /proc/{first} && echo yes")).stdout
        await process.kill()
        code = await process.wait()
        await process.aclose()
        await client.delete(box)
        return {"answer": answer, "same": same, "pid": pid == process.pid, "code": code}


async def abandoned() -> dict[str, Any]:
    """A client that is gone at once, in the middle of a command and with a live process."""
    client = AsyncSandboxClient()
    box = await new_sandbox(client)
    await client.open_process(box, "exec sleep 4545")
    running = asyncio.create_task(client.execute_command(box, "touch /tmp/began; exec sleep 4646"))
    while (await client.execute_command(box, "ls /tmp/began")).exit_code:
        assert not running.done()
    print(json.dumps({"sandbox": box}), flush=True)
    os._exit(0)


async def look() -> dict[str, Any]:
    """What the client before this one left: the process lives, the command does not."""
    async with AsyncSandboxClient() as client:
        box = sys.argv[2]
        deadline = time.monotonic() + 90
        while True:
            found = (await client.execute_command(box, "pgrep -af '[s]leep 4'; true")).stdout
            if "4646" not in found or time.monotonic() > deadline:
                break
        await client.delete(box)
        return {"found": found.split("\n")[0].partition(" ")[2]}


async def many() -> dict[str, Any]:
    """200 commands and 30 live processes at once."""
    async with AsyncSandboxClient() as client:
        box = await new_sandbox(client)

        async def one(number: int) -> str:
            return (await client.execute_command(box, f"echo {number}", timeout=100)).stdout.strip()

        async def two(number: int) -> str:
            process = await client.open_process(box, "read x; echo $x")
            await process.write_stdin(b"%d\n" % number)
            said = (await anext(process.stdout)).decode().strip()
            await process.wait()
            await process.aclose()
            return said

        commands = await asyncio.gather(*map(one, range(200)))
        processes = await asyncio.gather(*map(two, range(30)))
        await client.delete(box)
        return {
            "commands": commands == [str(number) for number in range(200)],
            "processes": processes == [str(number) for number in range(30)],
        }


async def sync() -> dict[str, Any]:
    """The synchronous client, and a deletion in the middle of a command."""

    def work() -> dict[str, Any]:
        client = SandboxClient(APIClient())
        sandbox = client.create(CreateSandboxRequest(name="sync", docker_image=IMAGE, timeout_minutes=10))
        client.wait_for_creation(sandbox.id)
        answer = plain(client.execute_command(sandbox.id, "echo sync"))
        import threading

        errors: list[str] = []

        def long() -> None:
            try:
                client.execute_command(sandbox.id, "touch /tmp/began; sleep 4747")
            except (APIError, RuntimeError) as error:
                errors.append(type(error).__name__)

        thread = threading.Thread(target=long)
        thread.start()
        while client.execute_command(sandbox.id, "ls /tmp/began").exit_code:
            pass
        client.delete(sandbox.id)
        thread.join(60)
        return {"answer": answer, "errors": errors}

    return await asyncio.to_thread(work)


async def together() -> dict[str, Any]:
    """Run scripts that need nobody, one after the other; their documents by name."""
    return {name: await SCRIPTS[name]() for name in sys.argv[2:]}


EACH = (commands, timeouts, live, reattached, abandoned, look, many, sync, together)
SCRIPTS = {script.__name__: script for script in EACH}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(SCRIPTS[sys.argv[1]]())))
