"""Whatever an API server, its webhooks and others answer, a controller's metrics have reasons and verdicts that it knows."""

from __future__ import annotations

import pytest
from sandlot_controller.act.api import Api
from sandlot_controller.health import serving
from sandlot_controller.metrics import Metrics
from sandlot_kube.errors import KubeError

from tests import plain_http
from tests.controller.cluster import Cluster
from tests.controller.pages import page
from tests.controller.sandboxes import ended
from tests.kube.scripted import answered, failed, scripted, streamed
from tests.waiting import until

MANY = 40


async def text_of(metrics: Metrics) -> str:
    """The page, as Prometheus gets it."""
    async with (
        serving(host="127.0.0.1", port=0, metrics=metrics, alive=lambda: None, trouble=lambda: None) as port,
        plain_http.async_client() as client,
    ):
        return (await client.get(f"http://127.0.0.1:{port}/metrics")).text


def counted(text: str, family: str) -> dict[str, float]:
    """The labels of the family's samples, as they are on the page, with their values."""
    lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith(f"{family}_total{{"))
    return {labels.partition("{")[2].rstrip("}"): float(value) for labels, _, value in lines}


async def test_a_webhooks_reasons_with_names_of_images_are_one_label() -> None:
    metrics = Metrics()
    async with scripted() as (script, client):
        api = Api(client, namespace="n", metrics=metrics)
        script.lists += [failed(403, f"the image registry.example/{n} is not allowed") for n in range(MANY)]
        script.lists += [failed(403, "Forbidden"), answered(429, "too many requests"), answered(400, {})]
        script.lists += [answered(status, "no Status") for status in (500, 502, 503, 504, 422)]
        script.lists += [failed(409, f"no {n}") for n in range(2)]
        script.lists += [streamed(cut=True)]  # nobody has answered
        for number in range(MANY + 11):
            with pytest.raises(KubeError):
                await api.create_pod({"metadata": {"name": f"i-{number}"}}, kind="pool")
    text = await text_of(metrics)
    assert counted(text, "sandlot_controller_api_errors") == {
        'method="POST",reason="Forbidden"': MANY + 1,
        'method="POST",reason="InternalError"': 1,
        'method="POST",reason="ServiceUnavailable"': 2,
        'method="POST",reason="Timeout"': 1,
        'method="POST",reason="Invalid"': 1,
        'method="POST",reason="other"': 2,
        'method="POST",reason="TooManyRequests"': 1,
        'method="POST",reason="BadRequest"': 1,
        'method="POST",reason="Unreachable"': 1,
    }
    assert "registry.example" not in text


@pytest.mark.programs
async def test_verdicts_that_are_not_in_the_contract_are_one_label(cluster: Cluster) -> None:
    async with cluster.controlled() as controller:
        names = [f"sbx-{number}" for number in range(3)]
        for name, verdict in zip(names, ("made_up", "made_up_too", "oom"), strict=True):
            await cluster.sandbox(name, podName="i-ffffffffffffffff")
            await cluster.end(name, verdict)
            await cluster.until(lambda name=name, verdict=verdict: ended(cluster, name, verdict), verdict)

        async def are_counted() -> bool:
            text = (await page(controller, "metrics")).text
            found = counted(text, "sandlot_controller_sandboxes_ended")
            return found == {'verdict="other"': 2, 'verdict="oom"': 1}

        await until(are_counted)
