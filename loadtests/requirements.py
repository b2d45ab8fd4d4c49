"""What the machine must have for a row: root, runc, runsc, a Kubernetes API server or an S3 server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from enum import Enum

from tests.executor.gvisor import find_runsc
from tests.kube import apiserver
from tests.s3 import server as s3_server


class Requirement(Enum):
    ROOT = "root"
    RUNC = "runc"
    RUNSC = "runsc, which `make cluster` builds"
    API_SERVER = "openssl, and etcd and kube-apiserver, which `make cluster` builds"

    S3 = "versitygw, which `python -m tests.s3` builds"

    @property
    def is_met(self) -> bool:
        """Whether this machine has it."""
        if self is Requirement.ROOT:
            return os.geteuid() == 0
        if self is Requirement.API_SERVER:
            return apiserver.why_not() is None
        if self is Requirement.S3:
            return s3_server.program() is not None
        return (shutil.which("runc") if self is Requirement.RUNC else find_runsc()) is not None


def missing(requirements: Iterable[Requirement]) -> Requirement | None:
    """Return the first of them that this machine lacks, or None."""
    return next((one for one in requirements if not one.is_met), None)
