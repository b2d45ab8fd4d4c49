"""Runs the senders of all targets of a gateway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sandlot_gateway.metrics import WebhookOutcome
from sandlot_gateway.settings import Settings
from sandlot_gateway.tasks import Tasks

from ..journal import Journal
from ..relay import Relay
from .post import Poster
from .sender import AT_ONCE, Sender
from .targets import Target, read_targets

_TIMEOUT = 15.0  # seconds of an attempt, as Standard Webhooks recommends


class EventWebhooks:
    def __init__(
        self,
        targets: Sequence[Target],
        *,
        directory: Path,
        journal: Journal,
        relay: Relay | None,
        counted: Callable[[WebhookOutcome], None],
    ) -> None:
        self._targets = targets
        self._directory = directory
        self._journal = journal
        self._relay = relay
        self._counted = counted
        self._tasks = Tasks()
        self._poster: Poster | None = None

    def start(self) -> None:
        """Begin to send, once the journal is complete. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._poster = poster = Poster(timeout=_TIMEOUT, connections=AT_ONCE)
        for target in self._targets:
            sender = Sender(
                target,
                journal=self._journal,
                poster=poster,
                place=self._directory / target.name,
                counted=self._counted,
            )
            self._tasks.spawn(sender.run())
            if self._relay is not None:
                self._relay.follow(target.tenant)

    async def close(self) -> None:
        """Stop: the next gateway of this state directory goes on, and other gateways send the same events."""
        await self._tasks.close()
        if self._poster is not None:
            await self._poster.close()
            self._poster = None


def webhooks_of(
    settings: Settings, *, journal: Journal, relay: Relay | None, counted: Callable[[WebhookOutcome], None]
) -> EventWebhooks | None:
    """Return the webhooks of these settings; None without a file of targets. Raises BadTargets."""
    if settings.event_webhooks_file is None:
        return None
    return EventWebhooks(
        read_targets(settings.event_webhooks_file),
        directory=settings.state_dir / "event-webhooks",
        journal=journal,
        relay=relay,
        counted=counted,
    )


def secret_files(settings: Settings) -> list[Path]:
    """Return the files of the targets' secrets, which sandboxes on this machine must not see. Raises BadTargets."""
    path = settings.event_webhooks_file
    return [] if path is None else [target.secret_file for target in read_targets(path)]
