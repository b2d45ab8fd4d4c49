"""A redactor removes a secret wherever it stands, and leaves what tells of the installation."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from sandlot.cli.cluster.redaction import Redactor, secrets_in

# Each looks like nothing that a pattern knows, so that only its place or its being known removes it.
PLAIN = "correct horse"
WORD = "swordfish-9"
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"
MIXED = "Zx81kQpL0aVn47TyHsW2eRu9BmCd5fGj6iKoNqXt"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzYW5kbG90In0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "value",
    [
        {"name": "SANDLOT_TOKEN", "value": WORD},
        {"name": "DB_PASSWORD", "value": WORD},
        {"name": "SANDLOT_API_KEYS", "value": WORD},
        {"name": "CONFIG", "value": json.dumps({"instance_id": "i-1", "token": WORD})},
        {"name": "CONFIG", "value": json.dumps({"inner": json.dumps([{"clientSecret": WORD}])})},
        {"auths": {"registry.example": {"auth": WORD, "password": WORD}}},
        {"spec": {"token": WORD}},
        {"args": ["--token", WORD, "--verbose"]},
        {"args": [f"--api-key={WORD}"]},
        {"args": [f"--password=Tr0ub4dor&{WORD}"]},
        {"args": [f"--password=a b, {WORD}"]},
        {"args": [f"DB_PASSWORD=a b; {WORD}"]},
        {"tokens": [WORD]},
        {"tokens": [f"a={WORD}"]},
        {"secrets": {"of": [{"mine": WORD}]}},
        {"message": f"run --password=Tr0ub4dor&{WORD} now"},
        {"message": f"password=(a,b;c)]{WORD}"},
        {"message": f'"password": "correct horse {WORD}", "n": 1'},
        {"message": f"'password': 'correct \"horse {WORD}'"},
        {"message": f'password="correct horse {WORD}'},
        {"message": "nested " + json.dumps(json.dumps({"token": f'a "b" c {WORD}'}))},
        {"message": f"Authorization: Token {WORD}"},
        {"message": f"curl -H 'Proxy-Authorization: Digest a=b, c={WORD}' http://h"},
        {"message": f"GET https://user:p@{WORD}@registry.example/v2/"},
        {
            "metadata": {
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": f'{{"x": "{WORD}"}}'}
            }
        },
        {"metadata": {"annotations": {"example.com/access-key": WORD}}},
        {"message": f"login failed: password={WORD}"},
        {"message": f'sent "secret": "{WORD}", got 403'},
        {"message": f"nested {json.dumps(json.dumps({'token': WORD}))}"},
        {"message": f"GET https://user:{WORD}@registry.example/v2/"},
        {"message": f"Authorization: Bearer {WORD}"},
        {"message": f"cookie {HEX}"},
        {"message": f"cookie {MIXED}"},
        {"message": f"cookie {JWT}"},
        {"message": f"-----BEGIN RSA PRIVATE KEY-----\n{WORD}\n-----END RSA PRIVATE KEY-----"},
        {"message": f"-----BEGIN PRIVATE KEY-----\n{WORD} and then cut off"},
    ],
    ids=str,
)
def test_what_its_place_or_form_tells_is_removed(value: dict[str, Any]) -> None:
    shown = json.dumps(Redactor().value(value))
    for secret in (WORD, HEX, MIXED, JWT):
        assert secret not in shown
    assert "removed" in shown or "annotations" in shown


@pytest.mark.parametrize("secret", [PLAIN, WORD, f"{WORD}:training:2000", f"one-key-1\n{WORD}:research\n"])
def test_a_known_value_is_removed_everywhere_and_in_base64(secret: str) -> None:
    redactor = Redactor([secret])
    word = next(each for each in (WORD, PLAIN) if each in secret)
    encoded = base64.b64encode(word.encode()).decode()
    for text in (f"a log line with {word} in it", f"x={encoded}", f"http://h/?q={word}"):
        assert word not in redactor.text(text)
        assert encoded.rstrip("=") not in redactor.text(text)
    assert word not in json.dumps(redactor.value({"anywhere": [f"<{word}>"]}))


def test_one_of_many_tokens_is_removed_as_a_word() -> None:
    redactor = Redactor(tokens=[f"{WORD}{number}" for number in range(10_000)])
    assert redactor.text(f'"{WORD}77", {WORD}9999 and {WORD}x') == f'"(removed)", (removed) and {WORD}x'


@pytest.mark.parametrize(
    "part",
    [
        "token",
        "eyJ-",
        "://",
        "Bearer ",
        "aB1+",
        "password=",
        "password='",
        "authorization: ",
        "authorization\n:",
        "a@",
        "-----BEGIN PRIVATE KEY-----",
        "\\",
    ],
)
def test_a_long_line_of_parts_of_secrets_takes_no_quadratic_time(part: str) -> None:
    """With it, this would take longer than a test may."""
    assert Redactor().text(part * 300_000)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ('{"password": "a b", "n": 1}', '{"password": "(removed)", "n": 1}'),
        (r'"{\"token\": \"a b\", \"n\": 1}"', r'"{\"token\": \"(removed)\", \"n\": 1}"'),
        ("run --password=a&b --verbose", "run --password=(removed) --verbose"),
        ("curl -H 'Authorization: Token a b' http://h", "curl -H 'Authorization: (removed)' http://h"),
        ("Authorization: Token a b\nHost: h", "Authorization: (removed)\nHost: h"),
        ("https://u:p@ss@h/a@b", "https://(removed)@h/a@b"),
    ],
)
def test_what_follows_a_secret_stays(text: str, cleaned: str) -> None:
    assert Redactor().text(text) == cleaned


def test_the_texts_below_a_telling_name_are_secrets_elsewhere_too() -> None:
    value = {"tokens": ["one"], "secret": {"of": {"mine": "two"}, "secretName": "sandlot"}, "size": "large"}
    assert list(secrets_in(value)) == ["one", "two"]
    assert list(secrets_in({"value": json.dumps([{"token": ["three"]}])})) == ["three"]


KEPT: list[Any] = [
    {"name": "SANDLOT_KEY_FILE", "value": "/etc/sandlot/master/master"},
    {"name": "SANDLOT_TLS_KEY", "value": "/etc/sandlot/tls/tls.key"},
    {"name": "SANDLOT_NAMESPACE", "value": "sandlot-sandboxes"},
    {"secret": {"secretName": "sandlot-master", "defaultMode": 288}},
    {"env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "sandlot-master", "key": "master"}}}]},
    {"imagePullSecrets": [{"name": "registry"}], "automountServiceAccountToken": False},
    {"image": "registry.example/sandlot/gateway@sha256:" + "0a" * 32},
    {"uid": "123e4567-e89b-12d3-a456-426614174000", "templateKey": "9f86d081884c7d65"},
    {"message": 'MountVolume.SetUp failed for volume "master" : secret "sandlot-master" not found'},
    {"message": "secrets is forbidden: User cannot list resource in the namespace sandlot"},
    {
        "path": "/var/lib/kubelet/pods/123e4567-e89b-12d3-a456-426614174000/volumes/kubernetes.io~secret/master"
    },
    {"name": "requiredDuringSchedulingIgnoredDuringExecution"},
    {"size": 4, "ratio": 0.5, "on": True, "nothing": None},
    'sandlot_requests_total{route="exec",code="2xx",verdict="exited"} 12.0',
]


@pytest.mark.parametrize("value", KEPT, ids=str)
def test_what_tells_of_the_installation_stays(value: Any) -> None:
    assert Redactor(["swordfish-9"]).value(value) == value
