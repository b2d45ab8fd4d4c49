"""The settings of a stage while its instructions are replayed: variables, working directory, user, command."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from sandlot._dockerfile.source import Instruction
from sandlot._dockerfile.stages import Dockerfile, arg_pairs
from sandlot._dockerfile.words import BadWord, expand, expand_only, json_words, pairs, split
from sandlot.builds import Built

# Docker passes these build arguments to RUN without an ARG, and keeps those out of the cache.
PREDEFINED = frozenset(
    name
    for word in ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
    for name in (word, word.lower())
)
# Of a command in a sandbox, not of its image.
_OF_COMMANDS = frozenset(["HOME", "HOSTNAME", "LOGNAME", "OLDPWD", "PWD", "SHLVL", "TERM", "USER", "_"])
_WITH_C = re.compile(r"(?:ba|da|a|z|k)?sh\Z|python[0-9.]*\Z")
IGNORED = frozenset(["HEALTHCHECK", "MAINTAINER", "ONBUILD"])


class State:
    """What the instructions so far have set. `build_args` are the caller's."""

    def __init__(self, dockerfile: Dockerfile, build_args: Mapping[str, str]) -> None:
        self._dockerfile = dockerfile
        self._build_args = build_args
        self._args: dict[str, str] = {}
        self._own_cmd = False
        self.base_env: dict[str, str] = {}
        self.base_workdir = "/"
        self.base_user = "0"
        self.env: dict[str, str] = {}
        self.workdir: str | None = None
        self.user: str | None = None
        self.shell: list[str] = ["/bin/sh", "-c"]
        self.entrypoint: list[str] | None = None
        self.cmd: list[str] | None = None
        self.exposed: list[str] = []
        self.volumes: list[str] = []
        self.labels: dict[str, str] = {}
        self.stop_signal: str | None = None

    def continued(self) -> State:
        """Return the state with which a stage from this one begins, its ARGs included."""
        new = State(self._dockerfile, self._build_args)
        new._args = dict(self._args)
        new.base_env, new.base_workdir, new.base_user = self.base_env, self.base_workdir, self.base_user
        new.env = dict(self.env)
        new.workdir, new.user, new.stop_signal = self.workdir, self.user, self.stop_signal
        new.entrypoint, new.cmd = self.entrypoint, self.cmd
        new.exposed, new.volumes, new.labels = [*self.exposed], [*self.volumes], dict(self.labels)
        new.shell = self.shell
        return new

    def of_base(self, environment: Mapping[str, str], workdir: str, user: str) -> None:
        """Take over the variables, the working directory and the user (`UID:GID`) of the base image."""
        self.base_workdir = workdir
        self.base_user = user if re.fullmatch("[0-9]+:[0-9]+", user) else "0"
        self.base_env = {
            name: value
            for name, value in environment.items()
            if name not in _OF_COMMANDS and not name.startswith("SANDLOT_")
        }

    def lookup(self, name: str) -> str | None:
        for where in (self.env, self._args, self.base_env):
            if name in where:
                return where[name]
        return None

    def expand(self, text: str) -> str:
        """Expand variables and remove quotes. Raises BadWord."""
        return expand(text, self.lookup, escape=self._dockerfile.escape)

    def expand_text(self, text: str) -> str:
        """Expand variables in a heredoc. Raises BadWord."""
        return expand_only(text, self.lookup, escape=self._dockerfile.escape)

    def words(self, rest: str) -> list[str]:
        """Return the expanded words of COPY, VOLUME and others, of their JSON form, too. Raises BadWord."""
        listed = json_words(rest)
        if listed is not None:
            return [expand_only(word, self.lookup, escape=self._dockerfile.escape) for word in listed]
        return [self.expand(word) for word in split(rest, escape=self._dockerfile.escape)]

    def written(self, rest: str) -> list[str]:
        """Return the same words as they are written, for errors: a value of a build argument may be secret."""
        listed = json_words(rest)
        return split(rest, escape=self._dockerfile.escape) if listed is None else listed

    def run_env(self) -> dict[str, str]:
        """Return the variables that a RUN gets in addition to the base image's."""
        predefined = {name: value for name, value in self._build_args.items() if name in PREDEFINED}
        return {**predefined, **self._args, **self.env}

    def run_argv(self, instruction: Instruction) -> list[str]:
        """Return the command of a RUN. Raises BadWord."""
        rest, heredocs = instruction.rest, instruction.heredocs
        listed = json_words(rest)
        if listed is not None:
            if not listed:
                raise BadWord("its list is empty: name a command")
            return listed
        if len(heredocs) == 1 and len(rest.split()) == 1:  # the heredoc is the script
            script = heredocs[0].content()
            if not script.startswith("#!"):
                return [*self.shell, script]
            # No file: the name of the script would stay in the checkpoint.
            interpreter = script.partition("\n")[0][2:].split()
            if not interpreter or not _WITH_C.match(interpreter[-1].rpartition("/")[2]):
                raise BadWord("its script needs a shell or Python after #!: name one, or COPY the script")
            return [*interpreter, "-c", script]
        body = "".join(f"{one.text}{one.name}\n" for one in heredocs)
        return [*self.shell, f"{rest}\n{body}" if heredocs else rest]

    def path(self, path: str) -> str:
        """Return an absolute path of the sandbox; relative ones begin at the working directory."""
        whole = posixpath.normpath(posixpath.join(self.here, path))
        return "/" + whole.lstrip("/")

    @property
    def here(self) -> str:
        return self.workdir or self.base_workdir

    def apply(self, instruction: Instruction) -> bool:
        """Apply an instruction that changes settings only; False for any other. Raises BadWord."""
        rest, escape = instruction.rest, self._dockerfile.escape
        match instruction.keyword:
            case "ENV":
                self.env.update({self.expand(n): self.expand(v) for n, v in pairs(rest, escape=escape)})
            case "LABEL":
                self.labels.update({self.expand(n): self.expand(v) for n, v in pairs(rest, escape=escape)})
            case "ARG":
                self._declare(rest)
            case "USER":
                self.user = self.expand(rest)
                if not self.user:
                    raise BadWord("it is empty: name a user")
            case "SHELL":
                self.shell = json_words(rest) or []
                if not self.shell:
                    raise BadWord('it must be a list such as ["/bin/bash", "-c"]: correct it')
            case "CMD":
                self.cmd, self._own_cmd = self._command(rest), True
            case "ENTRYPOINT":
                self.entrypoint = self._command(rest)
                if not self._own_cmd:  # the base's arguments are not for this program
                    self.cmd = None
            case "EXPOSE":
                self.exposed += [
                    one for one in map(_port, self.words(rest), self.written(rest)) if one not in self.exposed
                ]
            case "VOLUME":
                self.volumes += [one for one in self.words(rest) if one not in self.volumes]
            case "STOPSIGNAL":
                self.stop_signal = self.expand(rest)
            case _:
                return instruction.keyword in IGNORED
        return True

    def built(self, *, checkpoint_id: str, image: str, key: str) -> Built:
        return Built(
            checkpoint_id=checkpoint_id,
            image=image,
            key=key,
            env=dict(self.env),
            workdir=self.workdir,
            user=self.user,
            entrypoint=None if self.entrypoint is None else tuple(self.entrypoint),
            cmd=None if self.cmd is None else tuple(self.cmd),
            exposed_ports=tuple(self.exposed),
            volumes=tuple(self.volumes),
            labels=dict(self.labels),
            stop_signal=self.stop_signal,
        )

    def _command(self, rest: str) -> list[str]:
        listed = json_words(rest)
        return [*self.shell, rest] if listed is None else listed

    def _declare(self, rest: str) -> None:
        for name, default in arg_pairs(rest, escape=self._dockerfile.escape):
            value: str | None
            if name in self._build_args:
                value = self._build_args[name]
            elif default is not None:
                value = self.expand(default)
            else:
                value = self._dockerfile.args.get(name)
            if value is not None:
                self._args[name] = value


def _port(text: str, written: str) -> str:
    """Return a port as `8000/tcp`. Raises BadWord."""
    number, _, protocol = text.partition("/")
    first, _, last = number.partition("-")
    if not all(
        part.isascii() and part.isdigit() and 0 < int(part[:6]) < 65536 for part in (first, last or first)
    ):
        raise BadWord(f"{written[:40]!r} is no port: write a number such as 8000 or 8000/udp")
    if protocol.lower() not in ("", "tcp", "udp", "sctp"):
        raise BadWord(f"{written[:40]!r} is no port: its protocol must be tcp or udp")
    return f"{number}/{protocol.lower() or 'tcp'}"
