"""What an S3 server that does not do its work makes a store of checkpoints say, and how soon; no real one is needed."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from sandlot_contract.ids import SandboxId
from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import StoreError, Trouble
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.s3.records import Record
from sandlot_gateway.checkpoints.s3.signing import Credentials, Keys, signed
from sandlot_gateway.checkpoints.s3.store import S3Store
from sandlot_gateway.checkpoints.service import Checkpoints
from sandlot_gateway.checkpoints.temporary import Use
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.fork_copies import copied
from sandlot_gateway.control.services import Services
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.e2b.failures import Problem
from sandlot_gateway.e2b.pauses import Pauses
from sandlot_gateway.s3_place import place
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.checkpoint_documents import checkpoint
from tests.ports import free_port
from tests.s3.http_servers import SLOW_DOWN, answering

SECRET = "the-secret-key"
KEYS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": SECRET}


def store_at(url: str, **options: float) -> S3Store:
    return S3Store(
        place("s3://box/kept", endpoint=url), limits=StoreLimits(), credentials=Credentials(KEYS), **options
    )


def error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()


@pytest.mark.parametrize(
    ("status", "body", "trouble", "told"),
    [
        (
            404,
            error("NoSuchBucket"),
            Trouble.REFUSED,
            "the bucket 'box' of checkpoint_s3 does not exist: create it",
        ),
        (
            403,
            error("AccessDenied"),
            Trouble.REFUSED,
            r"refuses PUT in the bucket 'box' \(AccessDenied\): correct its",
        ),
        (403, b"", Trouble.REFUSED, r"\(AccessDenied\)"),
        (
            403,
            error("SignatureDoesNotMatch"),
            Trouble.REFUSED,
            r"\(SignatureDoesNotMatch\): correct its credentials",
        ),
        (503, SLOW_DOWN, Trouble.DOWN, r"overloaded or broken \(503 SlowDown\): try again"),
        (500, b"oops", Trouble.DOWN, r"overloaded or broken \(500\)"),
        (507, error("InsufficientStorage"), Trouble.FULL, "the bucket 'box' of checkpoints is full"),
        (
            501,
            error("NotImplemented"),
            Trouble.REFUSED,
            "answers PUT in the bucket 'box' with 501 NotImplemented",
        ),
        (
            200,
            b"",
            Trouble.REFUSED,
            "ignores If-None-Match, so gateways would overwrite .* use one with conditional",
        ),
    ],
    ids=[
        "no bucket",
        "denied",
        "denied without a body",
        "signature",
        "slow down",
        "broken",
        "full",
        "unknown",
        "lax",
    ],
)
def test_each_failure_says_what_to_do(status: int, body: bytes, trouble: Trouble, told: str) -> None:
    with answering(lambda method, path: (status, body)) as url:
        store = store_at(url)
        with pytest.raises(StoreError, match=told) as failed:
            store.begin(checkpoint())
        store.close()
    assert failed.value.trouble is trouble
    assert failed.value.strerror == str(failed.value)
    assert SECRET not in str(failed.value)


def test_a_gateway_starts_without_a_store_that_is_down_and_not_without_one_that_refuses() -> None:
    answers = [(503, SLOW_DOWN)]
    with answering(lambda method, path: answers[0]) as url:
        store = store_at(url)
        store.check()
        answers[0] = (403, error("AccessDenied"))
        with pytest.raises(StoreError, match="AccessDenied"):
            store.check()
        store.close()


@pytest.mark.parametrize(
    ("status", "body"), [(503, SLOW_DOWN), (400, error("RequestTimeout"))], ids=["slow down", "timeout"]
)
def test_a_store_that_is_overloaded_for_a_moment_is_asked_again(status: int, body: bytes) -> None:
    left = [2]

    def answer(method: str, path: str) -> tuple[int, bytes]:
        left[0] -= 1
        return (status, body) if left[0] >= 0 else (404, error("NoSuchKey"))

    with answering(answer) as url:
        store = store_at(url)
        assert store.get(f"cp-{'0' * 24}") is None
        store.close()
    assert left == [-1]


def test_a_store_that_says_nothing_or_is_not_there_fails_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (silent.getsockname()[1], free_port()):
            store = store_at(f"http://127.0.0.1:{port}", answer_within=0.2)
            begun = time.monotonic()
            with pytest.raises(StoreError, match=r"does not answer \(\w+\): try again") as failed:
                store.all()
            assert time.monotonic() - begun < 30
            assert failed.value.trouble is Trouble.DOWN
            store.close()


def test_an_answer_that_is_no_s3_is_told() -> None:
    with answering(lambda method, path: (200, b"<html>welcome")) as url:
        store = store_at(url)
        with pytest.raises(
            StoreError, match=r"does not speak S3 as expected .*correct checkpoint_s3_endpoint"
        ):
            store.all()
        store.close()


def test_an_answer_without_its_headers_is_told() -> None:
    with answering(lambda method, path: (200, b"{}"), headers=()) as url:
        store = store_at(url)
        with pytest.raises(
            StoreError, match=r"expected \(its answer has no header Last-Modified\)"
        ) as failed:
            store.get(f"cp-{'0' * 24}")
        store.close()
    assert failed.value.trouble is Trouble.REFUSED


def test_credentials_of_a_file_are_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    credentials = Credentials({"AWS_SHARED_CREDENTIALS_FILE": str(path), **KEYS})
    with pytest.raises(
        StoreError, match=r"AWS_SHARED_CREDENTIALS_FILE cannot be used .*aws_secret_access_key"
    ):
        credentials.current()
    path.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b%c\n")
    assert credentials.current() == Keys("a", "b%c")
    path.with_name("new").write_text(
        "[default]\naws_access_key_id=d\naws_secret_access_key=e\naws_session_token=f\n"
    )
    os.replace(path.with_name("new"), path)
    assert credentials.current() == Keys("d", "e", "f")
    path.write_text(f"[default]\naws_secret_access_key = {SECRET}\nno key\n")
    with pytest.raises(StoreError) as failed:
        credentials.current()
    assert SECRET not in f"{failed.value} {Keys('a', SECRET)!r}"
    with pytest.raises(StoreError, match="no credentials for checkpoint_s3: set AWS_ACCESS_KEY_ID"):
        Credentials({}).current()


def test_the_signature_is_amazons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Amazon's own example: GET Object of examplebucket/test.txt with a range."""
    monkeypatch.setattr(time, "strftime", lambda *_: "20130524T000000Z")
    sent = signed(
        "GET",
        host="examplebucket.s3.amazonaws.com",
        path="/test.txt",
        query="",
        headers={"Range": "bytes=0-9"},
        body=b"",
        region="us-east-1",
        keys=Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    )
    assert sent["authorization"].endswith(
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


@pytest.mark.parametrize(
    ("text", "endpoint", "told"),
    [
        ("box/kept", None, "must be s3://BUCKET"),
        ("s3://Box", None, "must be s3://BUCKET"),
        ("s3://box/a/../b", None, "must have no"),
        ("s3://box", "s3.example.com", "must be a URL"),
        ("s3://box", "https://user:pass@s3.example.com", "must be a URL"),
        ("s3://box", "https://:pass@s3.example.com", "must be a URL"),
        ("s3://box", "https://s3.example.com#part", "must be a URL"),
        ("s3://box", "https://s3.example.com/path", "must be a URL"),
    ],
)
def test_a_place_that_is_none_is_refused(text: str, endpoint: str | None, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        place(text, endpoint=endpoint)
    assert "pass" not in str(refused.value)


def test_places() -> None:
    assert place("s3://box").prefix == ""
    assert place("s3://box/a/b/").prefix == "a/b/"
    assert place("s3://box", region="eu-central-1").endpoint == "https://s3.eu-central-1.amazonaws.com"


class Answers:
    """A service of checkpoints in a bucket whose server answers reads with one DURABLE checkpoint, and writes as told."""

    def __init__(self, url: str) -> None:
        self.store = store_at(url)
        self.checkpoints = Checkpoints(self.store, pool=cast(HttpPool, None), max_bytes=1)


def durable() -> Checkpoint:
    made = Checkpoint(
        id=f"cp-{'0' * 24}",
        tenant="a",
        sandbox_id=SandboxId("sb-1"),
        docker_image="host",
        disk_size_bytes=1,
        created_at=1.0,
        updated_at=1.0,
    )
    made.state, made.expires_at = State.DURABLE, time.time() + 600.0
    return made


async def test_a_copy_that_cannot_be_kept_while_the_store_is_down_is_a_503() -> None:
    made = durable()
    document = msgspec.json.encode(Record(made, archive="x"))
    with answering(lambda method, path: (200, document) if method == "GET" else (503, SLOW_DOWN)) as url:
        have = Answers(url)
        with pytest.raises(ApiError, match="overloaded") as refused:
            await copied(
                cast(Sandbox, SimpleNamespace(tenant="a")),
                made.id,
                use=Use(own=made),
                keys=["key"],
                deadline=time.time() + 60.0,
                have=cast(Services, have),
            )
        have.store.close()
    assert refused.value.status == 503


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [(507, "InsufficientStorage", 507), (503, "SlowDown", 503), (403, "AccessDenied", 503)],
    ids=["full", "down", "refused"],
)
async def test_a_pause_tells_once_what_is_wrong_with_the_store(status: int, code: str, told: int) -> None:
    with answering(lambda method, path: (status, error(code))) as url:
        have = Answers(url)
        with pytest.raises(Problem) as refused:
            await Pauses(cast(Services, have)).of_tenant("a")
        with pytest.raises(StoreError) as failed:
            have.store.all()
        have.store.close()
    assert (refused.value.status, str(refused.value)) == (told, str(failed.value))
