"""Translates how a create request has its process started and stopped; rejects what is not available."""

from __future__ import annotations

from typing import Literal

from sandlot_contract.signals import signal_number

from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.models import StartCommand


def start_command(
    command: str | list[str] | StartCommand | None,
) -> tuple[str | list[str] | None, Literal["string", "object"] | None]:
    """Return the command of a request and its kind."""
    if command is None or command in ("", []):
        return None, None
    if isinstance(command, str):
        return command, "string"
    if isinstance(command, StartCommand):
        return [command.executable, *command.args], "object"
    return command, "object"


def check_image_command(command: str | list[str] | None, *, lays_images: bool, gpus_keep_image: bool) -> None:
    field = "run_image_command"
    if command is not None:
        raise ApiError(422, f"{field}: start_command is set, too: leave one of the two out", field=field)
    if gpus_keep_image:
        raise ApiError(
            422,
            f"{field}: pods with GPUs keep the image that they start with, whose command the gateway does not know: "
            "set start_command instead",
            field=field,
        )
    if not lays_images:
        raise ApiError(
            422,
            f"{field}: pods of this cluster keep the image that they start with, whose command the gateway does not "
            "know: set start_command instead, or slots.enabled in the chart",
            field=field,
        )


def stop_signal(name: str | int | None) -> int | None:
    """Return the number of a signal. Raises ApiError 422."""
    if name is None:
        return None
    try:
        return signal_number(name)
    except ValueError as error:
        raise ApiError(422, f"stop_signal: {error}", field="stop_signal") from error
