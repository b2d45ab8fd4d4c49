"""smolagents' own tests of executors, of its sdist, with SandlotExecutor; pytest of its environment runs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from sandlot.integrations.smolagents import SandlotExecutor

# The sdist lacks this module, whose mark skips what needs Docker or a cloud; nothing of that runs here.
markers = ModuleType("tests.utils.markers")
markers.require_run_all = pytest.mark.skip  # type: ignore[attr-defined]
sys.modules.update({"tests.utils": ModuleType("tests.utils"), markers.__name__: markers})

from tests.test_remote_executors import CommonDockerExecutorIntegration  # noqa: E402


class TestSandlotExecutor(CommonDockerExecutorIntegration):
    @pytest.fixture
    def custom_executor(self) -> Iterator[SandlotExecutor]:
        # Docker's installs pillow and numpy by pip; this environment has them.
        with SandlotExecutor(interpreter=sys.executable) as executor:
            yield executor
