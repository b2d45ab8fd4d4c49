"""The start command and stop signal that a claim takes from its image's configuration."""

from __future__ import annotations

import logging

import msgspec
from sandlot_contract.signals import signal_number

from sandlot_gateway.core.claim_images import ClaimImage
from sandlot_gateway.core.supply_events import StartFailed
from sandlot_gateway.sandboxes import Sandbox

_log = logging.getLogger(__name__)


def resolve(sandbox: Sandbox, image: ClaimImage | None) -> StartFailed | None:
    """Set the start command of a create that runs its image's; return why that cannot be, or None."""
    spec = sandbox.spec
    if not spec.run_image_command:
        return None
    if image is None:
        return _failed(
            "this pod keeps the image that it started with, whose command the gateway does not know: "
            "set start_command instead, or use a pool of slots"
        )
    name = repr(spec.image)
    if image.command is None:
        return _failed(
            f"an earlier version unpacked the image {name} and did not keep its command: "
            "set start_command instead, or remove the gateway's cache of images"
        )
    if not image.command or not image.command[0]:
        return _failed(f"the image {name} has neither ENTRYPOINT nor CMD: set start_command instead")
    if not all(map(_is_usable, image.command)):
        return _failed(
            f"the command of the image {name} has a NUL byte or is no valid text: set start_command instead"
        )
    command = list(image.command)
    sandbox.spec = msgspec.structs.replace(spec, start_command=command, start_kind="object")
    return None


def stop_signal(sandbox: Sandbox, image: ClaimImage | None) -> int | None:
    """Return the signal of the create, else of its image; None: the sidecar's default."""
    if sandbox.spec.stop_signal is not None or image is None or not image.stop_signal:
        return sandbox.spec.stop_signal
    try:
        return signal_number(image.stop_signal)
    except ValueError:
        # As Docker does. The create does not fail for what matters at its end only.
        _log.warning(
            "an image's stop signal is unknown: SIGTERM is used",
            extra={"image": sandbox.spec.image, "signal": image.stop_signal[:100]},
        )
        return None


def _failed(text: str) -> StartFailed:
    return StartFailed(text, error_type="START_FAILED", field="run_image_command")


def _is_usable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text
