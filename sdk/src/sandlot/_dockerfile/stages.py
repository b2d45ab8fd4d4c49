"""Groups the instructions of a Dockerfile into stages, and says which of them a target needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandlot._dockerfile import mounts
from sandlot._dockerfile.source import Instruction, Source, read
from sandlot._dockerfile.words import BadWord, expand, pairs, split
from sandlot.errors import DockerfileError


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: `base` is an image, or another stage's `base_stage`; `name` is "" without AS."""

    index: int
    name: str
    base: str
    base_stage: int | None
    start: Instruction
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A Dockerfile with its stages; `args` are the values of the ARGs before the first FROM."""

    source: Source
    stages: tuple[Stage, ...]
    args: Mapping[str, str | None]

    @property
    def file(self) -> str:
        return self.source.file

    @property
    def escape(self) -> str:
        return self.source.escape

    def error(self, message: str, instruction: Instruction) -> DockerfileError:
        return DockerfileError(message, file=self.file, line=instruction.line, instruction=instruction.short)

    def stage_of(self, name: str, *, before: int) -> int | None:
        """Return the index of the stage with this name or number, of those before a stage."""
        for stage in reversed(self.stages[:before]):
            if stage.name and stage.name == name.lower():
                return stage.index
        # A longer number is no index, and Python refuses to convert very long ones.
        number = int(name) if name.isascii() and name.isdigit() and len(name) < 6 else before
        return number if number < before else None

    def find(self, target: str | None) -> Stage:
        """Return the stage to build, by default the last. Raises DockerfileError."""
        if target is None:
            return self.stages[-1]
        index = self.stage_of(target, before=len(self.stages))
        if index is None:
            names = ", ".join(stage.name for stage in self.stages if stage.name) or "none has a name"
            raise DockerfileError(
                f"no stage {target!r}: name one of its stages ({names})", file=self.file, line=1
            )
        return self.stages[index]

    def needed(self, target: Stage) -> list[Stage]:
        """Return the stages that a target needs, itself included, in the order of the file."""
        wanted, waiting = {target.index}, [target]
        while waiting:
            stage = waiting.pop()
            used = [stage.base_stage]
            for instruction in stage.instructions:
                used += [self.stage_of(name, before=stage.index) for name in origins(instruction)]
            for index in used:
                if index is not None and index not in wanted:
                    wanted.add(index)
                    waiting.append(self.stages[index])
        return [self.stages[index] for index in sorted(wanted)]


def parse(
    text: str,
    *,
    file: str = "Dockerfile",
    args: Mapping[str, str] | None = None,
    platform: str = "linux/amd64",
) -> Dockerfile:
    """Read a Dockerfile and expand its FROM lines with build arguments. Raises DockerfileError."""
    source = read(text, file=file)
    known: dict[str, str | None] = dict(platform_args(platform))
    declared: dict[str, str | None] = {}
    stages: list[Stage] = []
    current: list[Instruction] = []

    def close() -> None:
        if stages:
            last = stages.pop()
            stages.append(
                Stage(last.index, last.name, last.base, last.base_stage, last.start, tuple(current))
            )
            current.clear()

    for instruction in source.instructions:
        try:
            if instruction.keyword == "FROM":
                close()
                stages.append(_from(instruction, stages, known, source, platform=platform))
            elif stages:
                current.append(instruction)
            elif instruction.keyword == "ARG":
                for name, value in arg_pairs(instruction.rest, escape=source.escape):
                    default = None if value is None else expand(value, known.get, escape=source.escape)
                    known[name] = declared[name] = (args or {}).get(name, default)
            else:
                raise BadWord("only ARG may come before the first FROM: move it below")
        except BadWord as error:
            raise DockerfileError(
                str(error), file=file, line=instruction.line, instruction=instruction.short
            ) from None
    close()
    if not stages:
        raise DockerfileError("it has no FROM: begin it with FROM IMAGE", file=file, line=1)
    return Dockerfile(source, tuple(stages), {**platform_args(platform), **declared})


def platform_args(platform: str) -> dict[str, str]:
    """Return the arguments that Docker predefines for a platform."""
    system, _, rest = platform.partition("/")
    arch, _, variant = rest.partition("/")
    return {
        f"{side}{part}": value
        for side in ("TARGET", "BUILD")
        for part, value in (("PLATFORM", platform), ("OS", system), ("ARCH", arch), ("VARIANT", variant))
    }


def arg_pairs(rest: str, *, escape: str) -> list[tuple[str, str | None]]:
    """Return the names and defaults of an ARG. Raises BadWord."""
    found: list[tuple[str, str | None]] = []
    for word in split(rest, escape=escape):
        if "=" in word:
            found += pairs(word, escape=escape, legacy=False)
        else:
            found.append((word, None))
    return found


def origins(instruction: Instruction) -> list[str]:
    """Return the names of the stages or images that an instruction takes files from."""
    if instruction.keyword in ("COPY", "ADD"):
        name = instruction.flag("from")
        return [name] if name else []
    if instruction.keyword == "RUN":
        return [mount.origin for mount in mounts.of(instruction) if mount.origin]
    return []


def _from(
    instruction: Instruction,
    stages: list[Stage],
    known: Mapping[str, str | None],
    source: Source,
    *,
    platform: str,
) -> Stage:
    words = split(instruction.rest, escape=source.escape)
    if len(words) not in (1, 3) or (len(words) == 3 and words[1].lower() != "as"):
        raise BadWord("it must be FROM IMAGE [AS NAME]: correct it")
    for name, value in instruction.flags:
        wanted = expand(value, known.get, escape=source.escape)
        if name != "platform":
            raise BadWord(f"the flag --{name[:40]} is unknown: remove it")
        if wanted != platform:
            raise BadWord(f"the platform {value[:40]} cannot be built, only {platform}: remove --platform")
    base = expand(words[0], known.get, escape=source.escape)
    if not base:
        raise BadWord("its image is empty: give the build argument in it a value")
    if base == "scratch":
        raise BadWord("scratch is no image to start a sandbox from: name an image with a shell")
    found = next((stage.index for stage in reversed(stages) if stage.name == base.lower()), None)
    name = words[2].lower() if len(words) == 3 else ""
    return Stage(len(stages), name, base, found, instruction, ())
