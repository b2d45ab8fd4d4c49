"""Where connections go in a network namespace of its own: one address before several gateways, as a Service is, and
several processes behind the addresses of all pods. Needs root and nft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address

from sandlot_contract.ports import SIDECAR_PORT

HOST = "127.0.0.1"


async def point(ports: Sequence[int], hosts: Sequence[str]) -> None:
    """Let new connections to `HOST` on these ports go to the same port of these hosts in turn. Raises RuntimeError."""
    targets = ", ".join(f"{number} : {host}" for number, host in enumerate(hosts))
    turn = f"numgen inc mod {len(hosts)} map {{ {targets} }}"
    asked = ", ".join(map(str, ports))
    await _rule("gateways", f"ip daddr {HOST} tcp dport {{ {asked} }} dnat to {turn}")


async def share_sidecars(ports: Sequence[int]) -> None:
    """Let each of these ports have the sidecars of its share of all addresses; a power of two of them. Raises
    RuntimeError.
    """
    targets = ", ".join(f"0.0.0.{number} : {port}" for number, port in enumerate(ports))
    part = f"ip daddr and 0.0.0.{len(ports) - 1} map {{ {targets} }}"
    await _rule("sidecars", f"tcp dport {SIDECAR_PORT} redirect to :{part}")


def has_sidecar(address: str, port: int, ports: Sequence[int]) -> bool:
    """Return whether the sidecar of this IPv4 address is among those of `port`, of all of `share_sidecars`."""
    return int(ip_address(address)) % len(ports) == ports.index(port)


async def _rule(table: str, rule: str) -> None:
    """Replace the table's rule. It goes with the network namespace."""
    text = f"""
        table ip {table} {{}}
        delete table ip {table}
        table ip {table} {{
            chain output {{
                type nat hook output priority -100;
                {rule}
            }}
        }}
    """
    process = await asyncio.create_subprocess_exec(
        "nft", "-f", "-",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, error = await process.communicate(text.encode())
    if process.returncode != 0:
        raise RuntimeError(f"nft cannot direct connections to {table}: {error.decode().strip()}")
