"""The command and stop signal in an image's configuration, also of one that an earlier version unpacked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sandlot_gateway.backends.local.images import ImageStore

from tests.local.conftest import root_of
from tests.local.oci import entry, layer, one_image


@pytest.mark.parametrize(
    ("config", "command"),
    [
        ({}, ()),
        ({"Entrypoint": None, "Cmd": ["sh", "-c", "x"]}, ("sh", "-c", "x")),
        ({"Entrypoint": ["/init"], "Cmd": None}, ("/init",)),
        ({"Entrypoint": [""], "Cmd": ["sh"]}, ("sh",)),
        ({"Entrypoint": "/init", "Cmd": [7, "a"]}, ("/init", "a")),
        ({"Entrypoint": {}, "Cmd": 3}, ()),
        ({"Cmd": ["\ud800"]}, ("\ud800",)),
    ],
)
async def test_the_command_of_an_image(
    store: ImageStore, tmp_path: Path, config: dict[str, object], command: tuple[str, ...]
) -> None:
    path = one_image([layer(entry("a"))], config=config).archive(tmp_path / "i.tar")
    image = await store.prepare(str(path))
    assert (image.command, image.stop_signal) == (command, "")


async def test_one_that_an_earlier_version_unpacked_gets_its_command(
    store: ImageStore, tmp_path: Path
) -> None:
    path = one_image([layer(entry("a"))], config={"Cmd": ["serve"], "StopSignal": "INT"}).archive(
        tmp_path / "i.tar"
    )
    root = await root_of(store, path)
    forget_command(root.parent / "image.json")
    again = ImageStore(root.parent.parent)
    again.open()
    image = await again.prepare(str(path))
    assert (image.command, image.stop_signal) == (("serve",), "INT")
    await again.close(timeout=60)


def forget_command(path: Path) -> None:
    settings = json.loads(path.read_text())
    del settings["command"], settings["stop_signal"]
    path.write_text(json.dumps(settings))
