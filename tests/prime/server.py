"""What a published client is pointed at, whichever backend is behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_port
from tests.prime.environments import client_env


@dataclass(frozen=True, kw_only=True)
class Server:
    """A gateway's address and key, and what else a client's script has to know of where it runs."""

    url: str
    api_key: str
    image: str  # that its sandboxes are made of; has Python, procps and a shell
    log: Callable[[], str]  # what a failed test should print
    tcp: bool = True  # whether it has ports for TCP exposures
    client_host: str = "127.0.0.1"  # where a sandbox reaches the client's machine
    script_seconds: float = 500.0  # in which a script of a client ends
    environment: dict[str, str] = field(default_factory=dict)  # more variables of the clients

    def variables(self, home: Path) -> dict[str, str]:
        """The environment of a client's process, whose files go below `home`."""
        script = {
            "SANDLOT_SCRIPT_IMAGE": self.image,
            "SANDLOT_SCRIPT_HOST": self.client_host,
            "SANDLOT_SCRIPT_PORT": str(free_port()),  # of a server in a sandbox
        }
        if self.tcp:
            script["SANDLOT_SCRIPT_TCP"] = "1"
        return {**client_env(home, url=self.url, api_key=self.api_key), **self.environment, **script}
