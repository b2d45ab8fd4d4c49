"""Profiles: all of them can be read, parameters win in their order, and what is wrong is named with what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.load import profile, profile_files
from loadtests.load.profile_files import Loaded, ProfileError
from loadtests.load.share_of import paced
from loadtests.load.summary import Span

ALL = (
    *(
        "burst",
        "callers",
        "churn",
        "code-env",
        "code-env-harbor",
        "code-env-verl",
        "code-reward",
        "cold-starts",
        "failover",
        "fair-share",
        "fan-out",
        "fork",
        "groups",
        "idle",
        "python-env",
        "soak",
        "steady",
    ),
    *("strangers", "swe-agent", "swe-dataset"),
)
CLOSED = {"name": "a", "closed": {"callers": 2, "tasks": 4}, "steps": [{"exec": "true"}]}
ROLLOUTS = {"callers": 1, "tasks": 1, "model": 1}
OPEN = {"name": "a", "open": {"rate": 3, "seconds": 20}, "steps": [{"exec": "true"}]}


def parsed(document: dict[str, Any], *, given: dict[str, str] | None = None, short: bool = False) -> Loaded:
    return profile_files.parse({"what": "a test", **document}, name="t", short=short, given=given or {})


def test_there_is_a_profile_for_each_kind_of_run() -> None:
    assert tuple(profile_files.names()) == ALL


@pytest.mark.parametrize("name", ALL)
def test_each_can_be_read_and_its_short_version_is_smaller(name: str) -> None:
    whole, short = profile_files.load(name), profile_files.load(name, short=True)
    assert whole.profile.what == short.profile.what
    assert [phase.name for phase in whole.profile.phases] == [phase.name for phase in short.profile.phases]
    assert whole.parameters.keys() == short.parameters.keys()
    for phase in short.profile.phases:
        load = phase.open or phase.rest
        assert load is None or load.seconds <= 5


def test_parameters_of_the_command_line_win_over_the_short_ones_and_those_over_the_profile() -> None:
    phases = [{**CLOSED, "closed": {"callers": "$callers", "tasks": "$tasks"}}]
    document: dict[str, Any] = {
        "parameters": {"callers": 8, "tasks": 80},
        "short": {"tasks": 4, "callers": 2},
        "phases": phases,
    }
    assert parsed(document).profile.phases[0].closed == profile.Closed(callers=8, tasks=80)
    assert parsed(document, short=True).profile.phases[0].closed == profile.Closed(callers=2, tasks=4)
    given = parsed(document, short=True, given={"tasks": "6"})
    assert given.profile.phases[0].closed == profile.Closed(callers=2, tasks=6)
    assert given.parameters == {"callers": 2, "tasks": 6}


def test_an_open_loop_takes_its_share_of_an_earlier_phase_that_counts_its_tasks() -> None:
    most = {**CLOSED, "name": "most"}
    share = {**OPEN, "name": "share", "open": {"rate": 0.5, "of": "most", "seconds": 20}}
    phases = parsed({"phases": [most, share]}).profile.phases
    ran = Span(name="most", begun=1.0, ended=3.0, done=[])
    assert paced(phases[0], phases=phases, spans=[]) is phases[0]
    assert paced(phases[1], phases=phases, spans=[ran]).open == profile.Open(rate=1.0, seconds=20), (
        "4 tasks in 2 s"
    )

    timed = {**CLOSED, "name": "most", "closed": {"callers": 2, "seconds": 4}}
    for others in ([share], [share, most], [timed, share]):
        with pytest.raises(ProfileError, match=r"`open\.of` is 'most' and must name an earlier phase with"):
            parsed({"phases": others})


def test_shell_variables_are_left_alone() -> None:
    steps = [{"exec": "echo $NUMBER $tasks"}]
    loaded = parsed(
        {
            "parameters": {"tasks": 3},
            "phases": [{**CLOSED, "closed": {"callers": 1, "tasks": "$tasks"}, "steps": steps}],
        }
    )
    assert loaded.profile.phases[0].steps[0].exec == "echo $NUMBER $tasks"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"phases": []}, "phases: expected `array` of length >= 1"),
        (
            {"phases": [{**CLOSED, "closed": {"callers": 0}}]},
            r"phases\[0\].closed.callers: expected `int` >= 1",
        ),
        ({"phases": [{**CLOSED, "closed": {"callers": 1}}]}, "exactly one of tasks, seconds; it has none"),
        (
            {"phases": [{**CLOSED, "rest": {"seconds": 1}}]},
            "one of closed, open, .* forks; it has closed and rest",
        ),
        (
            {"phases": [{**CLOSED, "steps": [{"exec": "a", "read": "b"}]}]},
            r"phases\[0\].steps\[0\]: needs exactly one",
        ),
        ({"phases": [{**CLOSED, "steps": [{"write": "/a"}]}]}, "one of content, bytes; it has none"),
        ({"phases": [{**CLOSED, "steps": [{"repeat": 3}]}]}, "`repeat` and `steps` belong together"),
        (
            {"phases": [{**CLOSED, "steps": [{"exec": "a", "at_once": 3}]}]},
            r"`at_once` \(3\) is more than `times`",
        ),
        ({"phases": [{**CLOSED, "name": "A b"}]}, r"phases\[0\].name: expected `str` matching regex"),
        (
            {"phases": [{**OPEN, "faults": [{"at": 3, "kill": "node"}]}]},
            r"phases\[0\].faults\[0\].kill: invalid enum value 'node'",
        ),
        (
            {"phases": [{**OPEN, "faults": [{"at": -1, "kill": "gateway"}]}]},
            r"phases\[0\].faults\[0\].at: expected `float` >= 0",
        ),
        ({"phases": [{**OPEN, "faults": [{"kill": "gateway"}]}]}, "missing required field `at`"),
        (
            {"phases": [{**OPEN, "faults": [{"at": 3, "kill": "gateway"}, {"at": 20, "kill": "gateway"}]}]},
            r"phases\[0\]: `faults\[1\].at` is 20 and must be less than `open.seconds` \(20\)",
        ),
        (
            {"phases": [{**CLOSED, "faults": [{"at": 3, "kill": "gateway"}]}]},
            "`faults` needs `closed.seconds`: a phase of so many tasks may end before",
        ),
        (
            {"phases": [{**CLOSED, "pods_exec": 4}]},
            "`pods_exec` needs `closed.seconds`: its callers do not know when the others end",
        ),
        ({"phases": [{**OPEN, "pods_exec": 0}]}, r"phases\[0\].pods_exec: expected `int` >= 1"),
        (
            {"phases": [{**OPEN, "strangers": {"connections": 3, "sandboxes": 4}}]},
            r"phases\[0\].strangers: `connections` is 3 and must be at least `sandboxes` \(4\)",
        ),
        ({"phases": [CLOSED], "images": {"count": 0, "zipf": 1}}, "images.count: expected `int` >= 1"),
        (
            {"phases": [{"name": "a", "warm_up": {"seconds": 5}}]},
            "phase 'a' warms images up, and the profile has no `images`",
        ),
        (
            {"phases": [{"name": "a", "warm_up": {"seconds": 5}, "steps": [{"exec": "true"}]}]},
            "a phase with `warm_up` has no steps and no ledger",
        ),
        (
            {"phases": [{"name": "a", "groups": {"size": 4, "rounds": 1}}], "pool": 3},
            "phase 'a': `pool` is 3 and must be at least 4",
        ),
        (
            {"phases": [{"name": "a", "groups": {"size": 1, "rounds": 1, "callers": 2, "compare": True}}]},
            r"phases\[0\].groups: `compare` needs one caller, .* not 2",
        ),
        (
            {
                "phases": [{"name": "a", "fair_share": {"weight": 3, "callers": 2, "turns": 9}}],
                "processes": 2,
            },
            "phase 'a' needs `processes` 1",
        ),
        (
            {"phases": [{"name": "a", "forks": {"count": 1, "mib": 1, "rounds": 1}, "ledger": "/tmp/a"}]},
            "a phase with `forks` has no steps and no ledger",
        ),
        (
            {"phases": [{"name": "a", "rollouts": {**ROLLOUTS, "by": "harbor", "on": "processes"}}]},
            r"phases\[0\].rollouts: `on`: harbor's trials have a sandbox each",
        ),
        (
            {
                "phases": [
                    {"name": "a", "rollouts": ROLLOUTS},
                    {"name": "b", "rollouts": {**ROLLOUTS, "by": "verl"}},
                ]
            },
            "all `rollouts` must be `by` one framework, not verifiers and verl",
        ),
        ({"phases": [CLOSED, CLOSED]}, "two phases are called 'a'"),
        ({"phases": [{**CLOSED, "sandbox": "kept"}]}, "none before it keeps any"),
        ({"phases": [CLOSED], "processes": 3}, "`closed.callers` is 2 and must be at least `processes`"),
        ({"phases": [CLOSED], "proceses": 2}, "unknown field `proceses`"),
        ({"phases": [CLOSED], "pool": "$pool"}, r"\$pool is used and not among the parameters"),
        ({"phases": [CLOSED], "parameters": {"pool": 3}}, "parameters.pool: nothing uses it"),
        ({"phases": [CLOSED], "parameters": {"pool": [3]}}, "parameters: must map names to numbers"),
        ({"phases": [CLOSED], "short": {"pool": 3}}, "short: there is no parameter 'pool'"),
    ],
)
def test_what_is_wrong_is_named(document: dict[str, Any], words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        parsed(document)


def test_files_that_are_no_profiles(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no profile 'stedy'; there are burst, callers, churn"):
        profile_files.load("stedy")
    with pytest.raises(ProfileError, match="the command line: there is no parameter 'rat'; there are rate"):
        profile_files.load("steady", given={"rat": "3"})
    (tmp_path / "a.yaml").write_text("what: [")
    with pytest.raises(ProfileError, match=r"a\.yaml: while parsing"):
        profile_files.load("a", folder=tmp_path)
    (tmp_path / "b.yaml").write_text("- 3")
    with pytest.raises(ProfileError, match=r"b\.yaml: must be a mapping"):
        profile_files.load("b", folder=tmp_path)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False), st.text(max_size=5)
)
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["what", "phases", "name", "closed", "open", "rest", "steps", "exec", "pool", "callers"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(documents)
def test_any_document_is_a_profile_or_an_error_with_a_message(document: Any) -> None:
    try:
        loaded = profile_files.parse(document, name="t", short=False, given={})
    except ProfileError as error:
        assert str(error)
    else:
        assert loaded.profile.phases
