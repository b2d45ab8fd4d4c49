"""A real stack whose checkpoints have low limits, for two tenants."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.leaks import no_leaks
from tests.stack import Stack

OTHERS = "other-key"
MOST = 4


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """The stack lives longer than one test here; its own fixture looks for what it leaves."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with (
        tempfile.TemporaryDirectory(prefix="sandlot-") as directory,
        no_leaks(marker=directory, descriptors=False),
        Stack(
            Path(directory) / "state",
            options=(
                "--pool",
                "warm=2",
                "--checkpoint-max",
                str(200 << 20),
                "--checkpoint-total",
                str(60 << 20),
                "--checkpoint-tenant-count",
                str(MOST),
            ),
            env={"SANDLOT_API_KEYS": f"{OTHERS}:other"},
        ) as running,
    ):
        yield running
