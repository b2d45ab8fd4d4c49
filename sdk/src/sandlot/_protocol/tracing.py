"""Follows the caller's OpenTelemetry: a span for each create and command, and its context in every request.

The SDK never imports OpenTelemetry: a caller with an active span has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sandlot import _version

_NOTHING: Mapping[str, str] = {}
_NO_SPAN: AbstractContextManager[object] = nullcontext()


def _api() -> Any:
    module = sys.modules.get("opentelemetry.trace")
    # While another thread imports it, it may lack what is used here.
    return module if hasattr(module, "get_tracer") and hasattr(module, "SpanKind") else None


def headers() -> Mapping[str, str]:
    """Return the header with the active span's context (W3C Trace Context); none without one."""
    if "opentelemetry.trace" not in sys.modules:
        return _NOTHING
    api = _api()
    context = api.get_current_span().get_span_context() if api is not None else None
    if context is None or not context.is_valid:
        return _NOTHING
    return {
        "traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    }


def span(name: str, **attributes: str) -> AbstractContextManager[object]:
    """Return a block that is a span of the caller's tracer provider, if it has one."""
    if "opentelemetry.trace" not in sys.modules:
        return _NO_SPAN
    api = _api()
    if api is None:
        return _NO_SPAN
    tracer = api.get_tracer("sandlot", _version.__version__)
    found: AbstractContextManager[object] = tracer.start_as_current_span(
        name,
        kind=api.SpanKind.CLIENT,
        attributes={f"sandlot.{key}": value for key, value in attributes.items()},
    )
    return found
