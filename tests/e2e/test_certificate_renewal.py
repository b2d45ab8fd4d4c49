"""The certificate's files change while the gateway runs: new connections get the new one, and no open one is cut."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import tempfile
from pathlib import Path

import trustme

from tests.certificates import Certificate, issued
from tests.ports import free_port
from tests.stack import Stack
from tests.waiting import until

FAILING = 'sandlot_reload_failing{file="certificate"} 1.0'


class Renewal:
    """A gateway with a certificate, and the certificate's successor of the same authority."""

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        for name in ("served", "new"):
            (directory / name).mkdir()
        self.served, self.new = (
            issued(directory / name, "127.0.0.1", authority=authority) for name in ("served", "new")
        )
        self.port = free_port()
        self.options = (
            *("--tls-cert", str(self.served.chain), "--tls-key", str(self.served.key)),
            *("--tls-host", "127.0.0.1", "--tls-port", str(self.port), "--metrics-public"),
        )

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def renew(self) -> None:
        shutil.copy(self.new.chain, self.served.chain)
        shutil.copy(self.new.key, self.served.key)

    async def presented(self) -> set[str]:
        """The certificates of new connections: for a moment both are served on the same port."""
        get = ssl.get_server_certificate
        return {await asyncio.to_thread(get, ("127.0.0.1", self.port)) for _ in range(8)}


def leaf(certificate: Certificate) -> str:
    end = "-----END CERTIFICATE-----\n"
    text = certificate.chain.read_text()
    return text[: text.index(end) + len(end)]


async def test_a_certificate_is_renewed_beside_open_connections(tmp_path: Path) -> None:
    renewal = Renewal(tmp_path)
    old, new = leaf(renewal.served), leaf(renewal.new)
    with (
        tempfile.TemporaryDirectory(prefix="sr-") as state,
        Stack(Path(state), options=renewal.options) as stack,
    ):
        assert await renewal.presented() == {old}
        async with (
            renewal.served.client(renewal.url, api_key=stack.api_key, http2=True) as client,
            renewal.served.client(renewal.url, api_key=stack.api_key, http2=False) as plain,
        ):
            answer = await client.post("/api/v1/sandbox", json={"docker_image": "host"})
            assert answer.status_code == 201, (answer.status_code, answer.text)
            made = answer.json()
            command = {"command": "touch /tmp/began; until [ -e /tmp/go ]; do sleep 0.05; done; echo done"}
            path = f"/sbx/{made['id']}/exec"
            running = [asyncio.create_task(each.post(path, json=command)) for each in (client, plain)]

            async def ran(command: str) -> str:
                async with renewal.served.client(renewal.url, api_key=stack.api_key, http2=False) as fresh:
                    answer = await fresh.post(path, json={"command": command})
                assert answer.status_code == 200, (answer.status_code, answer.text)
                return answer.json()["stdout"]

            async def is_failing() -> bool:
                async with renewal.served.client(renewal.url, api_key=stack.api_key, http2=False) as fresh:
                    return FAILING in (await fresh.get("/metrics")).text

            async def began() -> bool:
                return "began" in await ran("ls /tmp")

            await until(began)

            renewal.served.key.write_text("no key")
            await until(lambda: "the earlier one stays" in stack.log())
            await until(is_failing)
            assert await renewal.presented() == {old}

            renewal.renew()

            async def is_renewed() -> bool:
                return await renewal.presented() == {new} and not await is_failing()

            await until(is_renewed)
            assert not await is_failing()
            await ran("touch /tmp/go")
            assert [(await each).text for each in running if (await each).status_code != 200] == []
            assert (await client.get("/api/v1/user/whoami")).status_code == 200
        assert "no key" not in stack.log()
