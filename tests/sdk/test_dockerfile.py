"""Dockerfiles without a sandbox: how they are read, what expands to what, and which files of a context count."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot import AsyncClient, BuildFailed, DockerfileError
from sandlot._async.replay import AsyncReplay
from sandlot._dockerfile.context import Context, Entry, SourceMissing
from sandlot._dockerfile.copy_plan import Source, order, replaced, steps
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


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("RUN --mount=type=secret,id=a x", "type=secret cannot be replayed"),
        ("RUN --mount=type=bind,target=/x,source=none true", "not in the context"),
        ("ADD https://example.org/a /a", "fetch it with RUN"),
        ("COPY none /x", "not in the context"),
        ("COPY --parents a /x", "--parents cannot be replayed"),
    ],
)
def test_what_cannot_be_replayed_is_refused_before_a_sandbox_starts(
    line: str, why: str, tmp_path: Path
) -> None:
    parsed = parse(f"FROM host\n\n{line}\n", file="sub/Dockerfile")
    with pytest.raises(DockerfileError, match=why) as caught:
        build_key(parsed, list(parsed.stages), Context(tmp_path, Ignore()), args={}, settings={})
    assert str(caught.value).startswith(f"sub/Dockerfile:3: {line}: ")
    assert (caught.value.file, caught.value.line) == ("sub/Dockerfile", 3)


def test_only_the_stages_of_the_target_are_needed() -> None:
    parsed = parse(
        "FROM host AS a\nFROM host AS b\nFROM a AS c\nRUN --mount=type=bind,from=b,target=/x true\n"
        "FROM host\nCOPY --from=2 /x /x\n"
    )
    assert [stage.index for stage in parsed.needed(parsed.find("a"))] == [0]
    assert [stage.index for stage in parsed.needed(parsed.find(None))] == [0, 1, 2, 3]
    with pytest.raises(DockerfileError, match="name one of its stages"):
        parsed.find("none")


@pytest.mark.parametrize(
    ("patterns", "left_out", "kept"),
    [
        ("# *\n*/temp*", ["somedir/temporary.txt", "somedir/temp", "somedir/temp/x"], ["temp", "a/b/temp"]),
        ("*/*/temp*", ["somedir/subdir/temporary.txt"], ["somedir/temp"]),
        ("temp?", ["tempa", "tempb/x"], ["temp", "tempab", "a/tempa"]),
        ("**/*.go", ["a.go", "x/y/b.go"], ["go", "a.goo"]),
        ("*.md\n!README.md", ["a.md"], ["README.md", "x/a.md"]),
        ("*.md\n!README*.md\nREADME-secret.md", ["a.md", "README-secret.md"], ["README.md"]),
        ("*.md\nREADME-secret.md\n!README*.md", ["a.md"], ["README.md", "README-secret.md"]),
        ("/foo/bar/\n./x", ["foo/bar", "foo/bar/y", "x"], ["foo", "a/foo/bar"]),
        ("docs/**", ["docs/a", "docs/a/b"], ["docs", "doc"]),
        ("docs\n!docs/keep/*.md", ["docs/a", "docs/keep/x"], ["docs/keep/y.md"]),
        ("[a-c]x\n[^a]y", ["ax", "by"], ["dx", "ay"]),
    ],
)
def test_dockerignore_follows_docker(patterns: str, left_out: list[str], kept: list[str]) -> None:
    ignore = Ignore(patterns)
    assert [path for path in left_out if not ignore.ignores(path)] == []
    assert [path for path in kept if ignore.ignores(path)] == []


def test_the_key_depends_on_contents_and_modes_and_not_on_times_or_other_files(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    file = tmp_path / "src" / "a"
    file.write_text("1")
    text = "FROM host\nARG A\nCOPY src /src\n"

    def key(text: str = text, **args: str) -> str:
        parsed = parse(text, args=args)
        context = Context(tmp_path, Ignore("*.log"))
        return build_key(parsed, list(parsed.stages), context, args=args, settings={})

    first = key()
    (tmp_path / "src" / "b.log").write_text("")
    (tmp_path / "other").write_text("")
    assert key() != first  # the pattern is of the root
    (tmp_path / "src" / "b.log").unlink()
    file.write_text("1")
    assert key() == first == key(UNUSED="1")
    assert key(HTTP_PROXY="p") == first
    others = [key(A="1"), key(text + "RUN true\n"), key(text.replace("host", "other"))]
    proxy = text + "ARG HTTP_PROXY\n"
    assert key(proxy, HTTP_PROXY="p") != key(proxy, HTTP_PROXY="q")
    file.chmod(0o700)
    others.append(key())
    file.write_text("2")
    others.append(key())
    assert len({first, *others}) == 6


def test_the_key_depends_on_the_names_by_which_stages_are_copied_from() -> None:
    def key(first: str, second: str) -> str:
        parsed = parse(
            f"FROM host AS {first}\nFROM other AS {second}\nFROM host\nCOPY --from=a /x /x\n"
            "COPY --from=b /y /y\n"
        )
        context = Context(Path("/nowhere"), Ignore())
        return build_key(parsed, list(parsed.stages), context, args={}, settings={})

    assert key("a", "b") != key("b", "a")


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


def test_a_copy_onto_the_root_leaves_the_kernels_directories_and_replaces_links_below_it() -> None:
    parsed = parse("FROM host\nCOPY --from=a / /\nCOPY file /app/link\n")
    root, one = (order(instruction, State(parsed, {})) for instruction in parsed.stages[0].instructions)
    below = (Entry("proc", "dir", 0o555), Entry("a", "dir", 0o755), Entry("a/b", "file", 0o644))
    plan = steps(root, [Source("", Entry("", "dir", 0o755), below)], is_dir=True)
    assert [step.target for step in plan] == ["/", "/a", "/a/b"]
    assert replaced(root, plan) == {"/a/b"}
    file = [Source("file", Entry("file", "file", 0o644))]
    assert replaced(one, steps(one, file, is_dir=False)) == set()  # the link that it names is followed
    assert replaced(one, steps(one, file, is_dir=True)) == {"/app/link/file"}


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
