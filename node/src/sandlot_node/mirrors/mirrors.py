"""Names each registry's cache in its file while that answers, and takes the file away when the agent ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pydantic import BaseModel, ConfigDict, Field
from sandlot_contract import images as references

from sandlot_node.metrics import Metrics

from .caches import answering
from .files import MirrorFiles

_log = logging.getLogger(__name__)

# A cache under load may be late once. Until its file is without it, containerd waits for one that hangs.
_FAILURES = 2
# Threads of their own: a DNS server that is silent would take all of the loop's, in which the engine mounts.
_LOOKUPS = 4
# containerd takes the first for the second.
_ALIASES = {"index.docker.io": references.HUB}


class Mirror(BaseModel):
    """A registry that has a cache."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # A directory's name, too.
    host: str = Field(
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$", description="As in references."
    )
    upstream: str = Field(pattern=r"^https?://[^\s/]+$", description="URL of the registry itself.")
    cache: str = Field(
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\.?$",
        description="DNS name of the cache, absolute with a dot.",
    )
    port: int = Field(ge=1, le=65535, description="Port of the cache.")


class Mirrors:
    """The mirrors of one node."""

    def __init__(
        self,
        mirrors: Sequence[Mirror],
        files: MirrorFiles,
        metrics: Metrics,
        *,
        seconds: float,
        read_path: Callable[[], Awaitable[str | None]],
    ) -> None:
        """`seconds`: the interval of checks. `read_path`: where containerd looks for files; None: it does not tell."""
        self._mirrors = mirrors
        self._files = files
        self._metrics = metrics
        self._seconds = seconds
        self._read_path = read_path
        self._unread = ""  # why containerd does not read the files; empty if it does, or does not tell
        self._failures: dict[str, int] = {}
        self._said: dict[str, str] = {}
        self._lookups = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="lookup")

    def server_of(self, reference: str) -> str | None:
        """Return the URL of the registry itself, which alone may see credentials for an image: its cache may not.

        None: the image's registry has no cache, or the node's operator configured who gets them.
        """
        host = references.registry_of(reference)
        host = _ALIASES.get(host, host)
        for mirror in self._mirrors:
            if mirror.host == host:
                return None if self._is_the_operators(host) else mirror.upstream
        return None

    def _is_the_operators(self, host: str) -> bool:
        try:
            own = self._unread != "" or self._files.configured_by(host) is not None
            return own and not self._files.is_ours(host)
        except OSError:
            return False

    async def run(self) -> None:
        """Check until cancelled; then the files are gone. Only once."""
        try:
            self._remove(keep={mirror.host for mirror in self._mirrors})
            while self._mirrors:
                await self._look_where_containerd_reads()
                await asyncio.gather(*map(self._check, self._mirrors))
                await asyncio.sleep(self._seconds)
        finally:
            self._remove(keep=set())
            self._lookups.shutdown(wait=False, cancel_futures=True)

    async def _look_where_containerd_reads(self) -> None:
        try:
            path = await self._read_path()
        except Exception:
            _log.exception("unexpected failure to ask containerd where it looks for registries")
            return
        if path is not None:
            self._unread = self._files.unread(path)

    async def _check(self, mirror: Mirror) -> None:
        try:
            state = await self._follow(mirror)
        except OSError as error:
            state = f"cannot write or remove the file: {error}. Check nodeAgent.containerd.certs"
        except Exception as error:
            _log.exception("unexpected failure in the mirror of %s", mirror.host)
            state = f"unexpected failure: {error}"
        self._metrics.mirrors.labels(mirror.host).set(state == "")
        if self._said.get(mirror.host) != state:
            self._said[mirror.host] = state
            if state:
                _log.warning("the node pulls from %s without its cache: %s", mirror.host, state)
            else:
                _log.info("the node pulls from %s through its cache", mirror.host)

    async def _follow(self, mirror: Mirror) -> str:
        """Write or remove the file; return why the cache is not used, empty if it is."""
        if self._unread:
            # With more than one path, it could hide what the node has in another one.
            self._files.remove(mirror.host)
            return self._unread
        place = self._files.configured_by(mirror.host)
        if place is not None:
            self._files.remove(mirror.host)
            return (
                f"{place} configures this registry. Remove it from the node, or this upstream from the cache"
            )
        url = await answering(mirror.cache, mirror.port, self._lookups)
        if url is not None:
            self._failures[mirror.host] = 0
            self._files.write(mirror.host, upstream=mirror.upstream, cache=url)
            return ""
        self._failures[mirror.host] = self._failures.get(mirror.host, 0) + 1
        # A file of before the agent's start counts as one whose cache did not answer before.
        if self._said.get(mirror.host) == "" and self._failures[mirror.host] < _FAILURES:
            return ""
        # The file still says where the registry is and whether it has TLS, which containerd else takes from its name.
        self._files.write(mirror.host, upstream=mirror.upstream, cache=None)
        return f"{mirror.cache}:{mirror.port} does not answer. Check the cache's pod and network policies"

    def _remove(self, *, keep: set[str]) -> None:
        try:
            for host in self._files.owned() - keep:
                self._files.remove(host)
        except OSError as error:
            _log.warning("could not remove files of registries: %s. Remove them from the node", error)
