"""Spec of an op: the validated bodies of `exec` and `ops`, and their fingerprint."""

from __future__ import annotations

from _blake2 import blake2b

from ..core.errors import bad_input
from . import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-")
LINE = 256  # characters of a command in lists
MAX_OUTPUT = 1 << 30  # bytes per op: kept output is on the node's disk
# Seconds by which a runner delays its report of the start: most ops have ended by then, which saves a message. The
# output of an `exec` is read only at its end, and on busy cores its command takes longer.
QUIET, BUFFERED = 0.01, 0.2


class Spec:
    """One command. `stdin` is None (none), True (a pipe that the client writes to) or the bytes themselves."""

    WORDS = (
        "command", "cwd", "env", "memory", "output_limit", "pids", "pty", "shell", "stdin", "timeout", "user",
    )  # fmt: skip
    __slots__ = (*WORDS, "quiet")

    def __init__(self, *, command: str | list[str]) -> None:
        self.command = command
        self.shell: str | None = None  # None: bash, or sh in an image without it
        self.cwd: str | None = None
        self.env: dict[str, str] = {}
        self.user: str | int | None = None
        self.timeout: float | None = None
        self.stdin: bool | bytes | None = None
        self.pty: dict[str, int] | None = None
        self.output_limit: int | None = None
        self.memory: int | None = None
        self.pids: int | None = None
        self.quiet = 0.0  # seconds by which the report of the start is delayed, at most until the end

    def fingerprint(self) -> bytes:
        """Return a fingerprint, equal for equal specs."""
        values = [getattr(self, name) for name in self.WORDS if name not in ("env", "pty")]
        # repr takes a third of the time of JSON
        text = repr((values, sorted(self.env.items()), sorted((self.pty or {}).items())))
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def line(self) -> str:
        """Return the command's begin, which stays in lists when the rest of an ended op's spec is dropped."""
        command = self.command if isinstance(self.command, str) else " ".join(self.command[:LINE])
        return command[:LINE]

    def document(self) -> dict[str, Any]:
        """Return the fields that `?spec=1` shows."""
        return {
            name: getattr(self, name) for name in ("command", "shell", "cwd", "env", "user", "pty", "memory")
        }


def op_id(value: object, name: str) -> str:
    """Validate a client's op id. Raises a 400."""
    if not isinstance(value, str) or not 0 < len(value) <= 128 or not ID_CHARACTERS.issuperset(value):
        raise bad_input(f"{name} must be 1 to 128 characters of A-Z a-z 0-9 . _ : -", field=name)
    return value


def from_exec(body: dict[str, Any]) -> Spec:
    """Parse an `exec` body in Prime's form, plus an argv or a shell; unknown fields are ignored."""
    spec = Spec(command=fields.command(body, "command", required=True) or "")
    spec.quiet = BUFFERED
    spec.shell = _shell(body)
    if "working_dir" in body:
        spec.cwd = fields.text(body, "working_dir", limit=4096) or None
    spec.env = fields.environment(body, "env")
    spec.user = fields.user(body, "user")
    spec.timeout = fields.seconds(body, "timeout")
    stdin = fields_stdin(body)
    if stdin is not None:
        spec.stdin = stdin
    return spec


def fields_stdin(body: dict[str, Any]) -> bytes | None:
    """Return `stdin` as bytes. Raises a 400 for a lone surrogate."""
    stdin = body.get("stdin")
    if stdin is None:
        return None
    if not isinstance(stdin, str):
        raise bad_input("stdin must be a string", field="stdin")
    try:
        return stdin.encode()
    except UnicodeEncodeError as error:
        raise bad_input("stdin contains a lone surrogate", field="stdin") from error


def from_op(body: dict[str, Any]) -> Spec:
    """Parse the body of `POST /v1/ops` (without `id` and `detach`)."""
    command = fields.command(body, "command", required=True)
    spec = Spec(command=command or "")
    spec.shell = _shell(body)
    spec.cwd = fields.text(body, "cwd", limit=4096) or None
    spec.env = fields.environment(body, "env")
    spec.user = fields.user(body, "user")
    spec.timeout = fields.seconds(body, "timeout")
    if fields.flag(body, "stdin", default=False):
        spec.stdin = True
    spec.output_limit = fields.integer(body, "output_limit", minimum=0, maximum=MAX_OUTPUT)
    spec.memory = fields.integer(body, "memory", minimum=1 << 20)
    limits = fields.mapping(body, "limits")
    spec.pids = _nested(limits, "pids")
    spec.quiet = QUIET if fields.flag(body, "quiet", default=False) else 0.0
    if body.get("pty") is not None:
        spec.pty = terminal_size(fields.mapping(body, "pty"), prefix="pty.")
    return spec


def _shell(body: dict[str, Any]) -> str | None:
    shell = fields.text(body, "shell", limit=4096)
    if shell is not None and shell not in ("sh", "bash") and not shell.startswith("/"):
        raise bad_input("shell must be sh, bash or an absolute path", field="shell")
    return shell


def _nested(limits: dict[str, Any], name: str) -> int | None:
    return fields.integer({f"limits.{name}": limits.get(name)}, f"limits.{name}", minimum=1)


def terminal_size(body: dict[str, Any], *, prefix: str = "") -> dict[str, int]:
    """Parse `cols` and `rows`, which default to 80 by 24."""
    size: dict[str, int] = {}
    for name, default in (("cols", 80), ("rows", 24)):
        key = prefix + name
        size[name] = (
            fields.integer({key: body.get(name)}, key, minimum=1, maximum=65535, default=default) or default
        )
    return size
