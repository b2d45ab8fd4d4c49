"""The API server, and on which loop the client is tested."""

from tests.kube.apiserver import apiserver

__all__ = ["apiserver"]
