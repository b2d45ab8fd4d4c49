"""E2B's unmodified SDKs on the cluster: the tests of tests/frameworks, but those of a gateway's options and transports, of an
earlier SDK, and of the example of the page on templates.
"""

from __future__ import annotations

import pytest

from tests.frameworks.test_e2b import (
    test_every_method_that_is_built_works,
    test_the_code_interpreters_sdk_works,
    test_the_example_of_the_code_interpreters_page_works,
    test_the_example_of_the_page_works,
    test_the_javascript_example_of_the_page_works,
    test_the_javascript_sdks_work,
)
from tests.frameworks.test_e2b_methods import (
    test_every_method_of_the_javascript_sdk_that_works_is_called,
    test_every_method_of_the_python_sdk_that_works_is_called,
)
from tests.frameworks.test_e2b_templates import (
    test_templates_are_built_and_used,
    test_the_javascript_sdk_builds_templates,
)

__all__ = [
    "test_every_method_of_the_javascript_sdk_that_works_is_called",
    "test_every_method_of_the_python_sdk_that_works_is_called",
    "test_every_method_that_is_built_works",
    "test_templates_are_built_and_used",
    "test_the_code_interpreters_sdk_works",
    "test_the_example_of_the_code_interpreters_page_works",
    "test_the_example_of_the_page_works",
    "test_the_javascript_example_of_the_page_works",
    "test_the_javascript_sdk_builds_templates",
    "test_the_javascript_sdks_work",
]
pytestmark = pytest.mark.slow
