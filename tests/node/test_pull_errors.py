"""What kind of failure containerd's text about a pull means: only a refusal by registry or token server is final."""

from __future__ import annotations

import pytest
from sandlot_node.containerd import pulls
from sandlot_node.failures import Kind

REFERENCE = "registry.example/team/image:1"
TOKEN = f'failed to pull and unpack image "{REFERENCE}": failed to resolve reference "{REFERENCE}": failed to authorize: '
GET = "unexpected status from GET request to https://auth.example/token?scope=repository%3Ateam%2Fimage%3Apull: "


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (f"failed to fetch anonymous token: {GET}401 Unauthorized", Kind.UNAUTHORIZED),
        (f"failed to fetch oauth token: {GET}403 Forbidden", Kind.UNAUTHORIZED),
        ("failed to fetch oauth token: unexpected status: 401 Unauthorized", Kind.UNAUTHORIZED),
        (f"failed to fetch anonymous token: {GET}429 Too Many Requests", Kind.UNAVAILABLE),
        (f"failed to fetch oauth token: {GET}503 Service Unavailable", Kind.UNAVAILABLE),
        (f"failed to fetch oauth token: {GET}400 Bad Request", Kind.UNAVAILABLE),
        (f"failed to fetch anonymous token: {GET}404 Not Found", Kind.UNAVAILABLE),
        (
            'failed to fetch anonymous token: Get "https://auth.example/token": dial tcp 192.0.2.1:443: i/o timeout',
            Kind.UNAVAILABLE,
        ),
        (
            'failed to fetch oauth token: Post "https://auth.example/token": context deadline exceeded',
            Kind.UNAVAILABLE,
        ),
        (
            'failed to fetch anonymous token: Get "https://auth.example/token": net/http: request canceled',
            Kind.UNAVAILABLE,
        ),
    ],
)
def test_only_a_refusal_of_the_token_server_is_one_of_credentials(reason: str, kind: Kind) -> None:
    assert pulls.failure(REFERENCE, TOKEN + reason, with_auth=True).kind is kind
