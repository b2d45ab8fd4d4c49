"""Selects, orders and cuts the sandboxes of one page of a list, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from sandlot_gateway.sandboxes import Sandbox

from .documents import page_after, page_token, template_of
from .failures import Problem

_MOST = 100  # sandboxes of a page


RUNNING, PAUSED = "running", "paused"


def wanted_states(query: Mapping[str, list[str]]) -> set[str]:
    """Return the states of the sandboxes that a query asks for. Raises Problem."""
    states = {state for text in query.get("state", []) for state in text.split(",") if state}
    if unknown := states - {RUNNING, PAUSED}:
        raise Problem(400, f"state: {min(unknown)[:100]!r} must be running or paused")
    return states or {RUNNING, PAUSED}


def wanted_page(
    found: Sequence[Sandbox], query: Mapping[str, list[str]], *, target: Callable[[str], str]
) -> tuple[list[Sandbox], str | None]:
    """Return the page that a query asks for, and the token of the next one; `target`: what a template stands for.

    Raises Problem.
    """
    chosen = list(found)
    if template := _one(query, "template"):
        wanted = target(template)
        chosen = [one for one in chosen if template_of(one) == wanted or template in _names(one)]
    if since := _one(query, "startedAfter"):
        earliest = _time(since)
        chosen = [sandbox for sandbox in chosen if (sandbox.started_at or sandbox.created_at) >= earliest]
    order = _one(query, "order") or "desc"
    if order not in ("asc", "desc"):
        raise Problem(400, "order: must be asc or desc")
    newest_first = order == "desc"
    chosen.sort(key=_place, reverse=newest_first)
    if token := _one(query, "nextToken"):
        try:
            after = page_after(token)
        except (ValueError, OverflowError, RecursionError) as error:
            raise Problem(400, "nextToken: is none that a list has given: leave it out") from error
        chosen = [each for each in chosen if (_place(each) < after if newest_first else _place(each) > after)]
    limit = _limit(_one(query, "limit"))
    page = chosen[:limit]
    return page, page_token(page[-1]) if len(chosen) > limit else None


def _names(sandbox: Sandbox) -> tuple[str, ...]:
    """Return the name of its tenant's template, with and without the tag."""
    name = None if sandbox.spec.e2b is None else sandbox.spec.e2b.name
    return () if name is None else (name, name.partition(":")[0])


def _place(sandbox: Sandbox) -> tuple[float, str]:
    return sandbox.created_at, sandbox.id


def _one(query: Mapping[str, list[str]], name: str) -> str:
    return query.get(name, [""])[0]


def _limit(text: str) -> int:
    if not text:
        return _MOST
    if not (text.isascii() and text.isdigit() and len(text) < 5 and int(text)):
        raise Problem(400, f"limit: must be from 1 to {_MOST}")
    return min(int(text), _MOST)


def _time(text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise Problem(400, "startedAfter: must be a time such as 2026-11-29T10:00:00Z") from error
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
