"""Every language of SandboxFusion, in images with real compilers and interpreters: `fusion_languages_suite.py` by its SDK."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import Client, Sandbox

from tests.frameworks.conftest import Run
from tests.prime.environments import WHOLE
from tests.stack import Stack, private_stack
from tests.toolchains.build import archive
from tests.toolchains.catalogue import ABSENT, IMAGES

pytestmark = [
    pytest.mark.clients,
    pytest.mark.root,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        WHOLE not in os.environ, reason="long, and gigabytes of compilers: set SANDLOT_WHOLE_SUITES"
    ),
]

HERE = Path(__file__).parent
PYTEST = ("-m", "pytest", "-q", "-rsf", "-c", "/dev/null", "--noconftest", "-p", "no:cacheprovider")
ONLY = os.environ.get("SANDLOT_FUSION_LANGUAGES", "").split()  # names of images, for a part
if unknown := set(ONLY) - {image.name for image in IMAGES}:
    raise pytest.UsageError(
        f"SANDLOT_FUSION_LANGUAGES: no such image: {', '.join(sorted(unknown))};"
        f" names of images are {', '.join(image.name for image in IMAGES)}"
    )


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    images = [image for image in IMAGES if not ONLY or image.name in ONLY]
    archives = {image.name: str(archive(image)) for image in images}
    places = [f"{language}={archives[image.name]}" for image in images for language in image.languages]
    everything_else = archives[images[0].name]
    with private_stack(
        "--fusion", ",".join([everything_else, *places]), "--fusion-sandboxes", "1"
    ) as running:
        with Client(url=running.url, api_key=running.api_key) as client:
            for path in archives.values():  # unpacks it, for which no request of run_code waits
                Sandbox.create(path, client=client, timeout=1800).delete()
        yield running


def test_every_language_runs_or_is_told_to_be_absent(run_suite: Run) -> None:
    words = [*PYTEST, str(HERE / "fusion_languages_suite.py")]
    if ONLY:
        languages = [language for image in IMAGES if image.name in ONLY for language in image.languages]
        words += ["-k", " or ".join(f"[{language}]" for language in languages)]
    run_suite(
        "sandbox-fusion",
        "languages of run_code",
        *words,
        seconds=3000,
        environment={"SANDLOT_FUSION_ABSENT": json.dumps(ABSENT)},
    )
