"""The backend's calls about images: checks of their names, and preparations for claims where pods can lay them."""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from typing import Any

from sandlot_contract.template import Template

from ...core.backend import BackendError
from ...core.claim_images import ClaimImage
from ...core.instances import ImageCheck, Instance, Laid, by_size_or_gpus, by_template
from ...data.pool import HttpPool
from .claim_images import KubernetesImages
from .instances import Instances
from .node_agents import NodeAgents
from .reporter import Reporter
from .settings import KubernetesSettings
from .translate import check_image


def images_of(settings: KubernetesSettings, *, pool: HttpPool) -> KubernetesImages | None:
    """Return the preparation of images, or None without a token of the node agents. Raises BackendError."""
    if settings.node_agent_token_file is None:
        return None
    try:
        agents = NodeAgents(
            pool=pool, token_file=settings.node_agent_token_file, timeout=settings.agent_timeout
        )
    except OSError as error:
        raise BackendError(
            f"cannot read the node agents' token: {error}; check --node-agent-token-file"
        ) from error
    return KubernetesImages(agents, pool=pool, settings=settings)


class ImageCalls:
    """A base of the backend, which sets the attributes."""

    _images: KubernetesImages | None  # None: pods keep their images
    _instances: Instances
    _reporter: Reporter

    @property
    def lays_images(self) -> bool:
        return self._images is not None

    def kind(self, template: Template) -> str:
        return by_size_or_gpus(template) if self.lays_images else by_template(template)

    @property
    def pools_without_image(self) -> bool:
        return self.lays_images

    def image_ahead(self, image: str) -> Coroutine[Any, Any, object] | None:
        """Return None: the create's instance decides which node prepares it."""

    async def claim_image(
        self, image: str, *, tenant: str, instance: Instance, with_config: bool = False
    ) -> ClaimImage | None:
        if self._images is None:
            return None
        return await self._images.claim(image, tenant=tenant, instance=instance, with_config=with_config)

    def image_progress(self, image: str, *, tenant: str) -> str | None:
        return self._images.progress(image, tenant=tenant) if self._images is not None else None

    def image_laid(self, instance: Instance, *, before: Laid | None) -> None:
        if self._images is not None:
            self._images.laid(instance, before=before)

    def image_unlaid(self, instance: Instance, image_id: str) -> None:
        if self._images is not None:
            self._images.unlaid(instance, image_id)

    def nodes_with(self, image: str) -> Collection[str]:
        return self._images.nodes_with(image) if self._images is not None else ()

    async def check_image(self, image: str) -> ImageCheck:
        """Check the name only: nodes pull images, with their own credentials and network."""
        check_image(Template(image=image))
        if any(
            seen.instance.template.image == image
            and self._reporter.events.phase(seen.instance.id) is not None
            for seen in self._instances
        ):
            return ImageCheck("a sandbox of this image is running")
        text = (
            "not checked whether the registry has it: the node that starts a sandbox fetches it. "
            "Its name is valid and its registry is allowed"
        )
        return ImageCheck(text, checked=False)
