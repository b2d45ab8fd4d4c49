"""Reads the name servers from /etc/resolv.conf before the first claim, unaffected by what user code writes later."""

from __future__ import annotations

import os
import socket

MOST_SERVERS = 3  # as many as libc uses
MOST_SEARCHED = 6
_MOST_BYTES = 64 << 10
_SOURCE = "/etc/resolv.conf"


class NameServers:
    """Resolver settings. `servers`: addresses in order; `search`: suffixes to try for an unknown name."""

    def __init__(self, text: str) -> None:
        self.servers: list[str] = []
        self.search: list[str] = []
        self.timeout, self.attempts = 5.0, 2
        for line in text.splitlines():
            words = line.split()
            if len(words) < 2:
                continue
            if words[0] == "nameserver" and _is_address(words[1]) and len(self.servers) < MOST_SERVERS:
                self.servers.append(words[1])
            elif words[0] in ("search", "domain"):
                self.search = [word.strip(".").lower() for word in words[1:]][:MOST_SEARCHED]
            elif words[0] == "options":
                for word in words[1:]:
                    self._option(word)

    def _option(self, word: str) -> None:
        name, _, value = word.partition(":")
        if value.isdigit() and name == "timeout":
            self.timeout = float(min(max(int(value), 1), 30))
        elif value.isdigit() and name == "attempts":
            self.attempts = min(max(int(value), 1), 5)

    def numbers(self) -> list[int]:
        """Return the IPv4 addresses as numbers."""
        return [int.from_bytes(socket.inet_aton(each), "big") for each in self.servers if ":" not in each]


def read(*, keep: str | None) -> NameServers:
    """Read the name servers. `keep`: a copy for a restart, as user code may change the file by then. Raises OSError."""
    if keep is not None and os.path.exists(keep):
        return NameServers(_text(keep))
    try:
        text = _text(_SOURCE)
    except FileNotFoundError:
        text = ""
    if keep is not None:
        os.makedirs(os.path.dirname(keep), mode=0o700, exist_ok=True)
        with open(f"{keep}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(f"{keep}.new", keep)
    return NameServers(text)


def _text(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(_MOST_BYTES).decode("utf-8", "replace")


def _is_address(text: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except OSError:
            continue
        return True
    return False
