"""Image warm-ups over the control routes: begun, followed, stopped, each by its tenant, and on after a restart."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.backends.local.warmups import KEEP, LocalWarmups
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.core.warmups import Warmup, WarmupId, WarmupSpec, WarmupState

from tests.gateway.conftest import API, OPERATOR, Running
from tests.waiting import until

URL = f"{API}/image-warmups"
ONE = WarmupId("warmup-0000000000000001")


async def begin(box: Running, *images: str, **headers: Any) -> dict[str, Any]:
    answer = await box.client.post(URL, json={"images": [{"image": image} for image in images]}, **headers)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def end(box: Running, warmup_id: str) -> dict[str, Any]:
    async def done() -> bool:
        return (await box.client.get(f"{URL}/{warmup_id}")).json()["state"] == "DONE"

    await until(done)
    return (await box.client.get(f"{URL}/{warmup_id}")).json()


async def test_a_warm_up_from_its_begin_to_its_end(box: Running) -> None:
    begun = await begin(box, "python:3.12", "bad-one", "alpine", "python:3.12")
    assert begun["id"].startswith("warmup-")
    assert (begun["tenant"], begun["images"], begun["copies"], begun["state"]) == ("alpha", 3, 3, "PENDING")
    assert (begun["seconds_left"], begun["finished_at"]) == (None, None)
    done = await end(box, begun["id"])
    assert (done["images_ready"], done["images_failed"], done["copies_ready"]) == (2, 1, 2)
    assert (done["bytes"], done["seconds_left"]) == (2000, None)
    assert done["errors"] == [{"image": "bad-one", "node": None, "message": "no bad-one"}]
    assert done["finished_at"] >= done["created_at"]
    assert (await box.client.get(URL)).json() == {"warmups": [done]}
    assert (await box.client.delete(f"{URL}/{begun['id']}")).json()["success"] is True
    assert (await box.client.get(f"{URL}/{begun['id']}")).status_code == 404
    assert (await box.client.delete(f"{URL}/{begun['id']}")).status_code == 404


async def test_a_warm_up_is_its_tenants(box: Running) -> None:
    made = await begin(box, "alpine")
    for key, seen in (("key-b", []), (OPERATOR, [made["id"]])):
        headers = box.as_tenant(key)
        listed = (await box.client.get(URL, headers=headers)).json()["warmups"]
        assert [one["id"] for one in listed] == seen
        status = 200 if seen else 404
        assert (await box.client.get(f"{URL}/{made['id']}", headers=headers)).status_code == status
        assert (await box.client.delete(f"{URL}/{made['id']}", headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("images", "param"),
    [
        ([], "images"),
        ([{"image": "alpine", "weight": 0}], "images.0.weight"),
        ([{"image": "alpine"}, {"image": "localhost:5000/private"}], "images.1.image"),
        ([{"image": "alpine"}, {"image": "Not An Image"}], "images.1.image"),
        ([{"image": f"image-{number}"} for number in range(5001)], "images"),
        # The record would be larger than etcd takes.
        ([{"image": f"{'x/' * 120}image-{number:04}"} for number in range(5000)], "images"),
    ],
)
async def test_a_refusal_names_the_image(box: Running, images: list[dict[str, Any]], param: str) -> None:
    box.gateway.settings.backend = "local"
    answer = await box.client.post(URL, json={"images": images})
    assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, param), answer.text


async def test_a_tenant_has_ten_at_a_time(box: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = asyncio.Event()

    async def prepare(image: str) -> int:
        await wait.wait()
        return 1

    monkeypatch.setattr(box.backend.warmups, "_prepare", prepare)
    made = [await begin(box, f"image-{number}") for number in range(10)]
    answer = await box.client.post(URL, json={"images": [{"image": "more"}]})
    assert answer.status_code == 422
    assert "wait for one, or delete one" in answer.json()["detail"]
    await begin(box, "others", headers=box.as_tenant("key-b"))
    await box.client.delete(f"{URL}/{made[3]['id']}")
    await begin(box, "more")
    wait.set()
    for one in made[:3]:
        assert (await end(box, one["id"]))["images_ready"] == 1


class Store:
    """Prepares images when it is told to; `fails` names those that cannot be prepared."""

    def __init__(self, *, fails: tuple[str, ...] = ()) -> None:
        self.asked: list[str] = []
        self.now = 1000.0
        self._fails = fails
        self._go = asyncio.Semaphore(0)

    async def prepare(self, image: str) -> int:
        self.asked.append(image)
        await self._go.acquire()
        self.now += 10.0
        if image in self._fails:
            raise BackendError(f"no {image}")
        return 100

    def finish(self, count: int) -> None:
        for _ in range(count):
            self._go.release()

    def warmups(self, path: Path) -> LocalWarmups:
        return LocalWarmups(path, prepare=self.prepare, clock=lambda: self.now)


async def found(warmups: LocalWarmups, warmup_id: WarmupId = ONE) -> Warmup:
    warmup = await warmups.find(warmup_id)
    assert warmup is not None
    return warmup


async def test_the_most_frequent_come_first_with_an_estimate(tmp_path: Path) -> None:
    store = Store()
    warmups = store.warmups(tmp_path / "warmups.json")
    warmups.open()
    images = {f"image-{number}": number for number in range(1, 7)}
    await warmups.create(WarmupSpec(ONE, "alpha", images))
    store.finish(2)
    await until(lambda: len(store.asked) == 3)
    assert (await found(warmups)).seconds_left is None
    store.finish(1)
    await until(lambda: len(store.asked) == 4)
    now = await found(warmups)
    assert (now.state, now.ready, now.bytes, now.seconds_left) == (WarmupState.RUNNING, 3, 300, 30.0)
    store.finish(3)
    await until(lambda: len(store.asked) == 6)
    await warmups.close()
    assert store.asked == [f"image-{number}" for number in range(6, 0, -1)]


async def test_warm_ups_take_turns(tmp_path: Path) -> None:
    store = Store()
    warmups = store.warmups(tmp_path / "warmups.json")
    warmups.open()
    other = WarmupId("warmup-0000000000000002")
    await warmups.create(WarmupSpec(ONE, "alpha", {"a1": 3, "a2": 2, "a3": 1}))
    await warmups.create(WarmupSpec(other, "beta", {"b1": 1}))
    store.finish(4)
    await until(lambda: len(store.asked) == 4)
    assert store.asked.index("b1") < 3
    await warmups.close()


async def test_a_restarted_gateway_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "warmups.json"
    store = Store(fails=("gone",))
    first = store.warmups(path)
    first.open()
    done = WarmupId("warmup-0000000000000002")
    await first.create(WarmupSpec(done, "alpha", {"gone": 2, "there": 1}))
    store.finish(2)
    await until(lambda: len(store.asked) == 2)
    await first.create(WarmupSpec(ONE, "beta", {"a": 2, "b": 1}))
    store.finish(1)
    await until(lambda: store.asked[2:] == ["a", "b"])
    await first.close()
    second = store.warmups(path)
    second.open()
    store.finish(2)

    async def all_done() -> bool:
        return all(one.state is WarmupState.DONE for one in await second.all())

    await until(all_done)
    assert store.asked[2:] == ["a", "b", "a", "b"]
    assert ((await found(second)).ready, (await found(second)).spec.tenant) == (2, "beta")
    earlier = await found(second, done)
    assert (earlier.ready, earlier.failed, earlier.errors[0].message) == (1, 1, "no gone")
    store.now += KEEP
    assert await second.find(done) is None
    await second.close()


async def test_a_deleted_one_prepares_nothing_more(tmp_path: Path) -> None:
    store = Store()
    warmups = store.warmups(tmp_path / "warmups.json")
    warmups.open()
    await warmups.create(WarmupSpec(ONE, "alpha", {"a": 3, "b": 2}))
    await until(lambda: store.asked == ["a"])
    assert await warmups.delete(ONE)
    assert not await warmups.delete(ONE)
    await warmups.create(WarmupSpec(WarmupId("warmup-0000000000000003"), "alpha", {"c": 1}))
    store.finish(2)
    await until(lambda: store.asked == ["a", "c"])
    await warmups.close()


async def test_a_damaged_file_is_left_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "warmups.json"
    path.write_text('{"warmups": [{"id": 1}]}')
    warmups = Store().warmups(path)
    warmups.open()
    assert await warmups.all() == []
    assert "its image warm-ups are forgotten" in caplog.text
    await warmups.close()


async def test_a_full_disk_ends_no_later_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    warmups = store.warmups(tmp_path / "warmups.json")
    warmups.open()
    await warmups.create(WarmupSpec(ONE, "alpha", {"a": 1}))
    with monkeypatch.context() as patch:
        patch.setattr("sandlot_gateway.backends.local.warmups.write_atomic", _full)
        store.finish(1)
        await until(lambda: "a restart will repeat it" in caplog.text)
        with pytest.raises(BackendError):
            await warmups.create(WarmupSpec(WarmupId("warmup-0000000000000002"), "alpha", {"lost": 1}))
    await warmups.create(WarmupSpec(WarmupId("warmup-0000000000000003"), "alpha", {"b": 1}))
    store.finish(1)
    await until(lambda: store.asked == ["a", "b"])
    assert [warmup.spec.images for warmup in await warmups.all()] == [{"a": 1}, {"b": 1}]
    await warmups.close()


def _full(path: Path, data: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
