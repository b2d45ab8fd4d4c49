"""A command in flight when its gateway is killed: what the user gets, and how often it ran. Run by the client's Python.

Says `ready` when the command runs, and prints one JSON document at its end.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import prime_sandboxes as sdk  # type: ignore[import-not-found]


def main() -> dict[str, object]:
    client = sdk.SandboxClient(sdk.APIClient())
    box = client.create(sdk.CreateSandboxRequest(name="resend", docker_image="host", memory_gb=1)).id
    client.wait_for_creation(box)
    answer: list[object] = []

    def command() -> None:
        script = "echo begin >> /tmp/runs; until test -e /tmp/go; do sleep 0.05; done; echo end >> /tmp/runs; echo done"
        try:
            answer.append(client.execute_command(box, script).stdout)
        except Exception as error:
            answer.append(type(error).__name__)

    thread = threading.Thread(target=command)
    thread.start()
    while client.execute_command(box, "test -e /tmp/runs").exit_code:
        pass
    print("ready", flush=True)
    sys.stdin.readline()  # the gateway was killed, and another serves
    # Until it runs a second time, or the client has given up.
    while thread.is_alive() and client.execute_command(box, "grep -c begin /tmp/runs").stdout != "2\n":
        time.sleep(0.05)
    client.execute_command(box, "touch /tmp/go")
    thread.join(60)
    runs = client.execute_command(box, "cat /tmp/runs").stdout.split()
    left = client.execute_command(box, "pgrep -f '[u]ntil test'; true").stdout
    client.delete(box)
    return {"answer": answer, "runs": runs, "left": left}


if __name__ == "__main__":
    print(json.dumps(main()))
