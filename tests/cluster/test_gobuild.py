"""Which programs have to be built is read from what the built ones say of themselves."""

from __future__ import annotations

from tests.cluster import gobuild, versions
from tests.cluster.gobuild import BuildInfo, parse_build_info

LISTING = """\
/somewhere/kubectl: go1.26.8
\tpath\tk8s.io/kubernetes/cmd/kubectl
\tmod\tk8s.io/kubernetes\tv1.36.3\th1:abc=
\tdep\tgithub.com/pkg/errors\tv0.9.1\th1:def=
\tbuild\t-ldflags="-s -w"
/somewhere/shim: go1.26.8
\tpath\tgvisor.dev/gvisor/shim
\tmod\tgvisor.dev/gvisor\tv0.0.0-1\th1:abc=
\tbuild\t-ldflags="-s -w -X main.patch=0123abcd"
/somewhere/broken: go1.26.8
"""


def test_build_info_is_read_by_name() -> None:
    assert parse_build_info(LISTING) == {
        "kubectl": BuildInfo(
            package="k8s.io/kubernetes/cmd/kubectl", module="k8s.io/kubernetes", version="v1.36.3"
        ),
        "shim": BuildInfo(
            package="gvisor.dev/gvisor/shim", module="gvisor.dev/gvisor", version="v0.0.0-1", patch="0123abcd"
        ),
    }


def test_patches_belong_to_programs_and_have_their_files() -> None:
    programs = {name for module in versions.MODULES.values() for name in module.programs}
    for name, patch in gobuild.PATCHES.items():
        assert name in programs
        assert all(source.is_file() for source in patch.files.values())


def test_a_patch_that_changes_has_another_digest() -> None:
    one = gobuild.Patch(files={}, edits=(("a.go", "old", "new"),))
    other = gobuild.Patch(files={}, edits=(("a.go", "old", "newer"),))
    assert one.digest != other.digest


def test_every_program_has_one_module() -> None:
    names = [name for module in versions.MODULES.values() for name in module.programs]
    assert len(names) == len(set(names))
