"""Which files of a context count for a Dockerfile, where they go, and what the key of a build depends on."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot import DockerfileError
from sandlot._dockerfile.context import Context, Entry
from sandlot._dockerfile.copy_plan import Source, order, replaced, steps
from sandlot._dockerfile.ignore import Ignore
from sandlot._dockerfile.key import build_key
from sandlot._dockerfile.state import State
from sandlot.dockerfile import parse


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
