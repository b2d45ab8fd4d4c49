"""tests/unstable.toml: short, each name a test that exists, each with a reason."""

from __future__ import annotations

from tests.gateway.test_docs import functions
from tests.plugins.unstable import ROOT, unstable

pytest_plugins = ["pytester"]


def test_the_list_is_short_and_names_tests_that_exist() -> None:
    listed = unstable()
    assert len(listed) <= 5
    for name, reason in listed.items():
        path, _, function = name.partition("::")
        assert (ROOT / path).is_file(), name
        assert function.partition("[")[0] in functions(ROOT / path), name
        assert len(reason) > 20, name
