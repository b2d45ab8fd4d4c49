"""For all tests: what they start is interrupted as from a terminal; those of a cluster wait to be named."""

from __future__ import annotations

import signal
import sys

from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers

pytest_plugins = [
    "tests.plugins.collected",
    "tests.plugins.longest_first",
    "tests.plugins.skips",
    "tests.plugins.unstable",
    "tests.plugins.warned",
    "tests.plugins.worker",
]

# They need a cluster of `make test-cluster`, which names them; a run of everything passes over them.
collect_ignore = ["kubernetes", "cluster/test_live.py"]


# httpcore tries to import it in every call. A module that is not there is looked for in all paths each time, 1 ms.
sys.modules.setdefault("sniffio", None)  # pyright: ignore[reportArgumentType]

# How long an example takes is the machine's doing. A commit has the same examples in each run, so that one that fails
# is its own; `--hypothesis-profile=explore` looks for others.
settings.register_profile("sandlot", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, derandomize=False)
# For `make mutation`: a failure is enough, and the same one each time.
settings.register_profile(
    "mutation", deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("sandlot")

_constants_of_modules = providers._get_local_constants


def _constants() -> object:
    """Hypothesis takes constants from the source of all modules that are loaded, which depends on the tests before."""
    explores = settings.get_current_profile_name() == "explore"
    return _constants_of_modules() if explores else providers._local_constants


providers._get_local_constants = _constants  # pyright: ignore[reportAttributeAccessIssue]


def pytest_configure() -> None:
    # A shell's background job ignores both, and so would every process that a test starts and interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
