"""Entry point, `python -m sandlot_controller`: reads settings from the environment, stops on SIGTERM and SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import textwrap

from sandlot_contract import logs
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import BadKubeConfig

from .controller import Controller
from .settings import BadSettings, Settings, load

_log = logging.getLogger(__name__)


def main() -> int:
    """Run the controller; return 0 after an orderly stop, 1 for a failure or a lost Lease, 2 for bad settings."""
    argparse.ArgumentParser(
        prog="python -m sandlot_controller",
        description="Create and delete the pods of Sandbox and SandboxPool. Settings come from the environment:",
        epilog=_settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    try:
        settings = load()
        logs.configure(settings.log_level, warnings_only=("kopf", "asyncio"))
        return asyncio.run(_serve(settings))
    except (BadSettings, BadKubeConfig) as error:
        sys.stderr.write(f"sandlot_controller: {error}\n")
        return 2


def _settings_help() -> str:
    lines = []
    for name, field in Settings.model_fields.items():
        lines.append(f"SANDLOT_{name.upper()}{' (required)' if field.is_required() else ''}")
        lines.append(
            textwrap.fill(field.description or "", 100, initial_indent="    ", subsequent_indent="    ")
        )
    return "\n".join(lines)


async def _serve(settings: Settings) -> int:
    client = KubeClient.from_environment()
    try:
        work = asyncio.create_task(Controller(client, settings).run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, work.cancel)
        try:
            await work
        except asyncio.CancelledError:
            _log.info("stopped by a signal")
            return 0
        except Exception as error:
            parts = error.exceptions if isinstance(error, ExceptionGroup) else [error]
            for part in parts:
                _log.error("stopped by a failure: %s", part, exc_info=part)
            return 1
        return 0
    finally:
        await client.close()


if __name__ == "__main__":
    sys.exit(main())
