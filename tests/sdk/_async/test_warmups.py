"""Image warm-ups: begun, followed to the end, stopped."""

from __future__ import annotations

import pytest
from sandlot import AsyncClient, AsyncImageWarmups, BadRequest, NotFound, WaitTimeout, WarmupInfo

from tests.sdk.service.server import Service


async def test_a_warm_up_is_followed_to_its_end(client: AsyncClient) -> None:
    warmups = AsyncImageWarmups(client=client)
    made = await warmups.create(["host", "host"])
    assert (made.images, made.ready, made.seconds_left) == (1, 0, None)
    assert made.id in [one.id for one in await warmups.list()]
    seen: list[WarmupInfo] = []
    done = await warmups.wait(made.id, timeout=60, progress=seen.append)
    assert (done.done, done.ready, done.failed, done.errors) == (True, 1, 0, ())
    assert seen[-1] == done == await warmups.get(made.id)
    await warmups.delete(made.id)
    for call in (warmups.get, warmups.delete, warmups.wait):
        with pytest.raises(NotFound):
            await call(made.id)


async def test_a_refusal_names_the_field(client: AsyncClient) -> None:
    warmups = AsyncImageWarmups(client=client)
    with pytest.raises(BadRequest) as refused:
        await warmups.create({})
    assert refused.value.field == "images"
    with pytest.raises(ValueError, match=r"^images: must be a dictionary or a list of names"):
        await warmups.create("python:3.12")
    with pytest.raises(ValueError, match=r"^timeout: "):
        await warmups.wait("warmup-1", timeout=0)


async def test_images_that_fail_are_in_the_result(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        warmups = AsyncImageWarmups(client=client)
        made = await warmups.create({"there": 3, "missing": 1})
        done = await warmups.wait(made.id, timeout=60)
        assert (done.ready, done.failed) == (1, 1)
        assert [(error.image, error.node) for error in done.errors] == [("missing", None)]
        assert done.errors[0].message == "the registry has no such image"


async def test_a_wait_ends_after_its_timeout(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        warmups = AsyncImageWarmups(client=client)
        made = await warmups.create([f"image-{number}" for number in range(1000)])
        with pytest.raises(WaitTimeout, match=f"warm-up {made.id} has 1 of 1000 images ready after 0.1 s"):
            await warmups.wait(made.id, timeout=0.1)
