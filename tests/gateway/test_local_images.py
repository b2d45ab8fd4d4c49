"""Which images tenants may name on one machine beside those of registries, and that a refusal tells nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sandlot_gateway.backends.local.images import OciPath, parse
from sandlot_gateway.local_images import refusal
from sandlot_gateway.settings import Settings

from tests.gateway.conftest import OPERATOR, Running, running
from tests.gateway.machine import Machine


async def answers(box: Running, image: str) -> list[tuple[int, str]]:
    """What a tenant hears of an image, its own words aside."""
    body = {"image": image}
    told = [
        await box.client.post("/api/v1/sandbox", json=body),
        await box.client.post("/api/v1/sandbox", json={"docker_image": image}),
        await box.client.put("/api/v1/pools/p", json={**body, "size": 1}),
        await box.client.post("/api/v1/template/check-docker-image", json=body),
    ]
    return [(answer.status_code, answer.text.replace(image, "IMAGE")) for answer in told]


async def test_a_tenant_cannot_tell_which_files_exist(box: Running, tmp_path: Path) -> None:
    (tmp_path / "there.tar").write_bytes(b"no archive")
    (tmp_path / "hidden").mkdir(mode=0)
    names = ["there.tar", "missing.tar", ".", "hidden/x", "there.tar/x"]
    seen = {str(await answers(box, str(tmp_path / name))) for name in names}
    seen |= {str(await answers(box, f"oci:{tmp_path / name}:tag")) for name in names}
    seen |= {str(await answers(box, f"oci-archive:~{user}/x")) for user in ("root", "nobody-of-that-name")}
    seen |= {str(await answers(box, image)) for image in ("./x", "~/x", "../x", "oci:", "no image")}
    assert len(seen) == 1
    [told] = seen
    assert [status for status, _ in await answers(box, "/x")] == [422, 422, 422, 200]
    assert "is not allowed here" in told
    assert "`local_images`" in told
    assert box.machine.launched == 0


async def test_what_the_operator_lists_may_be_named(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine, local_images="/srv/images,/opt/one.tar") as box:
        for image in (
            "/srv/images/a.tar",
            "oci:/srv/images/a:v1",
            "oci-archive:/opt/one.tar:v1",
            "python:3.12",
        ):
            assert (await box.create(docker_image=image))["dockerImage"] == image
        for image in (
            "host",
            "/srv/images-not/a",
            "/srv/images/../a",
            "/srv",
            "/opt/one.tar:v1",
            "/opt/one.tar2",
        ):
            answer = await box.client.post("/api/v1/sandbox", json={"docker_image": image})
            assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, "docker_image"), image
            assert "a path below /srv/images, a path below /opt/one.tar" in answer.json()["detail"]
        # A new pool that names no image has `host`.
        pool = await box.client.put("/api/v1/pools/p", json={"size": 1})
        assert (pool.status_code, pool.json()["errors"][0]["param"]) == (422, "image")


async def test_an_operator_may_name_any_and_shares_it_by_a_pool(box: Running) -> None:
    image = "/anywhere/at-all.tar"
    operator = box.as_tenant(OPERATOR)
    made = await box.client.post("/api/v1/sandbox", json={"docker_image": image}, headers=operator)
    assert made.status_code == 201, made.text
    refused = await box.client.post("/api/v1/sandbox", json={"docker_image": image})
    assert refused.status_code == 422
    pool = await box.client.put("/api/v1/pools/p", json={"image": image, "size": 1}, headers=operator)
    assert pool.status_code == 200, pool.text
    assert (await box.create(docker_image=image))["dockerImage"] == image
    assert (await box.create(docker_image=None, pool="p"))["dockerImage"] == image


PIECES = st.sampled_from(
    ["/srv/images", "/", "..", ".", "a", ":", "oci:", "oci-archive:", "~", "host", "docker://"]
)


@given(st.lists(PIECES, max_size=6).map("".join))
def test_what_is_let_through_is_below_the_list(image: str) -> None:
    if refusal(image, allowed=["/srv/images"]) is None:
        reference = parse(image)
        if isinstance(reference, OciPath):
            assert reference.path.is_relative_to("/srv/images")
            assert ".." not in reference.path.parts


def test_the_setting_is_a_list_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().local_images == ["host"]
    monkeypatch.setenv("SANDLOT_LOCAL_IMAGES", "host, /srv/images")
    assert Settings().local_images == ["host", "/srv/images"]
    monkeypatch.setenv("SANDLOT_LOCAL_IMAGES", "")
    assert Settings().local_images == []
    for text in ("images", "/srv/../etc"):
        monkeypatch.setenv("SANDLOT_LOCAL_IMAGES", text)
        with pytest.raises(ValidationError, match="must be `host` or an absolute path"):
            Settings()
