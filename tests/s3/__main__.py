"""Builds the S3 server of the tests, Versity's gateway over a directory, once; `python -m tests.s3`."""

from __future__ import annotations

from tests.cluster import gobuild, versions
from tests.cluster.lock import exclusive

with exclusive():
    gobuild.build(names=gobuild.missing(versions.S3_MODULES), modules=versions.S3_MODULES)
