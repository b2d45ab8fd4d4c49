"""Starts an instance by a Sandbox resource that wants a pod, and looks for it where nothing tells of it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from sandlot_contract.ids import new_instance_id
from sandlot_contract.template import Template
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError, KubeUnreachable

from ...core.instances import Instance
from ...core.owners import Promise
from .instances import Entry, Instances
from .records import Records
from .settings import KubernetesSettings
from .states import SidecarStates
from .timers import KeyedTimers
from .translate import check_image, refusal, sandbox_body, to_kube
from .watches import Watches


class Launcher:
    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        settings: KubernetesSettings,
        instances: Instances,
        records: Records,
        states: SidecarStates,
        watches: Watches,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._settings = settings
        self._instances = instances
        self._records = records
        self._states = states
        self._watches = watches
        self._unheard = KeyedTimers(after=settings.dns_after)  # starts, until DNS is asked for them

    async def launch(self, template: Template, *, wanted: Promise | None) -> Instance:
        """As `Backend.launch`."""
        check_image(template)
        instance_id = new_instance_id()
        # Before the request: its sidecar's first words may be here before the answer.
        entry = self._instances.add(instance_id, template, cold=True)
        entry.made_here = True
        spec: dict[str, Any] = {"template": to_kube(template), "state": "Started"}
        if wanted is not None:
            spec |= {
                "madeFor": wanted.sandbox_id,
                "tenant": wanted.tenant,
                "labels": list(wanted.labels),
            }
        body = sandbox_body(instance_id, spec, request=wanted.request if wanted else None)
        try:
            await self._client.request(
                "POST", paths.sandboxes(self._namespace), body=body, timeout=self._settings.launch_timeout
            )
        except KubeError as error:
            self._instances.remove(instance_id)
            if isinstance(error, KubeUnreachable):
                self._records.drop(instance_id, template=template)  # it may be there all the same
            raise refusal(error, retry_after=self._settings.retry_after) from error
        except asyncio.CancelledError:
            self._instances.remove(instance_id)
            self._records.drop(instance_id, template=template)
            raise
        self._records.made(instance_id, wanted=wanted.sandbox_id if wanted else None)
        self._expect(entry)
        return entry.instance

    def close(self) -> None:
        self._unheard.close()

    def _expect(self, entry: Entry) -> None:
        """Its webhook may go astray and the watch of pods stand still: then the headless Service names it."""
        self._unheard.start(entry.instance.id, partial(self._look_for, entry))

    def _look_for(self, entry: Entry) -> None:
        if entry.heard or entry.leaving or self._instances.get(entry.instance.id) is not entry:
            return
        if entry.pod_seen and self._watches.failure is None:
            self._expect(entry)  # the watch tells its address as soon as it has one
        else:
            self._states.ask(entry)
