"""What becomes of a test whose client could not be installed: it skips, but fails where the run makes all clients' environments."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from tests.prime.environments import EnvironmentFailed

# Set by `make test-cluster`, and so in CI: a skip there would hide that a client was not tested.
REQUIRED = "SANDLOT_REQUIRE_CLIENTS"


def not_installed(what: str, error: EnvironmentFailed) -> NoReturn:
    """End the test for want of `what`, a package or a framework; `error` is of its installation."""
    if REQUIRED in os.environ:
        why = str(error).strip().splitlines()[-1].strip()
        pytest.fail(
            f"{what} is not installed, and with {REQUIRED} its tests must run. The package registry has to answer: {why}",
            pytrace=False,
        )
    pytest.skip(f"needs a package registry to install {what} from, and none answered")
