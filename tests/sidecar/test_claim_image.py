"""A claim may name its image: the root is over it before the claim counts, and what its config says holds for ops."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.roots import make_root
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


@pytest.fixture
def images() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sandlot-test-") as name:
        for image in ("one", "two"):
            make_root(Path(name), image)
        yield Path(name)


def image_of(images: Path, name: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"sha256:{name}", "lower": [str(images / name / "rootfs")], **fields}


def root_of(images: Path) -> dict[str, Any]:
    return {"id": "host", "images": str(images), "host": True, "env": {"OF_CONFIG": "1"}}


async def claimed(box: Sidecar, **fields: Any) -> dict[str, Any]:
    answer = await box.instance("POST", "/v1/claim", json=box.claim_body(**fields))
    assert answer.status_code == 200, answer.text
    return answer.json()


SEEN = "cat /etc/which; pwd; id -u; echo [$OF_CONFIG] [$OF_IMAGE] [$MINE] $HOME"


async def test_its_environment_directory_and_user_hold_until_the_next_image(make, images: Path) -> None:
    box = await make(root=root_of(images))
    assert (await box.instance("GET", "/v1/state")).json()["image"] == "host"
    one = image_of(images, "one", env={"OF_IMAGE": "a"}, workdir="/etc", user="app")
    state = await claimed(box, image=one, env={"MINE": "b"}, start_command="pwd; id -u")
    assert state["image"] == "sha256:one"
    assert (await box.exec(SEEN))["stdout"] == "one\n/etc\n1234\n[] [a] [b] /home/app\n"
    await box.exec("echo dirt > /home/app/dirt", user="root")
    reset = (await box.instance("POST", "/v1/reset", json={"keep_claim": True})).json()
    assert (reset["equal"], reset["image"]) == (True, "sha256:one"), reset
    assert (await box.exec(f"ls /home/app; {SEEN}"))["stdout"] == "one\n/etc\n1234\n[] [a] [b] /home/app\n"
    reset = (await box.instance("POST", "/v1/reset", json={})).json()
    assert (reset["equal"], reset["image"], reset["phase"]) == (True, "sha256:one", "warm")
    await claimed(box)  # the root stays what it is
    assert (await box.exec(SEEN))["stdout"] == "one\n/etc\n1234\n[] [a] [] /home/app\n"
    await box.instance("POST", "/v1/reset", json={})
    await claimed(box, image=image_of(images, "two"), workdir="/bin", network="none")
    assert (await box.exec(SEEN))["stdout"] == "two\n/bin\n0\n[] [] [] /root\n"
    await box.instance("POST", "/v1/reset", json={})
    state = await claimed(box, image={"id": "host", "lower": ["/"], "env": {"OF_IMAGE": "host"}})
    assert state["image"] == "host"
    assert (await box.exec("pwd; echo [$OF_IMAGE]; test -e /etc/which"))["stdout"] == "/\n[host]\n"


async def test_the_same_image_again_needs_no_new_root(make, images: Path) -> None:
    box = await make(root=root_of(images))
    await claimed(box, image=image_of(images, "one"))
    await box.exec("echo mine > /etc/mine")
    await claimed(box, image=image_of(images, "one"))  # the same claim again
    assert (await box.exec("cat /etc/mine"))["stdout"] == "mine\n"
    for name, laid in (("one", 1), ("two", 2)):
        await box.instance("POST", "/v1/reset", json={})
        await claimed(box, image=image_of(images, name))
        assert box.log().count('"event": "laid"') == laid


async def test_an_image_that_was_prepared_again_is_laid_again(make, images: Path) -> None:
    """Its node has released it meanwhile: the earlier directory is gone, or another image's."""
    box = await make(root=root_of(images))
    await claimed(box, image=image_of(images, "one"))
    await box.instance("POST", "/v1/reset", json={})
    again = image_of(images, "one", lower=[str(images / "two/rootfs")])
    assert (await claimed(box, image=again))["image"] == "sha256:one"
    assert (await box.exec("cat /etc/which"))["stdout"] == "two\n"


@pytest.mark.parametrize("owned", [True, False])
async def test_a_restarted_sidecar_comes_back_with_it(make, images: Path, owned: bool) -> None:
    box = await make(root=root_of(images))
    await claimed(box, image=image_of(images, "one", env={"OF_IMAGE": "a"}, user="1234", workdir="/etc"))
    if not owned:
        await box.instance("POST", "/v1/reset", json={})
    await box.kill()
    await box.start()
    if not owned:
        assert (await box.instance("GET", "/v1/state")).json()["image"] == "sha256:one"
        await claimed(box)
    assert (await box.exec(SEEN))["stdout"] == "one\n/etc\n1234\n[] [a] [] /home/app\n"
    answer = (await box.instance("POST", "/v1/reset", json={})).json()
    assert answer["equal"], answer


def forget_image(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "image": None}))


async def test_a_restart_that_has_to_lay_the_owners_image_builds_it_anew(make, images: Path) -> None:
    """The owner has used this generation: what an exchange would keep is not that of a fresh one."""
    box = await make(root={"id": "x", "lower": [str(images / "two/rootfs")], "images": str(images)})
    await claimed(box, image=image_of(images, "one"))
    await box.kill()
    forget_image(Path(box.directory, "claim.json"))
    await box.start()
    assert (await box.exec("cat /etc/which"))["stdout"] == "one\n"
    laid = [json.loads(line) for line in box.log().splitlines() if '"event": "laid"' in line]
    assert [event["exchanged"] for event in laid] == [True, False]
    assert (await box.instance("POST", "/v1/reset", json={"keep_claim": True})).json()["equal"]


BAD = {
    "image": [7, []],
    "image.id": [None, "", 3, "x" * 129],
    "image.lower": [None, [], "/tmp", [7], ["relative"], ["/etc"], ["/"], ["HERE"], ["HERE/one/../one/rootfs"],
                    ["HERE/one/rootfs/"], ["HEREone"], ["HERE/out"], ["HERE/missing"], ["HERE/one/rootfs/etc/which"],
                    ["HERE/one/rootfs", "/etc"], ["HERE/one\0"]],
    "image.env": [[], {"A": 1}, {"A=B": "x"}],
    "image.workdir": [3, "relative"],
    "image.user": [-1, 1.5, []],
}  # fmt: skip


async def test_what_is_wrong_is_named_and_the_instance_stays_free(make, images: Path) -> None:
    (images / "out").symlink_to("/etc")
    box = await make(root={"id": "x", "lower": [str(images / "two/rootfs")], "images": str(images)})
    for field, values in BAD.items():
        for value in values:
            if isinstance(value, list) and field == "image.lower":
                value = [
                    item.replace("HERE", str(images)) if isinstance(item, str) else item for item in value
                ]
            image: Any = value
            if field != "image":
                image = {**image_of(images, "one"), field.removeprefix("image."): value}
            answer = await box.instance("POST", "/v1/claim", json=box.claim_body(image=image))
            assert answer.status_code == 400, (value, answer.text)
            assert answer.json()["field"].startswith(field), (value, answer.text)
    await claimed(box, image=image_of(images, "one"))
    assert (await box.exec("cat /etc/which"))["stdout"] == "one\n"


async def test_without_a_directory_of_images_a_claim_names_none(make) -> None:
    box = await make()
    answer = await box.instance("POST", "/v1/claim", json=box.claim_body(image={"id": "a", "lower": ["/"]}))
    assert (answer.status_code, answer.json()["field"]) == (400, "image")
    assert (await box.claim())["image"] is None


def broken(images: Path) -> dict[str, Any]:
    """The kernel makes no overlay of a layer that is there twice."""
    return {"id": "sha256:broken", "lower": [str(images / "one/rootfs")] * 2}


async def test_an_image_that_cannot_be_laid_leaves_the_instance_free(make, images: Path) -> None:
    box = await make(root=root_of(images))
    for _ in range(3):
        answer = await box.instance("POST", "/v1/claim", json=box.claim_body(image=broken(images)))
        assert (answer.status_code, answer.json()["field"]) == (400, "image.lower"), answer.text
    state = (await box.instance("GET", "/v1/state")).json()
    assert (state["phase"], state["image"]) == ("warm", "host")
    await claimed(box, image=image_of(images, "one"))
    assert (await box.exec("cat /etc/which"))["stdout"] == "one\n"


async def test_an_instance_without_any_root_left_ends(make, images: Path) -> None:
    box = await make(root={"id": "x", "lower": [str(images / "two/rootfs")], "images": str(images)})
    shutil.rmtree(images / "two")
    answer = await box.instance("POST", "/v1/claim", json=box.claim_body(image=broken(images)))
    assert (answer.status_code, answer.json()["error"]) == (503, "setup"), answer.text
    ended = await box.webhooks.wait("ended")
    assert (ended["verdict"], ended["phase"]) == ("start_failed", "failed")


async def test_a_claim_that_fails_leaves_nothing_of_its_image(make, images: Path) -> None:
    """The next owner, of another tenant perhaps, may name none."""
    box = await make(root=root_of(images), cgroup_parent=None)
    policy = {"policy": {}, "allow": True, "rules": []}
    one = image_of(images, "one", env={"OF_IMAGE": "a"}, user="app", workdir="/home/app")
    answer = await box.instance("POST", "/v1/claim", json=box.claim_body(image=one, egress=policy))
    assert answer.status_code == 400, answer.text
    assert answer.json()["field"] == "egress"
    state = (await box.instance("GET", "/v1/state")).json()
    assert (state["phase"], state["image"], state["bound_to"]) == ("warm", "host", None)
    await box.kill()
    await box.start()
    await claimed(box, tenant="tenant-b")
    assert (await box.exec(f"test -e /etc/which || {SEEN.partition(';')[2]}"))[
        "stdout"
    ] == "/\n0\n[1] [] [] /root\n"
    assert (await box.instance("POST", "/v1/reset", json={})).json()["equal"]
    await claimed(box, tenant="tenant-b", image=image_of(images, "two"))
    body = box.claim_body(tenant="tenant-b", image=one, egress=policy)
    await box.instance("POST", "/v1/reset", json={})
    assert (await box.instance("POST", "/v1/claim", json=body)).status_code == 400
    await claimed(box, tenant="tenant-b")
    assert (await box.exec(SEEN))["stdout"] == "two\n/\n0\n[] [] [] /root\n"


async def test_the_next_generation_of_an_image_without_a_shell_is_prepared(make, images: Path) -> None:
    for path in ("bin/sh", "usr/bin/sh"):
        (images / "two/rootfs" / path).unlink(missing_ok=True)
    box = await make(root=root_of(images))
    await claimed(box)
    await box.instance("POST", "/v1/reset", json={})
    await claimed(box, image=image_of(images, "two"))
    await until(lambda: '"event": "prepared"' in box.log())
    assert "not prepared" not in box.log()
    assert (await box.instance("POST", "/v1/reset", json={})).json()["equal"]
    assert '"prepared": true' in box.log()
