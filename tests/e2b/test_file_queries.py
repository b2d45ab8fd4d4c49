"""What the query of a request to /files may be: what was signed is what is read, and nothing is there twice."""

from __future__ import annotations

import time
from urllib.parse import urlencode

import pytest

from tests import plain_http
from tests.e2b.conftest import DOMAIN, Box, signed
from tests.stack import Stack

pytestmark = pytest.mark.root

SECRET = "/etc/passwd"


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("name", "value"), [("path", SECRET), ("username", "root"), ("signature", "v1_x")])
def test_a_signed_url_reads_only_what_was_signed(
    name: str, value: str, first: bool, box: Box, stack: Stack
) -> None:
    given = [*signed(box, "/etc/hostname").items(), *([("username", "")] if name == "username" else [])]
    query = urlencode([(name, value), *given] if first else [*given, (name, value)])
    host = {"Host": f"49983-{box.id}.{DOMAIN}"}
    answer = plain_http.get(f"{stack.url}/files?{query}", headers=host)
    assert (answer.status_code, answer.json()["code"]) == (400, 400), answer.text
    assert answer.json()["message"].startswith(f"{name}: ")


@pytest.mark.parametrize("time_of", ["9" * 5000, "-1", "1e9", "٣"])
def test_an_expiration_that_is_no_time_is_refused(time_of: str, box: Box, stack: Stack) -> None:
    query = {
        **signed(box, "/etc/hostname", expiration=int(time.time()) + 60),
        "signature_expiration": time_of,
    }
    host = {"Host": f"49983-{box.id}.{DOMAIN}"}
    answer = plain_http.get(f"{stack.url}/files", params=query, headers=host)
    assert answer.status_code == 400
    assert "signature_expiration" in answer.json()["message"]
