"""The script that puts gVisor on a node, run against a directory that stands for the node's root."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.chart.render import CHART, Resource, one, render

SCRIPT = CHART / "files" / "install-runsc.sh"
PLUGINS = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}


class Node:
    """`restarts` counts the lines that the restart command has written."""

    def __init__(self, directory: Path, *, version: int | None = 3) -> None:
        self.root, self.source = directory / "host", directory / "source"
        self.config = self.root / "etc/containerd/config.toml"
        self.config.parent.mkdir(parents=True)
        self.source.mkdir()
        for name in ("runsc", "containerd-shim-runsc-v1"):
            (self.source / name).write_text(f"#!/bin/sh\n# {name} 1\n")
        if version is not None:
            plugin = PLUGINS.get(version, "other")
            self.config.write_text(
                f'version = {version}\n[plugins."{plugin}".containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
            )
        self._log = directory / "restarts"
        self._log.touch()

    def install(
        self,
        *,
        restart: str | None = None,
        net_raw: str = "true",
        stats: str = "1m",
        files: str = "shared",
        flags: str = "",
    ) -> subprocess.CompletedProcess[str]:
        settings = ("runsc", net_raw, stats, files, flags)
        command = ("sh", "-c", restart or f"echo restarted >> {self._log}")
        return subprocess.run(
            ["sh", str(SCRIPT), str(self.root), str(self.source), *settings, *command],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    @property
    def restarts(self) -> int:
        return len(self._log.read_text().splitlines())


@pytest.mark.parametrize("version", [2, 3])
def test_installs_and_restarts_once(version: int, tmp_path: Path) -> None:
    node = Node(tmp_path, version=version)
    for _ in range(2):
        done = node.install()
        assert done.returncode == 0, done.stderr
    assert node.restarts == 1
    for name in ("runsc", "containerd-shim-runsc-v1"):
        installed = node.root / "usr/local/bin" / name
        assert installed.read_bytes() == (node.source / name).read_bytes()
        assert installed.stat().st_mode & 0o777 == 0o755
    plugins = tomllib.loads(node.config.read_text())["plugins"]
    assert plugins[PLUGINS[3]]["stats_collect_period"] == "1m"
    runtimes = plugins[PLUGINS[version]]["containerd"]["runtimes"]
    options = {
        "TypeUrl": "io.containerd.runsc.v1.options",
        "ConfigPath": "/etc/containerd/sandlot-runsc.toml",
    }
    assert runtimes["runsc"] == {
        "runtime_type": "io.containerd.runsc.v1",
        "pod_annotations": ["dev.gvisor.*"],
        "options": options,
    }
    assert runtimes["runc"] == {"runtime_type": "io.containerd.runc.v2"}


@pytest.mark.parametrize(
    ("lines", "stats", "wanted"),
    [
        ("  keep = 1\n", "2m", "2m"),
        ("  stats_collect_period = '9s'\n", "2m", "9s"),
        ("  keep = 1\n[other]\n  stats_collect_period = 10\n", "2m", "2m"),
        ("  keep = 1\n", "", None),
    ],
)
def test_the_period_of_containerds_looks_is_set_where_nobody_has(
    lines: str, stats: str, wanted: str | None, tmp_path: Path
) -> None:
    node = Node(tmp_path)
    with node.config.open("a") as file:
        file.write(f"[plugins.'{PLUGINS[3]}']\n{lines}")
    for _ in range(2):
        done = node.install(stats=stats)
        assert done.returncode == 0, done.stderr
    assert tomllib.loads(node.config.read_text())["plugins"][PLUGINS[3]].get("stats_collect_period") == wanted
    assert node.restarts == 1


@pytest.mark.parametrize("version", [2, 3])
def test_a_node_of_an_earlier_installer_lets_annotations_through(version: int, tmp_path: Path) -> None:
    node = Node(tmp_path, version=version)
    assert node.install().returncode == 0
    node.config.write_text(node.config.read_text().replace('  pod_annotations = ["dev.gvisor.*"]\n', ""))
    for _ in range(2):
        done = node.install()
        assert done.returncode == 0, done.stderr
    runtimes = tomllib.loads(node.config.read_text())["plugins"][PLUGINS[version]]["containerd"]["runtimes"]
    assert runtimes["runsc"]["pod_annotations"] == ["dev.gvisor.*"]
    assert runtimes["runc"] == {"runtime_type": "io.containerd.runc.v2"}
    assert node.restarts == 2


@pytest.mark.parametrize("driver", ["true", "false"])
def test_gvisor_manages_control_groups_as_runc_does(driver: str, tmp_path: Path) -> None:
    node = Node(tmp_path)
    with node.config.open("a") as file:
        for name, value in (("runc", driver), ("other", "true" if driver == "false" else "false")):
            table = f'[plugins."{PLUGINS[3]}".containerd.runtimes.{name}.options]'
            file.write(f"  {table}\n    SystemdCgroup = {value}\n")
    assert node.install().returncode == 0
    settings = tomllib.loads((node.root / "etc/containerd/sandlot-runsc.toml").read_text())
    assert settings == {"runsc_config": {"systemd-cgroup": driver, "net-raw": "true"}}


def test_raw_sockets_can_be_switched_off_later(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for wanted in ("true", "false"):
        assert node.install(net_raw=wanted).returncode == 0
        settings = tomllib.loads((node.root / "etc/containerd/sandlot-runsc.toml").read_text())
        assert settings["runsc_config"]["net-raw"] == wanted
    assert node.restarts == 1


def test_gvisor_does_not_look_again_at_mounted_files_where_slots_are_enabled(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for files, wanted in (("shared", {}), ("exclusive", {"file-access-mounts": "exclusive"}), ("shared", {})):
        assert node.install(files=files).returncode == 0
        settings = tomllib.loads((node.root / "etc/containerd/sandlot-runsc.toml").read_text())
        assert settings["runsc_config"] == {"systemd-cgroup": "false", "net-raw": "true", **wanted}
    assert node.restarts == 1


def test_gvisor_lets_pods_call_the_driver_of_a_gpu_where_it_is_told_to(tmp_path: Path) -> None:
    node = Node(tmp_path)
    chosen = {"enabled": True, "driverVersion": "580.65.06", "capabilities": ["utility", "compute"]}
    for nvproxy, wanted in (
        ({}, {}),
        ({"enabled": True}, {"nvproxy": "true", "nvproxy-allowed-driver-capabilities": "utility,compute"}),
        (
            chosen,
            {
                "nvproxy": "true",
                "nvproxy-allowed-driver-capabilities": "utility,compute",
                "nvproxy-driver-version": "580.65.06",
            },
        ),
        ({}, {}),
    ):
        installer = {"enabled": True, "image": "gvisor:1", "nvproxy": nvproxy}
        daemon_set = one(render({"gvisor": {"installer": installer}}), "DaemonSet", "gvisor-installer")
        flags = daemon_set["spec"]["template"]["spec"]["initContainers"][0]["command"][8]
        assert node.install(flags=flags).returncode == 0
        settings = tomllib.loads((node.root / "etc/containerd/sandlot-runsc.toml").read_text())
        assert settings["runsc_config"] == {"systemd-cgroup": "false", "net-raw": "true", **wanted}
    assert node.restarts == 1


def test_a_new_runsc_needs_no_restart(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.install()
    (node.source / "runsc").write_text("#!/bin/sh\n# runsc 2\n")
    done = node.install()
    assert done.returncode == 0, done.stderr
    assert "# runsc 2" in (node.root / "usr/local/bin/runsc").read_text()
    assert node.restarts == 1


def test_a_node_that_knows_gvisor_keeps_its_configuration(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with node.config.open("a") as file:
        file.write(f"[plugins.'{PLUGINS[3]}'.containerd.runtimes.runsc]\n  runtime_type = 'mine'\n")
    before = node.config.read_text()
    assert node.install().returncode == 0
    assert node.config.read_text() == before
    assert node.restarts == 0


def test_a_failed_restart_is_made_up_for(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.install(restart="exit 7").returncode == 7
    assert node.restarts == 0
    assert node.install().returncode == 0
    assert node.install().returncode == 0
    assert node.restarts == 1


@pytest.mark.parametrize(("version", "said"), [(None, "is not containerd"), (1, "neither of version 2 nor")])
def test_a_runtime_it_does_not_know_is_left_alone(version: int | None, said: str, tmp_path: Path) -> None:
    node = Node(tmp_path, version=version)
    done = node.install()
    assert done.returncode == 1
    assert said in done.stderr
    assert not (node.root / "usr").exists()
    assert node.restarts == 0


def test_the_daemon_set_runs_this_script(everything: list[Resource]) -> None:
    script = one(everything, "ConfigMap", "gvisor-installer")["data"]["install-runsc.sh"]
    assert script.strip() == SCRIPT.read_text().strip()
    pod = one(everything, "DaemonSet", "gvisor-installer")["spec"]["template"]["spec"]
    command = pod["initContainers"][0]["command"]
    assert command[:7] == ["sh", "/script/install-runsc.sh", "/host", "/opt/gvisor", "runsc", "true", "1m"]
    assert command[7:9] == ["exclusive", ""]
    assert command[9:] == ["chroot", "/host", "systemctl", "restart", "containerd"]
    handler = one(everything, "RuntimeClass", "gvisor")["handler"]
    assert command[4] == handler
