"""A part of e2b_methods_script.py: calls every method of template builds that works here.

The operator's aliases give the bases their names, so that no image has to come from a registry. Stubs stand for the
package managers: a file of the template has what they were told.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import e2b

HALF = sys.argv[1]
IMAGE = os.environ["SANDLOT_SCRIPT_IMAGE"]
BASES = {
    "debian:stable": "debian",
    "ubuntu:24.04": "ubuntu",
    "fedora:44": "fedora",
    "alpine:3.24": "alpine",
    "archlinux:latest": "arch",
    "python:3": "python",
    "node:lts": "node",
    "oven/bun:latest": "bun",
    "e2bdev/base": "base",
}
STUBS = """set -e; mkdir -p /opt/repository /opt/bin; : > /opt/told
for each in apt-get pip npm bun; do
  printf '#!/bin/sh\\necho "$(id -un) %s $*" >> /opt/told\\n' $each > /opt/bin/$each; chmod 755 /opt/bin/$each
done
cd /opt/repository; git init -q; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first"""
TOLD = """root apt-get update
root apt-get install -y curl
root pip install numpy
root npm install -g typescript
root bun install hono
"""


def templates(sandbox: Any, template: Any, here: Path) -> None:
    bases(template)
    steps(sandbox, template, here)
    starts(sandbox, template)
    names(template)


def bases(template: Any) -> None:
    for image, name in BASES.items():
        version = image.partition(":")[2]
        begin = getattr(template(), f"from_{name}_image")
        begun = begin(version) if version else begin()
        assert json.loads(template.to_json(begun))["fromImage"] == image
        template.build(begun.run_cmd("true"), f"{HALF}-on-{name}")
        assert template.exists(f"{HALF}-on-{name}")


def steps(sandbox: Any, template: Any, here: Path) -> None:
    for name in ("one", "two", "three"):
        (here / name).write_text(name)
    (here / "Dockerfile").write_text(f"FROM {IMAGE}\nENV FILE=docker\nUSER root\n")
    made = (
        template(file_context_path=str(here))
        .from_dockerfile(str(here / "Dockerfile"))
        .run_cmd(STUBS)
        .set_envs({"MORE": "env", "PATH": "/opt/bin:/usr/bin:/bin"})
        .set_workdir("/opt")
        .set_user("root")
        .copy("one", "/opt/one")
        .copy_items([{"src": "two", "dest": "/opt/two"}, {"src": "three", "dest": "/opt/three"}])
        .make_dir("/opt/made", mode=0o700)
        .make_symlink("/opt/one", "/opt/link")
        .rename("/opt/two", "/opt/renamed")
        .remove("/opt/three")
        .git_clone("/opt/repository", "/opt/clone")
        .apt_install("curl")
        .pip_install("numpy")
        .npm_install("typescript", g=True)
        .bun_install("hono")
    )
    assert "WORKDIR /opt\n" in template.to_dockerfile(made)
    template.build(made, f"{HALF}-steps", on_build_logs=e2b.default_build_logger())
    box = sandbox.create(f"{HALF}-steps", timeout=60)
    assert box.commands.run('echo "$FILE $MORE $PWD $(id -un)"').stdout == "docker env /opt root\n"
    assert box.commands.run("cat link renamed; stat -c ' %a' made").stdout == "onetwo 700\n"
    assert box.files.exists("/opt/clone/.git")
    assert not box.files.exists("/opt/three")
    assert box.files.read("/opt/told") == TOLD
    box.kill()


def starts(sandbox: Any, template: Any) -> None:
    """Start commands, and all kinds of ready commands: a create waits for them."""
    port = os.environ["SANDLOT_SCRIPT_PORT"]
    serve = f"touch /tmp/begun; exec python3 -m http.server {port}"
    ready = (
        e2b.wait_for_file("/tmp/begun"),
        e2b.wait_for_process("python3"),
        e2b.wait_for_port(int(port)),
        e2b.wait_for_url(f"http://127.0.0.1:{port}/"),
        e2b.wait_for_timeout(1000),
    )
    every = " && ".join(each.get_cmd() for each in ready)
    template.build(template().from_image(IMAGE).set_start_cmd(serve, every), f"{HALF}-starts")
    box = sandbox.create(f"{HALF}-starts", timeout=60)
    box.commands.run(every)
    box.kill()
    only = template().from_image(IMAGE).set_ready_cmd("echo once >> /tmp/asked")
    template.build(only, f"{HALF}-ready")
    box = sandbox.create(f"{HALF}-ready", timeout=60)
    assert box.files.read("/tmp/asked") == "once\n"
    box.kill()


def names(template: Any) -> None:
    """Builds by name and tag; `skip_cache` builds anew what an equal build would be found for."""

    def runs(begun: Any) -> bool:
        """Build; return whether its command ran."""
        logged: list[str] = []
        begun.run_cmd("echo ran-$((6 * 7))")
        template.build(begun, f"{HALF}-names", on_build_logs=lambda entry: logged.append(entry.message))
        return "ran-42" in logged

    assert runs(template().from_image(IMAGE))
    assert not runs(template().from_image(IMAGE))
    assert runs(template().skip_cache().from_image(IMAGE))
    assert runs(template().from_image(IMAGE).skip_cache())
    info = template.build_in_background(
        template().from_template(f"{HALF}-names").run_cmd("true"), f"{HALF}-names:upper"
    )
    while (status := template.get_build_status(info)).status != "ready":
        assert status.status in ("building", "waiting"), status
    assert template.alias_exists(f"{HALF}-names")
    template.assign_tags(f"{HALF}-names:upper", ["spare"])
    assert {each.tag for each in template.get_tags(f"{HALF}-names")} == {"default", "upper", "spare"}
    template.remove_tags(f"{HALF}-names", "spare")
    assert {each.tag for each in template.get_tags(f"{HALF}-names")} == {"default", "upper"}
