"""Run by tests/frameworks/test_e2b_templates.py with the SDK of E2B: its asynchronous half builds a template."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from e2b import AsyncSandbox, AsyncTemplate
from e2b.exceptions import BuildException
from e2b_end import end

HERE = Path.cwd()
(HERE / "data").write_text("copied")


async def main() -> None:
    logged: list[str] = []
    template = (
        AsyncTemplate(file_context_path=str(HERE))
        .from_image(os.environ["SANDLOT_SCRIPT_IMAGE"])
        .set_envs({"ANSWER": "42"})
        .copy("data", "/srv/data")
        .run_cmd("echo seen")
    )
    info = await AsyncTemplate.build(
        template, "async", tags=["v1"], on_build_logs=lambda entry: logged.append(entry.message)
    )
    assert (info.name, info.tags, "seen" in logged) == ("async", ["v1"], True), (info, logged)
    assert await AsyncTemplate.exists("async")
    await AsyncTemplate.assign_tags("async:v1", ["default"])
    assert {each.tag for each in await AsyncTemplate.get_tags("async")} == {"v1", "default"}
    box = await AsyncSandbox.create("async", timeout=60)
    assert (await box.commands.run('cat /srv/data; echo " $ANSWER"')).stdout == "copied 42\n"
    await box.kill()
    try:
        await AsyncTemplate.build(AsyncTemplate().from_template("async").run_cmd("exit 3"), "broken")
    except BuildException as error:
        assert "exit code 3" in str(error), error
    else:
        raise AssertionError("no BuildException")


asyncio.run(main())
end("all of it")
