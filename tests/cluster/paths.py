"""Where the cluster's programs, state and names are: all of it outside the source tree."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("SANDLOT_CLUSTER_CACHE", Path.home() / ".cache" / "sandlot-cluster"))
BIN = Path(os.environ.get("SANDLOT_CLUSTER_BIN", CACHE / "bin"))
SRC = CACHE / "src"
IMAGES = CACHE / "images"
PODMAN = CACHE / "podman"
STATE = CACHE / "state"
LOGS = CACHE / "logs"
KUBECONFIG = STATE / "kubeconfig"

CLUSTER = "sandlot"
NETNS = "sandlot-kind"
ENGINE_RUN = Path("/run/sandlot-cluster")
