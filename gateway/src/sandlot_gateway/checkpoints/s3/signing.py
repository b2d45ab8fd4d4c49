"""Signs requests to S3 with AWS Signature Version 4, with credentials from the environment or a file."""

from __future__ import annotations

import configparser
import hashlib
import hmac
import os
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from sandlot_gateway.checkpoints.errors import StoreError, Trouble

_SAFE = "-_.~"
_FILE = "AWS_SHARED_CREDENTIALS_FILE"
_NONE = (
    "no credentials for checkpoint_s3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name with"
    f" {_FILE} a file that has both (chart value gateway.checkpoints.s3.credentialsSecret)"
)


class Keys(msgspec.Struct, frozen=True):
    """An access key, which may be temporary."""

    id: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        return "Keys(...)"  # a secret must not reach a log


class Credentials:
    """Reads the file again when it has changed, so that a new Secret needs no restart."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._read_at: tuple[int, int] | None = None
        self._from_file: Keys | None = None

    def current(self) -> Keys:
        """Return the keys. Raises StoreError."""
        given = self._environment
        if path := given.get(_FILE):
            return self._of_file(Path(path), profile=given.get("AWS_PROFILE") or "default")
        key, secret = given.get("AWS_ACCESS_KEY_ID"), given.get("AWS_SECRET_ACCESS_KEY")
        if not key or not secret:
            raise StoreError(_NONE, trouble=Trouble.REFUSED)
        return Keys(key, secret, given.get("AWS_SESSION_TOKEN", ""))

    def _of_file(self, path: Path, *, profile: str) -> Keys:
        try:
            found = path.stat()
            changed = (found.st_mtime_ns, found.st_ino)
            if self._from_file is None or changed != self._read_at:
                parser = configparser.RawConfigParser(default_section="")
                parser.read_string(path.read_text())
                entry = parser[profile]
                keys = Keys(
                    entry["aws_access_key_id"],
                    entry["aws_secret_access_key"],
                    entry.get("aws_session_token", ""),
                )
                self._from_file, self._read_at = keys, changed
        except (OSError, KeyError, ValueError, configparser.Error) as error:
            # Not the error's own text, which may quote the file.
            text = (
                f"the file of {_FILE} cannot be used ({type(error).__name__}): it needs a section [{profile}] with"
                " aws_access_key_id and aws_secret_access_key"
            )
            raise StoreError(text, trouble=Trouble.REFUSED) from None
        return self._from_file


def encoded_query(query: Mapping[str, str]) -> str:
    return "&".join(f"{quote(name, safe=_SAFE)}={quote(query[name], safe=_SAFE)}" for name in sorted(query))


def encoded_path(path: str) -> str:
    return quote(path, safe=f"{_SAFE}/")


def signed(
    method: str,
    *,
    host: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
    region: str,
    keys: Keys,
) -> dict[str, str]:
    """Return all headers of a request; `path` and `query` are encoded. The body's hash is signed, so a store finds damage."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    digest = hashlib.sha256(body).hexdigest()
    sent = {name.lower(): value for name, value in headers.items()}
    sent |= {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    if keys.token:
        sent["x-amz-security-token"] = keys.token
    names = ";".join(sorted(sent))
    lines = "".join(f"{name}:{sent[name].strip()}\n" for name in sorted(sent))
    canonical = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{digest}"
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    to_sign = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, to_sign.encode(), "sha256").hexdigest()
    sent["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys.id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return sent
