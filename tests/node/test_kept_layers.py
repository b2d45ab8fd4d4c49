"""Which documents of an image the agent reads to find its layers, whatever its indexes refer to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from sandlot_node.containerd.content import Content


class Store(Content):
    """Documents in memory."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.documents = documents
        self.reads = 0

    async def document(self, digest: str) -> Any:
        self.reads += 1
        return self.documents.get(digest)


def index(*digests: str) -> dict[str, Any]:
    return {"manifests": [{"digest": digest} for digest in digests]}


WIDE = [f"sha256:absent-{number}" for number in range(1000)]


@pytest.mark.parametrize(
    "documents",
    [
        {"one": index("one", "one")},
        {"one": index("two", "two"), "two": index("one", "one")},
        {"one": index(*["two"] * 1000), "two": index(*["three"] * 1000), "three": index(*WIDE)},
    ],
    ids=["itself", "a circle", "a billion"],
)
async def test_indexes_that_never_end_are_read_a_bounded_number_of_times(documents: dict[str, Any]) -> None:
    store = Store(documents)
    assert await store.kept_layers("one", config="sha256:config") == []
    assert store.reads <= 200
