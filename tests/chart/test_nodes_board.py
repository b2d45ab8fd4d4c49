"""A real Prometheus scrapes a node agent that prepares images: its board shows data, and a dead registry is noticed."""

from __future__ import annotations

from pathlib import Path

from tests.chart.boards import check_queries, scraped, until_active, watching
from tests.chart.prometheus import Target
from tests.chart.render import SANDBOXES, Resource
from tests.node.private_containerd import NEEDS_CONTAINERD, containerd, unmount_all
from tests.node.program import SLOW, Program
from tests.node.registries import OPEN, Layer, TestImage, registries, tell_nodes
from tests.ports import free_port

pytestmark = NEEDS_CONTAINERD
# What a Prometheus notices that scrapes nothing else.
OTHERS = ("SandlotNoGateway", "SandlotNoController")


def test_its_board_shows_data_and_a_dead_registry_is_noticed(
    everything: list[Resource], directory: Path
) -> None:
    with registries(directory) as registry, containerd(directory, certs=registry.certs) as daemon:
        program = Program(directory, daemon.socket)
        try:
            program.start()
            target = Target("node-agent", SANDBOXES, program.port)
            with watching(target, everything, directory) as server:
                registry.push("some", TestImage(layers=[Layer(files={"name": b"some"})]))
                assert program.prepare(f"{OPEN}/some:1").json()["status"] == "ready"
                scraped(server)
                check_queries(server, "node-agent")
                until_active(server, *OTHERS)

                tell_nodes(registry.certs, SLOW, f"127.0.0.1:{free_port()}")
                assert program.prepare(f"{SLOW}/other:1").json()["code"] == "unavailable"
                until_active(server, "SandlotImagesFail", *OTHERS)
        finally:
            program.clear()
            unmount_all(directory)
