"""A sandbox that code of its trial has ended: the trial has no reward, and harbor does not run it again."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from logging import Logger

from harbor.verifier.verifier import RewardFileNotFoundError

from sandlot.integrations.harbor.losses import SandboxEndedByCode, losses


class OwnEnd:
    """Remembers that code has ended the sandbox of an environment.

    The command that ends so has a result. What harbor does next raises its own RewardFileNotFoundError, since no
    reward is left in the sandbox: any other name it would take for a failure of the environment, and try again.
    """

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self.reason: str | None = None

    def check(self) -> None:
        """Raise RewardFileNotFoundError if the sandbox has ended so."""
        if self.reason is not None:
            raise RewardFileNotFoundError(self.reason)

    @contextmanager
    def checked(self, doing: str) -> Generator[None]:
        """Raise what the SDK says of a lost sandbox as harbor should see it."""
        self.check()
        try:
            with losses(doing):
                yield
        except SandboxEndedByCode as error:
            self.reason = str(error)
            raise RewardFileNotFoundError(self.reason) from error

    @contextmanager
    def nothing_left(self, doing: str) -> Generator[None]:
        """Copy nothing to or from such a sandbox, and say so in the trial's log.

        harbor gives an exception of a copied directory a name that it retries.
        """
        try:
            with losses(doing):
                yield
        except (SandboxEndedByCode, RewardFileNotFoundError) as error:
            self.reason = str(error)
            self._logger.warning(f"{doing}: nothing is copied: {error}")
