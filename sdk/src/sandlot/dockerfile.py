"""Dockerfiles: `build` makes a checkpoint from one without Docker, `parse` reads one."""

from sandlot._async.build import build
from sandlot._dockerfile.stages import Dockerfile, parse
from sandlot._sync.build import build as build_sync
from sandlot.builds import Built
from sandlot.errors import BuildFailed, DockerfileError

__all__ = ["BuildFailed", "Built", "Dockerfile", "DockerfileError", "build", "build_sync", "parse"]
