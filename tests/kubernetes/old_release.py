"""Images and chart of an earlier commit, from which a test upgrades: `python -m tests.kubernetes.old_release` builds them.

They are outside the source tree, by commit. The build needs the network and the repository's history.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.paths import CACHE
from tests.cluster.shell import ClusterError, CommandFailed, run
from tests.kubernetes.stack import CHART

ROOT = CHART.parents[1]
# While there is no release yet: before usage, runs, groups, events and traces.
_COMMIT = "326e1de9e741179e7b1b1a487c13aa88b2ac60ec"
_IMAGES = ("gateway", "controller", "sidecar")
# Another tag than that of the images which the other tests use: a name has one image on a node.
_BUILD = """
import sys
from pathlib import Path
from images import build, contents
contents.TAG = sys.argv[1]
for name in sys.argv[3:]:
    build.build(contents.by_name(name), out=Path(sys.argv[2]))
"""


@dataclass(frozen=True, slots=True)
class OldRelease:
    commit: str

    @property
    def tag(self) -> str:
        return f"before-{self.commit[:12]}"

    @property
    def _directory(self) -> Path:
        return CACHE / "old" / self.commit[:12]

    @property
    def tree(self) -> Path:
        return self._directory / "tree"

    @property
    def chart(self) -> Path:
        return self.tree / "charts" / "sandlot"

    @property
    def archives(self) -> list[Path]:
        return [self._directory / "archives" / f"{name}.tar" for name in _IMAGES]

    @property
    def is_built(self) -> bool:
        return all(archive.exists() for archive in self.archives)

    def build(self) -> None:
        """Build what is missing. Raises ClusterError."""
        if not self.tree.exists():
            part = self._directory / "part"
            part.mkdir(parents=True, exist_ok=True)
            packed = subprocess.run(
                ["git", "archive", self.commit], cwd=ROOT, capture_output=True, check=True
            )
            subprocess.run(["tar", "-x", "-C", part], input=packed.stdout, check=True)
            # Its builds use uv and the build backend alone.
            (part / ".venv").symlink_to(ROOT / ".venv")
            part.rename(self.tree)
        if not self.is_built:
            words = [ROOT / ".venv/bin/python", "-c", _BUILD, self.tag, self._directory / "archives"]
            run([*words, *_IMAGES], cwd=self.tree)


def old_release() -> OldRelease:
    """Return the release before: of $SANDLOT_UPGRADE_FROM, else the newest tag, else a fixed commit.

    Raises ClusterError if the repository lacks it.
    """
    named = os.environ.get("SANDLOT_UPGRADE_FROM")
    wanted = named or _newest_tag() or _COMMIT
    try:
        return OldRelease(_git("rev-parse", "--verify", f"{wanted}^{{commit}}"))
    except CommandFailed as error:
        if named:
            raise ClusterError(
                f"FROM: the repository has no {named}: name one of its commits or tags"
            ) from error
        raise ClusterError(
            f"the repository has no {wanted}, from which to upgrade: fetch its whole history "
            "(`git fetch --unshallow --tags`; in a workflow `fetch-depth: 0` of the checkout), or name a commit by FROM"
        ) from error


def _newest_tag() -> str | None:
    try:
        return _git("describe", "--tags", "--match", "v[0-9]*", "--abbrev=0", "HEAD^")
    except CommandFailed:
        return None


def _git(*words: str) -> str:
    return run(["git", *words], cwd=ROOT).strip()


def main() -> int:
    try:
        old_release().build()
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
