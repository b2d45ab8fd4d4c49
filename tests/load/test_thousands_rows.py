"""What a run of thousands becomes: its rows, its bounds, the API server's requests, and the table on the page."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loadtests import publish_rows, running
from loadtests.bounds import read_bounds
from loadtests.cluster.api_requests import counted, each
from loadtests.cluster.start_ready import saturated
from loadtests.cluster.thousands_rows import ROWS, Found, Moment, Times, rows
from loadtests.publish_rows import PublishError, publish
from loadtests.reading import Reading
from loadtests.thousands import GROUPS, SIZES, SPEC

METRICS = """\
# HELP apiserver_request_total [STABLE] Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",dry_run="",group="sandlot.dev",resource="sandboxes",scope="resource",subresource="",verb="POST",version="v1"} 3
apiserver_request_total{code="409",component="apiserver",dry_run="",group="sandlot.dev",resource="sandboxes",scope="resource",subresource="",verb="POST",version="v1"} 1
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="status",verb="PATCH",version="v1"} 1.2e+01
apiserver_request_total{code="200",component="",dry_run="",group="",resource="",scope="",subresource="/readyz",verb="GET",version=""} 7
apiserver_request_duration_seconds_count{resource="pods",verb="POST"} 99
"""


def moment(at: float, *, gateway: float, controller: float, **requests: int) -> Moment:
    cpu = {"127.0.0.2": gateway, "127.0.0.3": gateway, "controller": controller}
    return Moment(at, cpu, Counter({name.replace("_", " "): count for name, count in requests.items()}))


FOUND = Found(
    sandboxes=100,
    moments={
        "empty": moment(0, gateway=1, controller=1, POST_pods=1),
        "filled": moment(50, gateway=2, controller=3, POST_pods=101),
        "created": moment(60, gateway=2.1, controller=3, POST_pods=101, POST_sandboxes=20),
        "first": moment(61, gateway=2.2, controller=3, POST_pods=101, POST_sandboxes=20),
        "quiet": moment(71, gateway=3, controller=3, POST_pods=101, POST_sandboxes=100),
        "attached": moment(72, gateway=3.1, controller=3, POST_pods=101, POST_sandboxes=100),
        "busy": moment(82, gateway=4, controller=3.5, POST_pods=101, POST_sandboxes=100),
        "ended": moment(90, gateway=1, controller=4, POST_pods=101, POST_sandboxes=100),
        "deleted": moment(99, gateway=1.5, controller=5, POST_pods=111, POST_sandboxes=100),
    },
    creates=Times([0.1] * 90 + [0.2] * 10, wall=10.0),
    first=Times([0.1] * 100, wall=1.0),
    quiet=Times([0.01] * 400, wall=10.0),
    busy=Times([0.02] * 300 + [0.05] * 100, wall=10.0),
    deletes=Times([0.3] * 100, wall=9.0),
    in_flight=100,
    survived=90,
    commands=1_000,
    runs=1_001,
    lost=[],
    memory={"127.0.0.2": 100 << 20, "127.0.0.3": 110 << 20, "controller": 80 << 20},
    survivor=130 << 20,
    reattached=4.0,
    again=2.0,
    writes=Counter({"gateway create sandboxes": 100}),
)


def test_each_row_has_a_bound_and_each_bound_a_row() -> None:
    assert read_bounds(SPEC).keys() == {row for group in GROUPS for row in group.rows}
    assert tuple(rows(FOUND)) == ROWS


@pytest.mark.parametrize("size", SIZES)
def test_the_texts_of_bounds_speak_of_their_size(size: int) -> None:
    for name, bound in read_bounds(SPEC).items():
        of_it = name.endswith(f"_{size}")
        numbers = set(re.findall(r"\b\d+,\d{3}\b", bound.what))
        # Of 10,000 commands one gateway has files for 9,000.
        allowed = {f"{size:,}", "9,000"} if size == 10_000 else {f"{size:,}"}
        assert not of_it or numbers <= allowed, (name, bound.what)


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("lost", 1),  # one ran twice
        ("fill", 50),
        ("create", 0.2),
        ("exec", 50),
        ("exec_in_flight", 2),
        ("gateway_memory", 110),
        ("gateway_cpu", 2),  # 0.1 s of each of two for 100
        ("controller_memory", 80),
        ("controller_cpu", 40),
        ("requests_create", 1),
        ("requests", 1.1),
        ("writes", 1),
    ],
)
def test_rows_are_what_was_measured(row: str, value: float) -> None:
    assert rows(FOUND)[row].value == pytest.approx(value)


def test_rows_say_what_they_are_made_of() -> None:
    found = rows(FOUND)
    assert found["lost"].parts["of them when the gateway is killed"] == "90"
    assert found["fill"].parts["requests a pod"] == "POST pods 1.00"
    assert found["requests"].parts == {"in all": "110", "POST sandboxes": "1.00", "POST pods": "0.10"}
    assert found["gateway_cpu"].parts["a short command"] == "4.00 ms"
    assert found["gateway_cpu"].parts["a delete"] == "10.00 ms"
    assert found["controller_cpu"].parts["until all are claimable"] == "2.0 s, 20.00 ms a pod"
    assert "130 MiB" in found["gateway_memory"].parts.values()
    lost = rows(replace(FOUND, runs=900, lost=["Busy: no room"]))["lost"]
    assert (lost.value, lost.parts["run twice"], lost.parts["lost"]) == (1, "0", "Busy: no room")


def test_requests_are_sums_by_verb_and_resource() -> None:
    found = counted(METRICS)
    assert found == {"POST sandboxes": 4, "PATCH pods/status": 12}
    assert each(found, 8) == {"PATCH pods/status": "1.50", "POST sandboxes": "0.50"}


def test_metrics_without_requests_are_an_error() -> None:
    with pytest.raises(ValueError, match="have no apiserver_request_total of a resource"):
        counted("up 1\n")


def test_what_nodes_start_is_counted_from_the_last_that_began_with_the_first() -> None:
    # 8 begin together and take 2 s each, 8 at once: 4 a second; those after 9 s came when fewer waited.
    ready = [2.0 + batch * 2 + number * 0.01 for batch in range(4) for number in range(8)] + [30.0]
    assert saturated(ready, until=9.0, at_once=8) == pytest.approx(24 / 6)
    with pytest.raises(ValueError, match="7 starts are over in 9 s, a rate needs 16"):
        saturated(ready[:7], until=9.0, at_once=8)


PAGE = (
    "# Page\n\nBefore.\n\n<!-- thousands: written by x -->\n\nOld.\n\n<!-- end of thousands -->\n\nAfter.\n"
)


def report(folder: Path, **changes: Any) -> Path:
    one = {"value": 1.5, "held": True, "second_try": False, "parts": {"p50": "3 ms"}}
    bounds = read_bounds(SPEC)
    rows = dict.fromkeys(bounds, one) | changes
    told = {
        "began": "2026-12-01T10:00:00+00:00",
        "seconds": 312.0,
        "machine": {
            "cores": "2",
            "kernel": "Linux 6.18",
            "python": "3.11.2",
            "load at the beginning": "0.10",
        },
        "rows": {
            name: {"what": bounds[name].what, "unit": bounds[name].unit} | row for name, row in rows.items()
        },
    }
    (folder / "thousands.json").write_text(json.dumps(told))
    return folder


def test_a_run_is_published_between_its_comments(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(PAGE)
    missed = {"value": None, "held": False, "second_try": True, "parts": {"failed": "a | b"}}
    reports = report(tmp_path, lost_4000=missed)
    publish("thousands", reports, page)
    text = page.read_text()
    assert "Old." not in text
    assert text.startswith("# Page\n\nBefore.\n\n<!-- thousands: written by x -->\n\n2026-12-01, 2 cores,")
    assert text.endswith("\n\n<!-- end of thousands -->\n\nAfter.\n")
    assert "`make loadtest-cluster PROFILE=thousands`:" in text
    assert "| ≤ 10 s | 1.5 s | p50 3 ms |" in text
    assert "| ≤ 0 | **missed**: none, the better of two tries | failed a \\| b |" in text
    assert text.count("\n| ") == 1 + len(read_bounds(SPEC))
    publish("thousands", reports, page)
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(
            {"first": 5.0, "second_taken": True}, "1.5 s, at the second try; 5 s at the first", id="taken"
        ),
        pytest.param(
            {"first": None, "second_taken": True}, "at the second try; none at the first", id="failed"
        ),
        pytest.param(
            {"first": 1.5, "second_taken": False}, "1.5 s, a second try was no better", id="not-taken"
        ),
    ],
)
def test_a_table_says_which_of_two_values_it_has(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    page = tmp_path / "performance.md"
    page.write_text(PAGE)
    row = {"value": 1.5, "held": True, "second_try": True, "parts": {}} | changes
    publish("thousands", report(tmp_path, create_4000=row), page)
    assert words in page.read_text()


def test_a_part_of_a_run_is_not_published(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(PAGE)
    reports = report(tmp_path)
    told = json.loads((reports / "thousands.json").read_text())
    del told["rows"]["writes_10000"]
    (reports / "thousands.json").write_text(json.dumps(told))
    with pytest.raises(PublishError, match="no row writes_10000: run the profile without --only"):
        publish("thousands", reports, page)
    with pytest.raises(PublishError, match=r"autoscale\.json: is not there"):
        publish("autoscale", reports, page)
    page.write_text("nothing")
    with pytest.raises(PublishError, match="needs one place between the comments of thousands, has 0"):
        publish("thousands", report(tmp_path), page)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        pytest.param({"what": "from the kill on"}, 'is "from the kill on" in "s"', id="other-words"),
        pytest.param({"unit": "ms"}, ' in "ms", now it is "', id="other-unit"),
        pytest.param({"what": None}, "does not say what it measured", id="no-words"),
    ],
)
def test_a_run_with_another_definition_of_a_row_is_not_published(
    tmp_path: Path, told: dict[str, Any], words: str
) -> None:
    page = tmp_path / "performance.md"
    page.write_text(PAGE)
    reports = report(tmp_path)
    document = json.loads((reports / "thousands.json").read_text())
    document["rows"]["reattached_4000"] |= told
    (reports / "thousands.json").write_text(json.dumps(document))
    with pytest.raises(PublishError) as refused:
        publish("thousands", reports, page)
    text = str(refused.value)
    assert text.startswith("reattached_4000: in the report it ")
    assert words in text
    assert text.endswith(": run `make loadtest-cluster PROFILE=thousands` again")
    assert page.read_text() == PAGE


def test_a_report_keeps_what_its_rows_are(tmp_path: Path) -> None:
    bounds = {name: bound for name, bound in read_bounds(SPEC).items() if name == "fill_4000"}
    running.write(
        tmp_path,
        name="thousands",
        readings={"fill_4000": Reading(62.0)},
        bounds=bounds,
        again={},
        load=0.1,
        began=datetime.now(UTC),
    )
    row = json.loads((tmp_path / "thousands.json").read_text())["rows"]["fill_4000"]
    assert (row["what"], row["unit"], row["value"]) == (bounds["fill_4000"].what, "s", 62.0)


@pytest.mark.parametrize("name", publish_rows.NAMES)
def test_the_page_has_a_place_for_each(name: str) -> None:
    text = publish_rows.PAGE.read_text()
    assert len(re.findall(rf"<!-- {name}: [^\n]* -->\n.*?<!-- end of {name} -->", text, re.DOTALL)) == 1
