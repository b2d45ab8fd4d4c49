"""The short version of every profile on a local stack: what it leaves, and that it keeps its bounds.

Not alone: a short version has bounds of what must never happen, and none of time or memory.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from loadtests import publish
from loadtests.load import events, profile_files
from tests.load.short_runs import Result, whole

pytestmark = [pytest.mark.loads, pytest.mark.longest, pytest.mark.slow, pytest.mark.timeout(1200)]

__all__ = ["whole"]


def test_every_profile_keeps_its_bounds(whole: Result) -> None:
    assert whole.code == 0, whole.said
    for name in profile_files.names():
        rows = whole.summary(name)["bounds"]
        assert rows, f"{name} has no bounds"
        assert all(row["held"] for row in rows)


@pytest.mark.parametrize("name", profile_files.names())
def test_the_summary_counts_what_the_events_say(whole: Result, name: str) -> None:
    summary, found = whole.summary(name), whole.events(name)
    assert summary["short"]
    assert [event.ended for event in found] == sorted(event.ended for event in found)
    for phase, told in summary["phases"].items():
        of_it = [event for event in found if event.phase == phase]
        assert Counter(event.kind for event in of_it) == {
            kind: numbers["count"] for kind, numbers in told["kinds"].items()
        }
        for kind, numbers in told["kinds"].items():
            good = [event for event in of_it if event.kind == kind and event.outcome == "ok"]
            latencies = sorted(event.latency for event in good)
            slowest = numbers["latency"]["max"]
            # A phase of so many seconds times the calls that began within them.
            assert any(slowest == pytest.approx(one, abs=1e-5) for one in latencies)
            assert "open" in numbers or slowest == pytest.approx(latencies[-1], abs=1e-5)
            assert latencies[0] - 1e-6 <= numbers["latency"]["p50"] <= slowest + 1e-6
        assert all(event.intended <= event.began <= event.ended for event in of_it)
        masked = told["rollouts"]["masked"] if "rollouts" in told else 0
        assert told["infrastructure"] == masked
        assert told["wrong"] == told["refused"] == 0
    assert not (whole.reports / name / "parts").exists()


def test_each_profile_does_what_its_parameters_say(whole: Result) -> None:
    def kinds(name: str, phase: str) -> dict[str, Any]:
        return whole.summary(name)["phases"][phase]["kinds"]

    def count(name: str, phase: str, kind: str) -> int:
        return kinds(name, phase)[kind]["count"]

    def given(name: str) -> Any:
        return profile_files.load(name, short=True).parameters

    reward = given("code-reward")
    assert count("code-reward", "rollouts", "task") == reward["rollouts"]
    assert count("code-reward", "rollouts", "exec") == reward["rollouts"] * reward["tests"]
    for name in ("code-env", "code-env-verl", "code-env-harbor"):
        for phase, found in whole.summary(name)["phases"].items():
            if phase != "warm_up":
                assert found["rollouts"]["count"] == count(name, phase, "task") == given(name)["rollouts"]
            warm = found["rollouts"]["warm"]
            assert (warm > 0) == (phase != "floor"), "each framework gets the pool's sandboxes"
    agent = given("swe-agent")
    assert count("swe-agent", "turns", "exec") == agent["rollouts"] * (2 * agent["turns"] + 1)
    assert count("swe-agent", "turns", "write") == agent["rollouts"] * agent["turns"]
    session = given("python-env")
    assert count("python-env", "turns", "exec") == session["rollouts"] * (session["turns"] + 1)
    burst = given("burst")
    assert burst["creates"] == 3 * burst["pool"]
    assert count("burst", "burst", "create") == burst["creates"]
    assert 1 <= kinds("burst", "burst")["create"]["warm"] <= burst["creates"]
    assert count("churn", "churn", "create") == count("churn", "churn", "delete") >= 2
    assert count("cold-starts", "most", "create") == given("cold-starts")["tasks"]
    assert 0 < whole.summary("cold-starts")["phases"]["below"]["rate"] != given("cold-starts")["share"]
    assert {kinds("cold-starts", phase)["create"]["warm"] for phase in ("most", "below")} == {0}
    idle = given("idle")
    assert count("idle", "fill", "create") == count("idle", "answer", "exec") == idle["sandboxes"]
    fan = given("fan-out")
    assert count("fan-out", "fan_out", "exec") == fan["calls"]
    assert whole.summary("fan-out")["phases"]["fan_out"]["generator"]["processes"] == 1


def test_groups_runs_and_forks_are_as_many_as_their_parameters_say(whole: Result) -> None:
    def told(name: str, phase: str) -> tuple[Any, Any, Any]:
        found = whole.summary(name)["phases"][phase]
        return found["figures"], found["kinds"], profile_files.load(name, short=True).parameters

    for phase, callers, rounds in (("alone", 1, "rounds"), ("contended", 2, "contended")):
        figures, kinds, given = told("groups", phase)
        assert figures["groups"] == kinds["group"]["count"] == callers * int(given[rounds])
        assert kinds["exec"]["count"] == figures["groups"] * int(given["size"])
    figures, kinds, given = told("groups", "alone")
    assert kinds["create"]["count"] == kinds["creates"]["count"] == figures["groups"]
    assert figures["cold"] == 0, "the pool had all of a group"
    figures, kinds, given = told("fair-share", "overload")
    assert kinds["heavy"]["count"] + kinds["light"]["count"] == figures["turns"] >= int(given["turns"])
    assert figures["turns_heavy"] > figures["turns_light"] > 0
    figures, kinds, given = told("fork", "forks")
    assert figures["forks"] == int(given["count"]) * int(given["rounds"])
    assert kinds["fork"]["count"] == kinds["creates"]["count"] == given["rounds"]
    assert "lost 0" in (whole.reports / "fork" / "report.html").read_text()


def test_tasks_of_a_data_set_run_in_their_images_in_slots_and_in_sandboxes_of_their_own(
    whole: Result,
) -> None:
    given, phases = (
        profile_files.load("swe-dataset", short=True).parameters,
        whole.summary("swe-dataset")["phases"],
    )
    for phase, tasks in (("slots", given["sandboxes"]), ("starts", given["started"])):
        kinds = phases[phase]["kinds"]
        assert kinds["create"]["count"] == kinds["task"]["ok"] == tasks
        assert kinds["exec"]["count"] == tasks * (1 + int(given["commands"]))
    found = [event for event in whole.events("swe-dataset") if event.kind == "create"]
    used = {event.image for event in found if event.phase == "slots"}
    warmed, told = phases["warm_up"], phases["slots"]["dataset"]
    assert warmed["warm_up"]["ready"] == warmed["dataset"]["images_prepared"] == given["images"]
    assert warmed["dataset"]["image_bytes"] > 1 << 20
    assert 1 < len(used) == told["images_used"] <= int(given["images"])
    assert told["images_prepared"] == told["image_bytes"] == 0
    # Both phases draw from one distribution with one seed.
    pictures = {(event.phase, event.number): event.image for event in found}
    assert all(
        pictures["slots", number] == pictures["starts", number] for number in range(int(given["started"]))
    )
    assert phases["starts"]["kinds"]["create"]["warm"] == 0
    assert phases["slots"]["kinds"]["create"]["warm"] > 0
    assert "different images" in (whole.reports / "swe-dataset" / "report.html").read_text()
    assert not any(event.image for event in whole.events("churn"))


def test_code_reward_runs_the_tests_of_a_rollout_together(whole: Result) -> None:
    tests = [event for event in whole.events("code-reward") if event.kind == "exec" and event.number == 0]
    assert max(event.began for event in tests) < min(event.ended for event in tests)


def test_processes_share_the_load_and_none_begins_a_task_twice(whole: Result) -> None:
    found = [event for event in whole.events("steady") if event.phase == "steady" and event.kind == "task"]
    assert {event.process for event in found} == {0, 1}
    assert sorted(event.number for event in found) == list(range(len(found)))
    # Both follow one schedule: its moments, merged, are those of a single one.
    moments = [event.intended for event in sorted(found, key=lambda event: event.number)]
    assert moments == sorted(moments)
    assert len(found) == pytest.approx(80, abs=36)


def test_ledgers_of_the_sandboxes_agree_with_what_was_answered(whole: Result) -> None:
    for name, phase in (
        ("steady", "steady"),
        ("soak", "soak"),
        ("swe-agent", "turns"),
        ("fan-out", "fan_out"),
        ("failover", "failover"),
    ):
        told = whole.summary(name)["phases"][phase]
        assert told["ledger"] == {
            "recorded": told["kinds"]["exec"]["count"],
            "lost": 0,
            "twice": 0,
            "unread": 0,
        }


def test_a_killed_gateway_is_told_and_its_callers_only_waited(whole: Result) -> None:
    summary, given = whole.summary("failover"), profile_files.load("failover", short=True).parameters
    told = summary["phases"]["failover"]
    (fault,) = told["faults"]
    assert fault["kill"] == "gateway"
    assert 0 < fault["away"] < 60
    # What was wanted in the moment of the kill was answered when the gateway was back, and not before.
    of_it = [
        event for event in whole.events("failover") if event.phase == "failover" and event.kind == "exec"
    ]
    gone = [event for event in of_it if fault["at"] <= event.intended < fault["at"] + fault["away"] / 2]
    assert gone
    assert min(event.latency for event in gone) > 0.1 * fault["away"]
    assert told["kinds"]["exec"]["latency"]["max"] >= 0.5 * fault["away"]
    begun = min(event.intended for event in of_it)
    assert fault["at"] - begun == pytest.approx(float(given["kill_at"]), abs=3)
    # The new process is the one that is sampled after it.
    assert "gateway" in whole.samples("failover")[-1]["parts"]
    assert "gateway killed" in (whole.reports / "failover" / "report.html").read_text()


def test_strangers_hold_connections_while_others_work_and_leave_with_their_phase(whole: Result) -> None:
    phases = whole.summary("strangers")["phases"]
    assert "strangers" not in phases["quiet"]
    given, told = profile_files.load("strangers", short=True).parameters, phases["attacked"]["strangers"]
    assert told["connections"] == given["connections"] <= told["opened"]
    assert 0 < told["held"] <= told["connections"]
    assert told["before"] > 20 << 20
    assert told["grown_mib"] == pytest.approx((told["most"] - told["before"]) / (1 << 20), abs=0.01)
    assert "connections held" in (whole.reports / "strangers" / "report.html").read_text()
    running = [one["sandboxes"].get("running", 0) for one in whole.samples("strangers")]
    assert max(running) == int(given["sandboxes"]) + int(given["attackers"])
    assert running[-1] <= 1  # that of the baselines


def test_the_parts_of_the_stack_are_sampled(whole: Result) -> None:
    idle = whole.summary("idle")["phases"]["idle"]["parts"]
    assert idle["gateway"]["memory"] > 20 << 20
    assert idle["gateway"]["descriptors"] > 5
    assert idle["sidecars"]["processes"] >= 4 * 2
    busy = whole.summary("code-reward")["phases"]["rollouts"]["parts"]
    assert busy["gateway"]["cores"] > 0
    assert busy["generator"]["processes"] == 2
    running = [one["sandboxes"].get("running", 0) for one in whole.samples("idle")]
    assert max(running) == profile_files.load("idle", short=True).parameters["sandboxes"]


def test_baselines_are_of_the_same_run(whole: Result) -> None:
    found = whole.summary("steady")["baselines"]
    assert found["spawn"]["count"] > 5
    assert len(found["spawn"]["rates"]) == 2  # before and after
    assert 0 < found["spawn"]["p50"] < 1
    assert found["spawn_inside"]["count"] >= 32


def test_the_same_command_is_spawned_beside_the_load(whole: Result) -> None:
    spawns = [
        event for event in whole.events("steady") if event.phase == "steady" and event.kind == events.BESIDE
    ]
    assert len(spawns) >= 5
    assert all(event.process == -1 and 0 < event.latency < 5 for event in spawns)
    assert not any(event.kind == events.BESIDE and event.phase == "idle" for event in whole.events("idle"))
    told = whole.summary("steady")["phases"]["steady"]
    assert told["calls"] == told["kinds"]["exec"]["count"]


def test_the_page_needs_nothing_but_a_browser(whole: Result) -> None:
    for name in profile_files.names():
        page = (whole.reports / name / "report.html").read_text()
        assert page.count("<svg") >= 7
        assert 'name="viewport"' in page
        assert not re.search(r"<(script|link|img|iframe)|url\(|@import|src=", page)
        for heading in (
            "Latency over time",
            "Throughput",
            "Sandboxes by state",
            "CPU",
            "Memory",
            "How calls ended",
        ):
            assert f"<h2>{heading}</h2>" in page
        assert "polyline" in page
        assert len(page) < 1 << 20


def test_each_plot_is_a_file_of_its_own(whole: Result) -> None:
    for name in profile_files.names():
        folder = whole.reports / name / "figures"
        assert {"latency-over-time.svg", "throughput.svg", "memory.svg"} <= set(os.listdir(folder))
        for path in folder.iterdir():
            root = ElementTree.parse(path).getroot()
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
    steady = (whole.reports / "steady" / "figures" / "latency-over-time.svg").read_text()
    assert ">exec p99 (ms)</text>" in steady


def test_reports_become_a_page_with_its_figures_beside_it(whole: Result, tmp_path: Path) -> None:
    old = tmp_path / "performance" / "local" / "gone-latency-over-time.svg"
    old.parent.mkdir(parents=True)
    old.touch()
    page = publish.publish("local", whole.reports, tmp_path)
    text = page.read_text()
    assert page == tmp_path / "performance" / "local.md"
    assert not old.exists()
    for name in profile_files.names():
        assert text.count(f"\n## {name}\n") == 1
    figures = re.findall(r"\]\((local/\S+\.svg)\)", text)
    assert len(figures) == 2 * len(profile_files.names())
    assert all((page.parent / figure).is_file() for figure in figures)
    assert re.search(r"^\| steady: exec \| \d+ \|", text, re.MULTILINE)
    assert re.search(r"^\| gateway \| \d\.\d{3} \| \d+ MiB \|", text, re.MULTILINE)
    shutil.copytree(whole.reports / "idle", tmp_path / "one" / "idle")
    summary = tmp_path / "one" / "idle" / "summary.json"
    told = json.loads(summary.read_text())
    summary.write_text(json.dumps({**told, "what": "Only this one was run again."}))
    again = publish.publish("local", tmp_path / "one", tmp_path).read_text()
    assert again.replace("Only this one was run again.", told["what"]) == text, "the others stay as they were"
    with pytest.raises(publish.PublishError, match=r"no summary\.json"):
        publish.publish("local", tmp_path / "nowhere", tmp_path)
