"""Starts an instance by creating a Sandbox resource, and polls it by DNS name if nothing reports it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from sandlot_contract.new_ids import new_instance_id
from sandlot_contract.template import Template
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError, KubeUnreachable
from sandlot_kube.objects import SandboxState

from ...core.instances import Instance
from ...core.owners import PendingCreate
from .instances import Origin
from .settings import KubernetesSettings
from .timers import KeyedTimers
from .translate import check_gpu_type, check_image, refusal, sandbox_body, to_kube
from .view import View


class Launcher:
    def __init__(
        self, client: KubeClient, view: View, *, namespace: str, settings: KubernetesSettings
    ) -> None:
        self._client = client
        self._view = view
        self._namespace = namespace
        self._settings = settings
        self._unheard = KeyedTimers(after=settings.dns_after)  # starts without a report

    async def launch(self, template: Template, *, wanted: PendingCreate | None) -> Instance:
        """Start an instance, see `Backend.launch`."""
        check_image(template)
        check_gpu_type(template)
        instance_id = new_instance_id()
        # Before the request: the sidecar's first report may come before the answer.
        instance = self._view.instances.add(instance_id, template, origin=Origin.OWN_START).instance
        spec: dict[str, Any] = {"template": to_kube(template), "state": SandboxState.STARTED}
        if wanted is not None:
            spec |= {
                "madeFor": wanted.sandbox_id,
                "tenant": wanted.tenant,
                "labels": list(wanted.labels),
            }
        body = sandbox_body(instance_id, spec, request=wanted.request if wanted else None)
        path, timeout = paths.sandboxes(self._namespace), self._settings.launch_timeout
        making = self._view.records.making(instance_id, wanted=wanted.sandbox_id if wanted else None)
        try:
            with making as made:
                try:
                    made.answered(await self._client.request("POST", path, body=body, timeout=timeout))
                except KubeUnreachable:
                    # If its sidecar has reported, the start succeeded, and a create may own it by now.
                    if self._view.phase(instance_id) is None:
                        raise
        except KubeError as error:
            self._view.instances.remove(instance_id)
            if isinstance(error, KubeUnreachable):
                self._view.records.drop(instance_id, template=template)  # it may exist all the same
            raise refusal(error, retry_after=self._settings.retry_after) from error
        except asyncio.CancelledError:
            self._view.instances.remove(instance_id)
            self._view.records.drop(instance_id, template=template)
            raise
        self._expect(instance)
        return instance

    def close(self) -> None:
        self._unheard.close()

    def _expect(self, instance: Instance) -> None:
        """Poll the instance by its DNS name later, in case its webhook gets lost while the watch is broken."""
        self._unheard.start(instance.id, partial(self._look_for, instance))

    def _look_for(self, instance: Instance) -> None:
        seen = self._view.instances.get(instance.id)
        if seen is None or self._view.phase(instance.id) is not None:
            return
        if seen.pod is not None and self._view.watches.failure is None:
            self._expect(instance)  # the watch will show its address
        else:
            self._view.states.ask(instance)
