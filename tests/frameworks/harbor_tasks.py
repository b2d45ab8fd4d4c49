"""Writes harbor task folders for the tests: each has a solution that a sandbox must run in a certain way to earn its reward."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

PORT = 9
# Sends one packet to an address of documentation: only an egress policy makes that fail with EPERM.
SENDS = f"""
import errno, socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    try:
        made.sendto(b"x", (sys.argv[1], {PORT}))
    except OSError as error:
        print("closed" if error.errno == errno.EPERM else "open")
    else:
        print("open")
"""
# Connects, where a policy drops packets silently, and a server is at each of the addresses.
CONNECTS = f"""
import socket, sys
try:
    socket.create_connection((sys.argv[1], {PORT}), 5).close()
except TimeoutError:
    print("closed")
else:
    print("open")
"""
# On the cluster this machine has these: no other test may name them as addresses that nobody has.
ALLOWED, ALSO_ALLOWED, OTHER = "192.0.2.207", "198.51.100.209", "192.0.2.201"
ODD_VALUE = "a$b$$c`d`'e $HOME ${NOT"
BIG = 30_000_000  # bytes of a log


@dataclass(frozen=True, kw_only=True)
class Task:
    """A folder as harbor reads it. `check` is a shell condition of the verifier; the reward is 1 where it holds."""

    name: str
    solution: str
    check: str
    environment: str = ""  # lines of [environment]
    agent: str = ""
    verifier: str = ""
    more: str = ""  # further tables of task.toml
    files: dict[str, str] = field(default_factory=dict)  # of environment/
    built: bool = False  # by its Dockerfile, in which @IMAGE@ is the server's image
    reward: float | None = (
        1.0  # of the oracle; None where the trial has no sandbox, as the server has no GPUs
    )
    exception: str | None = None  # the oracle's, where harbor tells of one

    def write(self, folder: Path, *, image: str) -> None:
        home = folder / self.name
        line = "" if self.built else f'docker_image = "{image}"'
        texts = {
            "task.toml": f'schema_version = "1.4"\n[verifier]\ntimeout_sec = 60\n{self.verifier}\n'
            f"[agent]\n{self.agent or 'timeout_sec = 60'}\n"
            f"[environment]\n{line}\ncpus = 1\nmemory_mb = 256\nstorage_mb = 512\n{self.environment}\n{self.more}\n",
            "instruction.md": f"Do what {self.name} asks.\n",
            "solution/solve.sh": f"#!/bin/bash\nset -e\n{self.solution}\n",
            "tests/test.sh": f"#!/bin/bash\nif {self.check}\nthen echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
            **{f"environment/{path}": text.replace("@IMAGE@", image) for path, text in self.files.items()},
        }
        for path, text in texts.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(text)
        (home / "environment").mkdir(exist_ok=True)
        for script in (home / "solution/solve.sh", home / "tests/test.sh"):
            script.chmod(0o755)


def ten_tasks(*, asks: str | None) -> list[Task]:
    """Tasks that any environment of harbor runs.

    `asks`: the program that finds what an egress policy forbids, SENDS or CONNECTS; None where no policy can be held.
    """
    tasks = [
        Task(
            name="plain",
            files={"data.txt": "seven\n", "deep/er/more.txt": "eight\n"},
            environment='workdir = "/srv"',
            solution="pwd > where; cat data.txt deep/er/more.txt > answer.txt",
            check="[ \"$(tr '\\n' , < answer.txt)$(cat where)\" = seven,eight,/srv ]",
        ),
        Task(
            name="account",
            agent='timeout_sec = 60\nuser = "nobody"',
            solution="echo $(id -un) $HOME > /tmp/who; touch /logs/agent/mine",
            check='[ "$(cat /tmp/who) $(id -un)" = "nobody $(getent passwd nobody | cut -d: -f6) root" ]',
        ),
        Task(
            name="number",
            agent="timeout_sec = 60\nuser = 4321",
            verifier='user = "nobody"',
            solution="id -u > /tmp/who",
            check='[ "$(cat /tmp/who) $(id -un)" = "4321 nobody" ]',
        ),
        Task(
            name="variables",
            more=f'[environment.env]\nODD = """{ODD_VALUE}"""\n[verifier.env]\nONLY_HERE = "yes"\n',
            solution='[ -z "$ONLY_HERE" ]; printf %s "$ODD" > /tmp/odd',
            check=f'[ "$(cat /tmp/odd)" = {_quoted(ODD_VALUE)} ] && [ "$ONLY_HERE" = yes ]',
        ),
        Task(name="fails", solution="echo half > /tmp/half; exit 3", check="[ -e /tmp/whole ]", reward=0.0),
        Task(
            name="logs",
            solution=f"head -c {BIG} /dev/urandom > /logs/agent/big.log",
            check='cp -r /logs/agent/big.log /logs/verifier/ && [ "$(stat -c %s /logs/agent/big.log)" = 30000000 ]',
        ),
        Task(
            name="background",
            solution="sleep 1000 & echo $! > /tmp/pid; nohup sh -c 'sleep 0.2; touch /tmp/done' & sleep 0.4",
            check="timeout 50 sh -c 'until [ -e /tmp/done ]; do sleep 0.05; done' && kill -0 $(cat /tmp/pid)",
        ),
        Task(
            name="health",
            more="[environment.healthcheck]\n"
            'command = "test -e /tmp/asked || { touch /tmp/asked; exit 1; }"\ninterval_sec = 0.1\n',
            solution="ls /tmp/asked > /tmp/found",
            check="[ -s /tmp/found ]",
        ),
    ]
    if asks is not None:
        tasks += [
            Task(
                name="allowlist",
                environment=f'network_mode = "allowlist"\nallowed_hosts = ["{ALLOWED}", "198.51.100.0/24", "*.example.org"]',
                solution=_ask_all(asks, ALLOWED, OTHER, ALSO_ALLOWED),
                check='[ "$(tr \'\\n\' " " < /tmp/net)" = "open closed open " ]',
            ),
            Task(
                name="phases",
                agent='timeout_sec = 60\nnetwork_mode = "no-network"',
                solution=_ask_all(asks, ALLOWED, OTHER),
                check=f'[ "$(tr \'\\n\' " " < /tmp/net)$({_ask(asks, OTHER)})" = "closed closed open" ]',
            ),
        ]
    return tasks


def own_tasks(*, egress: bool) -> list[Task]:
    """What only Sandlot's own environment does, or tells of as harbor means it."""
    return [
        Task(
            name="late",
            agent="timeout_sec = 1",
            solution="touch /tmp/begun; sleep 100; touch /tmp/over",
            check="[ -e /tmp/over ]",
            reward=0.0,
            exception="AgentTimeoutError",
        ),
        Task(
            name="patient",
            environment='workdir = "/srv/not/yet"',
            more="[environment.healthcheck]\n"
            'command = "test -e asked || { touch asked; sleep 30; }"\ninterval_sec = 0.1\ntimeout_sec = 1\n',
            solution="ls asked > found",
            check="[ -s /srv/not/yet/found ]",
        ),
        Task(
            name="separate",
            verifier='environment_mode = "separate"',
            more='[[artifacts]]\nsource = "/srv/answer.txt"\n',
            solution="echo seven > /srv/answer.txt; touch /srv/not-an-artifact",
            check='[ "$(cat /srv/answer.txt)" = seven ] && [ ! -e /srv/not-an-artifact ]',
        ),
        Task(
            name="dockerfile",
            built=True,
            files={
                "Dockerfile": "FROM @IMAGE@\nWORKDIR /srv/made\nENV MADE='a b'\nCOPY data.txt sub/ ./\n"
                "RUN mkdir kept && date +%N > kept/when\n",
                "data.txt": "seven\n",
                "sub/more.txt": "eight\n",
            },
            solution="echo $(pwd) $MADE $(cat data.txt more.txt) > /logs/agent/answer; cp kept/when /logs/agent/",
            check='[ "$(cat /logs/agent/answer)" = "/srv/made a b seven eight" ]',
        ),
        Task(
            name="stages",
            built=True,
            files={
                "Dockerfile": "ARG BASE=@IMAGE@\nFROM $BASE AS builder\nRUN mkdir -p /out && echo built > /out/file\n"
                "FROM $BASE\nCOPY --from=builder --chown=nobody /out /opt/out\nUSER nobody\n",
            },
            environment='network_mode = "no-network"' if egress else "",
            solution="[ ! -e /out ]; echo $(id -un) >> /opt/out/file",
            check="[ \"$(tr '\\n' , < /opt/out/file)\" = built,nobody, ]",
        ),
        Task(
            name="gpu",
            environment="gpus = 1\nbuild_timeout_sec = 20",  # a cluster may add a node with one
            solution="true",
            check="true",
            reward=None,
        ),
    ]


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


def _ask(program: str, host: str) -> str:
    return f"python3 -c {_quoted(program)} {host}"


def _ask_all(program: str, *hosts: str) -> str:
    return "\n".join(f"{_ask(program, host)} >> /tmp/net" for host in hosts)
