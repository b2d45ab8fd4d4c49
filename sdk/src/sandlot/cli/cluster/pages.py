"""Reads the metrics of pods, and what the answers tell of their clocks, through forwards."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from .api import Unread
from .deadline import OVER
from .doc import Doc
from .kubectl import CannotRun, Kubectl
from .skew import Skew

_SECONDS = 10.0
_KEPT = 2.0  # uvicorn makes a date each second, later when its loop is busy
# Without the proxies of the environment, which do not know this machine's loopback.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Page:
    """A pod's metrics, and its clock against this machine's; None if no answer tells it."""

    text: str | Unread
    clock: Skew | None = None


def metrics(kubectl: Kubectl, pod: Doc, port: int, key: str | None) -> str | Unread:
    """Return the pod's metrics."""
    return page(kubectl, pod, port, key).text


def page(kubectl: Kubectl, pod: Doc, port: int, key: str | None) -> Page:
    """Return the pod's metrics and clock, through a forward: a NetworkPolicy would stop the API server's own proxy."""
    if kubectl.deadline.passed:
        return Page(Unread(OVER))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with kubectl.forward(pod.namespace, pod.name, port) as local:
            request = urllib.request.Request(f"http://127.0.0.1:{local}/metrics", headers=headers)
            sent = time.time()
            try:
                with _DIRECT.open(request, timeout=kubectl.deadline.within(_SECONDS)) as answer:
                    clock = _clock(answer.headers.get("Date"), sent=sent, got=time.time())
                    return Page(answer.read().decode(errors="replace"), clock)
            except urllib.error.HTTPError as error:
                with error:  # without a key it tells its time all the same
                    clock = _clock(error.headers.get("Date"), sent=sent, got=time.time())
                return Page(Unread(f"/metrics answers {error.code}", error.code in (401, 403)), clock)
    except (OSError, CannotRun) as error:
        return Page(Unread(f"no connection: {error}"))
    except http.client.HTTPException as error:  # the pod ended in the middle of its answer
        return Page(Unread(f"/metrics answers no page: {type(error).__name__}: {error}"))


def _clock(date: str | None, *, sent: float, got: float) -> Skew | None:
    if date is None:
        return None
    try:
        moment = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
    return Skew.told(moment, sent=sent, got=got, kept=_KEPT)
