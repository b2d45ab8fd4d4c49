"""Starts our environment of harbor for a task, as another machine would: with a home and a host name of its own.

Runs in harbor's environment, with nothing of the tests. Prints what the build of the task's Dockerfile has in kept/when.
"""

import asyncio
import os
import socket
import sys
from pathlib import Path

from harbor.models.task.task import Task
from harbor.models.trial.paths import TrialPaths
from sandlot.integrations.harbor import SandlotEnvironment


async def main() -> None:
    os.unshare(os.CLONE_NEWUTS)
    socket.sethostname("another-machine")
    task = Task(Path(sys.argv[1]))
    paths = TrialPaths(Path("trial"))
    paths.mkdir()
    environment = SandlotEnvironment(
        environment_dir=task.paths.environment_dir,
        environment_name=task.short_name,
        session_id="elsewhere",
        trial_paths=paths,
        task_env_config=task.config.environment,
    )
    await environment.start(force_build=False)
    try:
        print((await environment.exec("cat kept/when")).stdout, end="")
    finally:
        await environment.stop(delete=True)


asyncio.run(main())
