"""Dockerfiles without a sandbox: how they are read, what expands to what, and which errors name what."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot import AsyncClient, BuildFailed, DockerfileError
from sandlot._async.replay import AsyncReplay
from sandlot._dockerfile.context import Context, SourceMissing
from sandlot._dockerfile.copy_plan import order
from sandlot._dockerfile.ignore import Ignore
from sandlot._dockerfile.key import build_key
from sandlot._dockerfile.state import State
from sandlot._dockerfile.words import BadWord, expand
from sandlot._tasks_async import now
from sandlot.dockerfile import parse

PIECES = [
    *(
        "FROM host",
        "RUN ",
        "COPY ",
        "ADD ",
        "ENV ",
        "ARG ",
        "WORKDIR ",
        "CMD ",
        "EXPOSE ",
        "SHELL ",
        "USER ",
        "LABEL ",
    ),
    *(
        "\n",
        "\n",
        "\n",
        "\\\n",
        " ",
        "#",
        "# escape=`\n",
        "`\n",
        "<<EOF",
        "<<-'E'",
        "EOF\n",
        "E\n",
        "\t",
        '"',
        "'",
    ),
    *(
        "[",
        "]",
        '["a"]',
        "$",
        "${",
        "}",
        "A",
        "=",
        ":-",
        ":+",
        "%",
        "##",
        "/",
        "*",
        "--from=0 ",
        "--mount=type=bind ",
    ),
    *("é", "\x00", "\x0b", "\x85", "\u2028", "\ud800", "\r\n", "9" * 5000),
]


def settings_of(text: str, **args: str) -> State:
    """The state at the end of a Dockerfile's last stage."""
    parsed = parse(text, args=args)
    state = State(parsed, args)
    state.of_base({"PATH": "/usr/bin", "HOME": "/root"}, "/base", "0:0")
    for instruction in parsed.stages[-1].instructions:
        state.apply(instruction)
    return state


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    text = f"FROM host\n{text}"
    lines = text.split("\n")
    try:
        parsed = parse(text)
    except DockerfileError as error:
        assert 1 <= error.line <= len(lines)
        return
    for stage in parsed.stages:
        state = State(parsed, {})
        for instruction in stage.instructions:
            assert lines[instruction.line - 1].strip().upper().startswith(instruction.keyword[:1])
            try:
                state.apply(instruction)
                state.run_argv(instruction)
            except BadWord:
                pass
    try:
        build_key(parsed, list(parsed.stages), Context(Path("/nowhere"), Ignore()), args={}, settings={})
    except (DockerfileError, OSError, ValueError):
        pass


def test_directives_continuations_comments_and_heredocs() -> None:
    parsed = parse(
        "# escape=`\n"
        "ARG TAG=1\n"
        "FROM image:${TAG} AS One\n"
        "run echo a `\n"
        "  # in between\n"
        "\n"
        "  b\n"
        "RUN cat <<A <<-'B' > /x\n"
        "1\n"
        "A\n"
        "\t2 \\\n"
        "\tB\n"
        "COPY a\\b /c\n",
        args={"TAG": "2"},
    )
    (stage,) = parsed.stages
    assert (stage.base, stage.name) == ("image:2", "one")
    first, second, third = stage.instructions
    assert (first.keyword, first.line, first.rest) == ("RUN", 4, "echo a   b")
    assert second.line == 8
    assert [(one.name, one.content(), one.quoted) for one in second.heredocs] == [
        ("A", "1\n", False),
        ("B", "2 \\\n", True),
    ]
    assert State(parsed, {}).run_argv(second)[2] == "cat <<A <<-'B' > /x\n1\nA\n\t2 \\\nB\n"
    assert (third.line, third.rest) == (13, "a\\b /c")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("$A-${A}", "1-1"),
        ("${N:-x}${E:-y}${E-z}", "xy"),
        ("${A:+x}${N:+y}${E:+z}${E+w}", "xw"),
        (r"\$A '$A' \"$A\"", '$A $A "1"'),
        ('"$A b"', "1 b"),
        ("${P#*/}${P##*/}", "b/cc"),
        ("${P%/*}${P%%/*}", "a/ba"),
        ("${P/\\//-}${P//[bc]/x}", "a-b/ca/x/x"),
        ("${N:-${A}'q'}", "1q"),
        ("a$ $1", "a$ $1"),
    ],
)
def test_variables_expand_as_in_docker(word: str, expected: str) -> None:
    values = {"A": "1", "E": "", "P": "a/b/c"}
    assert expand(word, values.get) == expected


def test_settings_of_a_stage() -> None:
    state = settings_of(
        "ARG V=global\nFROM host\n"
        "ARG V\nARG W=w-$V\nARG GIVEN=no\n"
        'ENV A="x y" B=$A PATH=/opt:$PATH\n'
        "ENV C one  two\n"
        "ENV D=$A V=env H=$HOME.\n"
        "LABEL a=b 'c d'=\"e f\"\n"
        "EXPOSE 80 53/udp\n"
        "CMD echo $A\n"
        'ENTRYPOINT ["run", "$A"]\n',
        GIVEN="yes",
    )
    assert state.env == {
        "A": "x y",
        "B": "",
        "PATH": "/opt:/usr/bin",
        "C": "one  two",
        "D": "x y",
        "V": "env",
        "H": ".",
    }
    assert state.run_env() == {**state.env, "W": "w-global", "GIVEN": "yes"}
    built = state.built(checkpoint_id="cp", image="host", key="k")
    assert built.labels == {"a": "b", "c d": "e f"}
    assert built.exposed_ports == ("80/tcp", "53/udp")
    assert built.command == ["run", "$A", "/bin/sh", "-c", "echo $A"]


def test_only_the_stages_of_the_target_are_needed() -> None:
    parsed = parse(
        "FROM host AS a\nFROM host AS b\nFROM a AS c\nRUN --mount=type=bind,from=b,target=/x true\n"
        "FROM host\nCOPY --from=2 /x /x\n"
    )
    assert [stage.index for stage in parsed.needed(parsed.find("a"))] == [0]
    assert [stage.index for stage in parsed.needed(parsed.find(None))] == [0, 1, 2, 3]
    with pytest.raises(DockerfileError, match="name one of its stages"):
        parsed.find("none")


def test_a_stage_inherits_the_arguments_of_the_stage_it_begins_from() -> None:
    parsed = parse("FROM host AS a\nARG V=1\nFROM a\nENV W=$V\n")
    first = State(parsed, {})
    first.apply(parsed.stages[0].instructions[0])
    second, sibling = first.continued(), first.continued()
    second.apply(parsed.stages[1].instructions[0])
    assert second.run_env() == {"V": "1", "W": "1"}
    assert sibling.run_env() == {"V": "1"}


async def test_a_build_that_takes_longer_than_its_timeout_has_failed() -> None:
    parsed = parse("FROM host\nRUN true\n")
    async with AsyncClient(url="http://127.0.0.1:9", api_key="unused") as client:
        replay = AsyncReplay(
            parsed,
            Context(Path("/nowhere"), Ignore()),
            args={},
            platform="linux/amd64",
            deadline=now() - 1,
            create={"client": client},
            on_output=None,
        )
        with pytest.raises(BuildFailed, match="longer than its timeout") as caught:
            await replay.run(list(parsed.stages))
    assert (caught.value.line, caught.value.verdict) == (1, "timeout")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ADD $A /x", "$A cannot be added: fetch it with RUN"),
        ("COPY file file $A", "write $A/"),
        ("COPY --chmod=$A file /x", "--chmod=$A cannot be replayed"),
        ("EXPOSE 80 $A", "'$A' is no port"),
        ("COPY x-$B /x", "'x-$B' is not in the context"),
        ("ENV C=${NONE:?$A}", "NONE is not set: $A"),
    ],
)
def test_errors_show_words_without_the_values_of_build_arguments(
    line: str, message: str, tmp_path: Path
) -> None:
    args = {"A": "https://user:s3cret@host/file", "B": "s3cret"}
    parsed = parse(f"FROM host\nARG A B\n{line}\n", args=args)
    declared, instruction = parsed.stages[0].instructions
    state = State(parsed, args)
    state.apply(declared)

    def replay() -> None:
        if not state.apply(instruction):
            wanted = order(instruction, state)
            Context(tmp_path, Ignore()).find(wanted.sources[0], written=wanted.written[0])

    with pytest.raises((BadWord, SourceMissing)) as caught:
        replay()
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)
