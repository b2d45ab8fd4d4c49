"""What a container shows of an image, and the check that a sandbox shows the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.archive import PROBE
from tests.conformance.containers import Containers
from tests.conformance.differences import Meant, Seen, compare, not_meant, parse
from tests.conformance.places import Opened

_SELF, _TREE = [PROBE, "self"], [PROBE, "tree"]


@dataclass(frozen=True)
class Expected:
    """`printed`: what the image's own `program` prints, its entry point and command."""

    seen: Seen
    program: list[str]
    printed: str


def of_container(containers: Containers, archive: Path) -> Expected:
    with containers.open(archive) as container:
        expected = Expected(
            process_and_files(container), container.arguments, container.run(container.arguments)
        )
    assert expected.seen.files[PROBE]["hash"]
    return expected


def process_and_files(opened: Opened) -> Seen:
    return parse(opened.run(_SELF), opened.run(_TREE, as_root=True))


def assert_same(container: Seen, sandbox: Seen, meant: Sequence[Meant]) -> None:
    differences = not_meant(compare(container, sandbox), meant)
    assert not differences, "\n".join(differences[:50])


def assert_like(expected: Expected, box: Opened, meant: Sequence[Meant]) -> None:
    assert_same(expected.seen, process_and_files(box), meant)
    if expected.printed.startswith("{"):  # the probe
        assert_same(parse(expected.printed), parse(box.run(expected.program)), meant)
    else:
        assert box.run(expected.program) == expected.printed
