"""What a second build of a release says that differs."""

from __future__ import annotations

from release.check import newer


def test_debian_packages_that_differ_are_named() -> None:
    first, second = {"pam": "1.5-1", "old": "1", "zlib": "1"}, {"pam": "1.5-2", "new": "3", "zlib": "1"}
    assert newer(first, second) == ["new (none) -> 3", "old 1 -> (none)", "pam 1.5-1 -> 1.5-2"]
