"""The commands of docs/keys.md that replace the master key, run on a test's release."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.cluster.shell import run
from tests.kubernetes.stack import CHART, Stack, program

_PAGE = CHART.parents[1] / "docs" / "keys.md"
_SIGNS = re.compile(
    r"^\[pod/([^/\]]+)/.*?([0-9a-f]{16}) signs, others that are valid: (none|[0-9a-f]{16}(?:, [0-9a-f]{16})*)"
)


class KeyCommands:
    """`directory`: where the commands keep the new key."""

    def __init__(self, stack: Stack, directory: Path) -> None:
        self._stack, self._directory = stack, directory
        section = _PAGE.read_text().split("### Replace the master key\n", 1)[1]
        blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
        self._unlabelled, self._add, self._log, self._exchange, self._pods, self._remove = blocks

    def add(self) -> None:
        self._run(self._add)

    def exchange(self) -> None:
        self._run(self._exchange)

    def remove(self) -> None:
        self._run(self._remove)

    def unlabelled(self) -> str:
        """Pods whose key has no label."""
        return self._run(self._unlabelled)

    def known(self) -> dict[str, tuple[str, set[str]]]:
        """By pod of gateway and controller: the id of the key that signs, and those of the others."""
        found: dict[str, tuple[str, set[str]]] = {}
        for line in self._run(self._log).splitlines():
            if match := _SIGNS.match(line):
                others = set() if match[3] == "none" else set(match[3].split(", "))
                found[match[1]] = (match[2], others)
        return found

    def of_pods(self) -> dict[str, str]:
        """The id of each sandbox pod's key, by pod."""
        rows = [line.split() for line in self._run(self._pods).splitlines()[1:]]
        return {row[0]: row[-1] for row in rows}

    def _run(self, command: str) -> str:
        """Run it as it is on the page, with this release's names."""
        stack = self._stack
        words = [program("kubectl"), "--kubeconfig", stack.kubeconfig]
        words += ["--context", stack.context] if stack.context else []
        for name, ours in (
            ("sandlot-sandboxes", stack.sandboxes),
            ("sandlot-master", f"{stack.release}-master"),
            ("-n sandlot ", f"-n {stack.namespace} "),
        ):
            command = command.replace(name, ours)
        script = f'set -euo pipefail\nkubectl() {{ {shlex.join(words)} "$@"; }}\n{command}'
        return run(["bash", "-c", script], cwd=self._directory, timeout=120)
