"""What objects and exceptions of cells look like to clients."""

from __future__ import annotations

import base64
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .protocol import Message

    Bundle = tuple[dict[str, Any], dict[str, Any]]


FORMATS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
    ("_repr_pdf_", "application/pdf"),
)


def method(value: Any, name: str) -> Any:
    """Return a method by which an object describes itself; none of a class, or of one that has every attribute."""
    if isinstance(value, type):
        return None
    try:
        if hasattr(value, "_ipython_canary_method_should_not_exist_"):
            return None
        found = getattr(value, name, None)
    except Exception:
        return None
    return found if callable(found) else None


def text_of(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else value


def has_metadata(found: object) -> bool:
    return isinstance(found, tuple)


def bundle(value: Any) -> Bundle:
    """Return what an object is in each media type, and the metadata; a broken method leaves its type out."""
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for name, media in (*FORMATS, ("_repr_mimebundle_", "")):
        call = method(value, name)
        if call is None:
            continue
        try:
            found: Any = call() if media else call(include=None, exclude=None)
            more: Any = {}
            if has_metadata(found):
                found, more = found
            if found is None:
                continue
            if media:
                data[media] = text_of(found)
                if more:
                    metadata[media] = more
            else:
                data.update((str(key), text_of(item)) for key, item in found.items())
                metadata.update(more)
        except Exception:
            continue
    if "text/plain" not in data:
        data = {"text/plain": repr(value), **data}
    return data, metadata


def described(error: BaseException, name: str) -> Message:
    """Return the name, value and traceback of what a cell raised, without this file's frames."""
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        below = trace
        while below is not None:
            while below.tb_next is not None and below.tb_next.tb_frame.f_globals is globals():
                below.tb_next = below.tb_next.tb_next
            below = below.tb_next
        lines = traceback.format_exception(type(error), error, trace)
        value = str(error)
    except BaseException:
        lines, value = [type(error).__name__ + "\n"], "<its text cannot be made>"
    return {"name": type(error).__name__, "value": value, "traceback": lines}
