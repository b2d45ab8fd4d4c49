"""Figures of the unmodified matplotlib in cells of a Python context are PNG images, as its Agg backend draws them."""

from __future__ import annotations

import struct

import pytest
from sandlot import Client, RichOutput, Sandbox

from tests.prime.environments import CLIENTS, IndexUnreachable, environment
from tests.prime.not_installed import not_installed
from tests.prime.server import Server

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.timeout(300)]

DRAWN = """
import matplotlib.pyplot as plt
figure, axes = plt.subplots(figsize=(4, 2), dpi=50)
axes.plot([1, 4, 9])
plt.show()
plt.figure(figsize=(1, 1), dpi=50)
plt.plot([1, 2])
"""


def size(output: RichOutput) -> tuple[int, int]:
    """Width and height in pixels, of the header."""
    assert output.png is not None
    assert output.png.startswith(b"\x89PNG\r\n\x1a\n")
    assert output.png.endswith(b"IEND\xaeB`\x82")
    return struct.unpack(">II", output.png[16:24])


def test_figures_are_shown_by_show_and_at_the_end_of_the_cell(server: Server) -> None:
    try:
        python = environment(*next(client for client in CLIENTS if client[0] == "matplotlib"))
    except IndexUnreachable as error:
        not_installed("matplotlib", error)
    with (
        Client(url=server.url, api_key=server.api_key) as client,
        Sandbox.create(client=client) as box,
        box.python(interpreter=str(python), env={"HOME": "/tmp"}) as context,
    ):
        drawn = context.run(DRAWN)
        assert drawn.ok, drawn
        shown = [output for output in drawn.outputs if output.png is not None]
        (wide, high), small = map(size, shown)
        # Figures are cut to what is drawn.
        assert 80 < high < wide < 230, (wide, high)
        assert max(small) < 80, small
        assert [output.png for output in context.run("plt.show()").outputs] == []
        assert context.run("plt.get_backend().lower()").text == "'agg'"
