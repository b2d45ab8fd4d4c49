"""Renews the lease of a run from a thread of its own, so that a program renews it that blocks its event loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sandlot._protocol import leases
from sandlot._sync.client import Client
from sandlot.endpoint import Endpoint
from sandlot.errors import NotFound, RunLost, SandlotError
from sandlot.runs import RunInfo

_log = logging.getLogger(__name__)

_BEATS = 5  # renewals in one grace: four may be lost
_LONGEST_WAIT = 30.0  # seconds for one answer


class Heartbeat:
    """One per process and run. `on_lost` is called in the thread, once, when the run is not this holder's any more."""

    def __init__(
        self, endpoint: Endpoint, run: RunInfo, *, on_lost: Callable[[SandlotError], None] | None
    ) -> None:
        self._endpoint = endpoint
        self._run = run
        self._on_lost = on_lost
        self._stop = threading.Event()
        # A daemon: it must not keep a process alive that ends without leaving the run.
        self._thread = threading.Thread(target=self._beat, name=f"sandlot run {run.id}", daemon=True)
        self.lost: SandlotError | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout: float) -> None:
        """Stop renewing; return when no renewal is on its way, or after `timeout` seconds."""
        self._stop.set()
        self._thread.join(timeout)

    def _beat(self) -> None:
        pause = self._run.grace / _BEATS
        client = self._new_client()
        try:
            while not self._stop.wait(pause):
                try:
                    client.call(
                        "POST",
                        f"{leases.path(self._run.id)}/renew",
                        body={"epoch": self._run.epoch},
                        timeout=min(max(pause, 1.0), _LONGEST_WAIT),
                        patience=pause,
                    )
                except (RunLost, NotFound) as error:
                    self._give_up(error)
                    return
                except SandlotError as error:
                    # Only the server's word counts: it gives the run a whole grace after an outage.
                    _log.warning("run %s could not be renewed, trying again: %s", self._run.id, error)
                except Exception:  # without this thread, the run and all its sandboxes would end
                    _log.exception("run %s could not be renewed, trying again", self._run.id)
                else:
                    continue
                # A kept connection leads to the same gateway, which alone may have lost the API server.
                client.close()
                client = self._new_client()
        finally:
            client.close()

    def _new_client(self) -> Client:
        return Client(url=self._endpoint.url, api_key=self._endpoint.api_key)

    def _give_up(self, error: SandlotError) -> None:
        if self._stop.is_set():
            return  # this process has ended the run
        self.lost = error
        _log.error("%s", error)
        if self._on_lost is not None:
            self._on_lost(error)
