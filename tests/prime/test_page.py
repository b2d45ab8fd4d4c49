"""docs/prime-routes.md names every route of Prime's, served or missing; docs/prime.md every version that is tested."""

from __future__ import annotations

import re
from pathlib import Path

from sandlot_gateway.control.unsupported import UNSUPPORTED

from tests.prime.test_versions import CASES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "prime-routes.md").read_text()


def test_every_served_route_of_primes_is_named():
    served = re.findall(r"^\| (`[A-Z]+ /\S+`) \| P \|", (DOCS / "control-api.md").read_text(), re.MULTILINE)
    assert len(served) > 15
    assert [route for route in served if route not in PAGE] == []


def test_every_missing_route_is_named_with_what_is_missing():
    rows = dict(re.findall(r"^\| ([a-zA-Z ]+) \| (`/.*) \|$", PAGE, re.MULTILINE))
    assert {what: set(re.findall(r"`(/[^`]+)`", routes)) for what, routes in rows.items()} == {
        what: set(paths) for what, paths in UNSUPPORTED.items()
    }


def test_every_version_that_is_tested_is_named():
    assert [version for version, _ in CASES if version not in (DOCS / "prime.md").read_text()] == []
