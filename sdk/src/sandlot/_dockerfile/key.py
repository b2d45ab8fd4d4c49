"""The key under which a build is found again: instructions, build arguments and the files that it copies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from sandlot._dockerfile import mounts
from sandlot._dockerfile.context import Context, SourceMissing
from sandlot._dockerfile.copy_plan import check_flags, check_local
from sandlot._dockerfile.source import Instruction, heredoc_words
from sandlot._dockerfile.stages import Dockerfile, Stage, arg_pairs
from sandlot._dockerfile.words import BadWord, json_words, split

VERSION = 2  # of what a replay makes of a Dockerfile; another number forgets all earlier builds


def build_key(
    dockerfile: Dockerfile,
    needed: list[Stage],
    context: Context,
    *,
    args: Mapping[str, str],
    settings: Mapping[str, object],
) -> str:
    """Return the key of a build of the last of these stages. Raises DockerfileError and OSError."""
    stages: list[object] = []
    used: set[str] = set()
    digests: dict[tuple[str, ...], str] = {}
    for stage in needed:
        listed: list[object] = []
        for one in stage.instructions:
            try:
                sources = tuple(sorted(_sources(one, dockerfile)))
                if sources not in digests:
                    digests[sources] = context.digest(sources)
                if one.keyword == "ARG":
                    used |= {name for name, _ in arg_pairs(one.rest, escape=dockerfile.escape)}
            except (BadWord, SourceMissing) as error:
                raise dockerfile.error(str(error), one) from None
            heredocs = [[heredoc.name, heredoc.text] for heredoc in one.heredocs]
            listed.append([one.keyword, one.rest, one.flags, heredocs, digests[sources]])
        stages.append([stage.index, stage.name, stage.base, stage.base_stage, listed])
    document = {
        "version": VERSION,
        "escape": dockerfile.escape,
        "args": {name: args[name] for name in sorted(used) if name in args},
        "global": {name: value for name, value in dockerfile.args.items() if name in used},
        "stages": stages,
        "settings": dict(settings),
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()


def _sources(instruction: Instruction, dockerfile: Dockerfile) -> set[str]:
    """Return the paths of the context that an instruction reads, "" for all of it."""
    if instruction.keyword == "RUN":
        found = [one.source for one in mounts.of(instruction) if one.kind == "bind" and not one.origin]
    elif instruction.keyword in ("COPY", "ADD") and not instruction.flag("from"):
        check_flags(instruction)
        begun = heredoc_words(instruction.rest)
        words = json_words(instruction.rest) or split(instruction.rest, escape=dockerfile.escape)
        found = [word.strip("\"'") for word in words[:-1] if word not in begun]
        for word in found:
            check_local(word, word)
    else:
        return set()
    # What a variable or an escape makes of a source is known only during the build.
    plain = {one for one in found if not any(char in one for char in f"$\"'{dockerfile.escape}")}
    return plain if len(plain) == len(set(found)) else {""}
