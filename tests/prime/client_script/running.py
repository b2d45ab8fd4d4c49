"""Steps that run something: commands, time limits, background jobs, processes with live streams."""

from __future__ import annotations

import time
from typing import Any

from shared import answer_of, error_of, plain, takes

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
    error = await error_of(client.execute_command(box, "setsid sleep 333 & sleep 333", timeout=1))
    took = time.monotonic() - began
    left = "?"
    while left and time.monotonic() - began < 90:  # the client does not wait for the server's end of it
        left = (await client.execute_command(box, "pgrep -xf 'sleep 333'; true")).stdout
    return {"error": error[0], "took": took, "left": left}


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
