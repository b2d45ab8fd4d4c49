"""Traces a create: its own span, in whose context the steps of its bring-up add theirs, also after its answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request
from sandlot_contract.trace import TRACEPARENT_KEY

from sandlot_gateway import logs
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.tracing.requests import failure
from sandlot_gateway.tracing.span import Attributes
from sandlot_gateway.tracing.trace import current
from sandlot_gateway.tracing.tracing import Tracing


@contextmanager
def traced_create(request: Request, tracing: Tracing, *, tenant: str) -> Iterator[Attributes]:
    """Trace the create of an authenticated request; yield the attributes of its span."""
    about: Attributes = {}
    traceparent = b",".join(value for name, value in request.scope["headers"] if name == TRACEPARENT_KEY)
    trace = tracing.enter(traceparent, tenant=tenant)
    if trace is None:
        yield about
        return
    current.set(trace)
    status: int | str = 201
    try:
        yield about
    except ApiError as error:
        status = error.status
        raise
    except BaseException as error:
        status = type(error).__name__
        raise
    finally:
        about["sandlot.request.id"] = (logs.request_id.get() or "")[:128]
        if isinstance(status, int):
            about["http.response.status_code"] = status
        trace.finish("sandlot.create", begin=trace.begun, attributes=about, error=failure(status))
