"""Address and credentials of the API server, from a pod's service account or a kubeconfig."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandlot_kube.errors import BadKubeConfig

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class TokenFile:
    """A bearer token in a file that is renewed; reads the file again whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def read(self) -> str:
        """Return the token. Raises OSError."""
        stat = os.stat(self.path)
        seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if seen != self._seen:
            self._token = self.path.read_text().strip()
            self._seen = seen
        return self._token


@dataclass(slots=True)
class Access:
    """One API server and one identity; `ssl` is None for plain HTTP."""

    server: str  # https://host:port, without a trailing slash
    ssl: ssl.SSLContext | None = None
    server_name: str | None = None  # expected in the certificate, if not the host
    token: str | TokenFile | None = field(default=None, repr=False)
    namespace: str = "default"

    def bearer(self) -> str | None:
        """Return the current token. Raises OSError."""
        return self.token.read() if isinstance(self.token, TokenFile) else self.token


def from_environment(context: str | None = None, *, environ: Mapping[str, str] = os.environ) -> Access:
    """Return a pod's service account, unless a context is named; else the kubeconfig. Raises BadKubeConfig."""
    host = environ.get("KUBERNETES_SERVICE_HOST")
    if context is None and host and not environ.get("KUBECONFIG") and (SERVICE_ACCOUNT / "token").exists():
        return in_cluster(host=host, port=environ.get("KUBERNETES_SERVICE_PORT", "443"))
    paths = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return from_kubeconfig(paths or [Path.home() / ".kube" / "config"], context=context)


def in_cluster(*, host: str, port: str, directory: Path = SERVICE_ACCOUNT) -> Access:
    """Return the access of a pod's service account. Raises BadKubeConfig."""
    try:
        context = _ssl_context(ca=(directory / "ca.crt").read_text())
        namespace = (directory / "namespace").read_text().strip()
        token = TokenFile(directory / "token")
        token.read()
    except (OSError, ssl.SSLError) as error:
        raise BadKubeConfig(f"cannot use the service account in {directory}: {error}") from error
    host = f"[{host}]" if ":" in host else host
    return Access(f"https://{host}:{port}", context, token=token, namespace=namespace)


def from_kubeconfig(paths: list[Path], *, context: str | None = None) -> Access:
    """Return the named or the current context; of entries with one name the first counts. Raises BadKubeConfig."""
    configs = [(path, _load(path)) for path in paths if path.exists()]
    if not configs:
        raise BadKubeConfig(
            f"no kubeconfig at {', '.join(map(str, paths))}, and this is not a pod: set KUBECONFIG"
        )
    name = context or next((text for _, config in configs if (text := config.get("current-context"))), None)
    if not name:
        raise BadKubeConfig(f"{paths[0]}: current-context is not set: set it or name a context")
    chosen, _ = _find(configs, "contexts", "context", name)
    cluster, base = _find(configs, "clusters", "cluster", str(chosen.get("cluster")))
    if chosen.get("user"):
        user, user_base = _find(configs, "users", "user", str(chosen["user"]))
    else:
        user, user_base = {}, base
    for key in ("exec", "auth-provider", "username"):
        if user.get(key):
            raise BadKubeConfig(
                f"user {chosen['user']!r}: {key} is not supported; use a certificate or a token"
            )
    if cluster.get("proxy-url"):
        raise BadKubeConfig(f"cluster {chosen['cluster']!r}: proxy-url is not supported")
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise BadKubeConfig(
            f"cluster {chosen['cluster']!r}: server {server!r} is not an http:// or https:// URL"
        )
    try:
        return Access(
            server,
            _context_of(cluster, base, user, user_base) if server.startswith("https:") else None,
            server_name=cluster.get("tls-server-name"),
            token=_token_of(user, user_base),
            namespace=str(chosen.get("namespace") or "default"),
        )
    except (OSError, ssl.SSLError, binascii.Error, UnicodeDecodeError) as error:
        raise BadKubeConfig(f"context {name!r} cannot be used: {error}") from error


def _load(path: Path) -> dict[str, Any]:
    import yaml  # imported only for a kubeconfig, which a pod lacks

    try:
        config = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise BadKubeConfig(f"cannot read the kubeconfig {path}: {error}") from error
    if not isinstance(config, dict):
        raise BadKubeConfig(f"{path} is not a kubeconfig: it must be a YAML mapping")
    return config


def _find(
    configs: list[tuple[Path, dict[str, Any]]], plural: str, singular: str, name: str
) -> tuple[dict[str, Any], Path]:
    """Return the entry, and the directory that its relative paths start at. Raises BadKubeConfig."""
    for path, config in configs:
        for entry in config.get(plural) or []:
            if isinstance(entry, dict) and entry.get("name") == name:
                return entry.get(singular) or {}, path.parent
    raise BadKubeConfig(f"the kubeconfig has no {singular} {name!r}")


def _context_of(cluster: dict[str, Any], base: Path, user: dict[str, Any], user_base: Path) -> ssl.SSLContext:
    ca = _content(cluster, "certificate-authority", base)
    context = _ssl_context(ca=None if ca is None else ca.decode())
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = _content(user, "client-certificate", user_base)
    key = _content(user, "client-key", user_base)
    if certificate is not None and key is not None:
        # OpenSSL loads certificates from files only; this one has mode 0600 and is deleted at once.
        with tempfile.NamedTemporaryFile(prefix="kube-") as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _ssl_context(*, ca: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca)
    # Python 3.13 sets this flag, and many clusters' CA certificates lack an extension that it requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _token_of(user: dict[str, Any], base: Path) -> str | TokenFile | None:
    if user.get("token"):
        return str(user["token"])
    if user.get("tokenFile"):
        token = TokenFile(base / str(user["tokenFile"]))
        token.read()
        return token
    return None


def _content(entry: dict[str, Any], name: str, base: Path) -> bytes | None:
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(data, validate=True)
    if path := entry.get(name):
        return (base / str(path)).read_bytes()
    return None
