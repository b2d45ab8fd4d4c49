"""The frameworks that make rollouts for the load tests: the Python and the program of each, and how to find its sandboxes.

`python -m loadtests.code_env.frameworks` makes their environments; the cluster's network has no package index.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from loadtests.code_env.messages import Setup
from loadtests.load.generators import ROOT
from loadtests.load.places import PlaceFailed
from loadtests.load.profile import Framework, Profile
from tests.frameworks.harbor_results import ALONE
from tests.frameworks.installed import installed_sdk
from tests.frameworks.listed import frameworks
from tests.prime.environments import EnvironmentFailed, environment, make_all

PROGRAMS: dict[Framework, str] = {
    "verifiers": "loadtests.code_env.program",
    "verl": "loadtests.code_env.verl_program",
    "harbor": "loadtests.code_env.harbor_program",
}
QUIET = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}


def python_of(by: Framework) -> Path:
    """Return the Python of the environment in which the tests run it unmodified. Raises PlaceFailed."""
    try:
        return _environment(by)
    except EnvironmentFailed as error:
        raise PlaceFailed(f"{by} cannot be installed: {error}; is a package index reachable?") from error


def _environment(by: Framework) -> Path:
    """Return the Python of its environment. Raises EnvironmentFailed."""
    if by == "verifiers":
        return environment("verifiers", "0.1.14", also=("prime-sandboxes==0.2.36",))
    return frameworks()[by].environment()


def missing(profile: Profile) -> str | None:
    """Return why the framework of a profile's rollouts is not on this machine, or None."""
    try:
        for phase in profile.phases:
            if phase.rollouts is not None:
                python_of(phase.rollouts.by)
    except PlaceFailed as error:
        return str(error)
    return None


def variables(by: Framework, home: Path, setup: Setup) -> dict[str, str]:
    """Return the environment variables of its process; `home` takes its files."""
    if by != "harbor":
        return {"PYTHONPATH": str(ROOT)} | QUIET
    sdk = installed_sdk(home / "sdk")
    server = {"SANDLOT_URL": setup.url, "SANDLOT_API_KEY": setup.api_key}
    return {"PYTHONPATH": f"{ROOT}:{sdk}"} | server | ALONE


def of_phase(by: Framework, *, label: str, phase: str) -> tuple[tuple[str, ...], str | None]:
    """Return labels and run of the sandboxes of a phase."""
    if by == "verl":
        return ("sandbox-fusion",), None  # the gateway's own, for all phases
    if by == "harbor":
        return ("harbor",), f"{label}-{phase}"
    return (label, phase), None


if __name__ == "__main__":
    make_all((by, partial(_environment, by)) for by in PROGRAMS)
