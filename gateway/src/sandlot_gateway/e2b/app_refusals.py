"""The gateway's own answers at the host name of an app's port, in the forms that E2B's proxy gives them.

They have a header that no app's answer has: an app can write the same text.
"""

from __future__ import annotations

from typing import Any

from sandlot_gateway.data.answers import Refusal

from .failures import Problem
from .paths import AppHost
from .pauses import PAUSED

TRAFFIC_KEY = b"e2b-traffic-access-token"
OURS = b"x-sandlot-"  # begins header names that only the gateway sends
_REFUSAL_KEY = OURS + b"refusal"
_SECURED = "Sandbox is secured with traffic access token."


def refused(
    app: AppHost, status: int, error: str, message: str, *, closes: bool = False, **fields: Any
) -> Refusal:
    """Return an answer of the gateway; one that `closes` its connection need not read the request's body."""
    document = {"sandboxId": app.sandbox_id, "code": status, **fields}
    headers = [(_REFUSAL_KEY, error.encode()), (b"cache-control", b"no-store")]
    if closes:
        headers.append((b"connection", b"close"))
    return Refusal(status, error, message, headers=headers, **document)


def no_token(app: AppHost, *, given: bool) -> Refusal:
    header = TRAFFIC_KEY.decode()
    what = (
        f"Provided token in header '{header}' is invalid" if given else f"Token header '{header}' is missing"
    )
    return refused(app, 403, "no_traffic_token", f"{_SECURED} {what}", closes=True)


def no_port(app: AppHost) -> Refusal:
    text = "the host name must be PORT-SANDBOX.DOMAIN, with one Host header and a port from 1 to 65535"
    return refused(app, 400, "no_such_port", text, closes=True)


def bad_request(app: AppHost) -> Refusal:
    text = "the method or the path is invalid: look at what sends it"
    return refused(app, 400, "bad_request", text, closes=True)


def not_found(app: AppHost) -> Refusal:
    return refused(app, 502, "sandbox_not_found", "The sandbox was not found", closes=True)


def port_closed(app: AppHost) -> Refusal:
    text = "The sandbox is running but port is not open"
    return refused(app, 502, "port_closed", text, port=app.port)


def paused(app: AppHost) -> Refusal:
    return refused(app, 409, "sandbox_paused", "The sandbox is paused", canAutoResume=False)


def of_problem(app: AppHost, problem: Problem) -> Refusal:
    """Return the answer for a record of a pause that cannot be read."""
    return refused(app, problem.status, "unavailable", str(problem))


def of_refusal(app: AppHost, refusal: Refusal, *, limit: int) -> Refusal:
    """Return the answer for a refusal of the data plane; `limit`: requests at once to the apps of a sandbox."""
    error = str(refusal.document["error"])
    if error == "sandbox_not_found":
        return paused(app) if str(refusal) == PAUSED else not_found(app)
    if error == "refused":
        return port_closed(app)
    if error == "busy" and refusal.document.get("scope") == "sandbox":
        text = f"The sandbox has too many concurrent incoming connections (limit: {limit})"
        told = refused(app, 429, "busy", text, connectionLimit=limit)
    else:
        told = refused(app, refusal.status, error, str(refusal), port=app.port)
    told.headers += [header for header in refusal.headers if header[0] == b"retry-after"]
    return told
