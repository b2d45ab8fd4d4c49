"""The real definitions of the Gateway API, from its Go module."""

from __future__ import annotations

import json
import shutil
import urllib.error
from typing import Any

import pytest
import yaml

from tests.cluster.gomodules import module_source
from tests.cluster.paths import BIN
from tests.cluster.versions import GATEWAY_API
from tests.kube.apiserver import ApiServer

_PLACE = BIN.parent / f"gateway-api-{GATEWAY_API.version}"
_COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def fetch() -> None:
    """Write them beside the test cluster's programs, once; as JSON, since a test would read the YAML for seconds."""
    if not _PLACE.exists():
        part = _PLACE.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for path in (module_source(GATEWAY_API) / "config/crd/standard").glob("gateway.*s.yaml"):
            for document in yaml.safe_load_all(path.read_text()):
                if document["kind"] == "CustomResourceDefinition":
                    (part / f"{path.stem}.json").write_text(json.dumps(document))
        part.rename(_PLACE)


def define(server: ApiServer) -> None:
    """Make the API server serve them, also in the place of what another test has put there."""
    if not _PLACE.exists():
        pytest.skip("needs the definitions of the Gateway API (`python -m tests.chart` fetches them)")
    for path in sorted(_PLACE.iterdir()):
        _define(server, json.loads(path.read_text()))


def _define(server: ApiServer, crd: dict[str, Any]) -> None:
    path = f"{_COLLECTION}/{crd['metadata']['name']}"
    try:
        there = server.call("GET", path)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
    else:
        version = {"resourceVersion": there["metadata"]["resourceVersion"]}
        server.call("PUT", path, crd | {"metadata": crd["metadata"] | version})
    server.apply_crd(crd)
