"""Runs in smolagents' environment: agents whose model says what is written here, with SandlotExecutor."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import PIL.Image
from ended_box import EndedBox
from lost import kill_sidecar
from sandlot import Sandbox
from sandlot.integrations.smolagents import ExecutorLost, SandlotExecutor
from smolagents import ChatMessage, CodeAgent, LogLevel, MessageRole, Model, tool


class Scripted(Model):
    """Answers with one code block after the other, and keeps what it was asked."""

    def __init__(self, *codes: str) -> None:
        super().__init__(model_id="scripted")
        self.codes = list(codes)
        self.asked: list[str] = []

    def generate(self, messages: list[Any], **_: Any) -> ChatMessage:
        self.asked.append(str(messages[-1].content))
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{self.codes.pop(0)}\n</code>")


@tool
def double(number: int) -> int:
    """Doubles a number.

    Args:
        number: what is doubled
    """
    return 2 * number


def agent(model: Model, executor: SandlotExecutor, *, max_steps: int = 5) -> CodeAgent:
    return CodeAgent(
        tools=[double], model=model, executor=executor, max_steps=max_steps, verbosity_level=LogLevel.OFF
    )


def steps_share_a_process() -> None:
    model = Scripted(
        "print('step one')\nx = double(20)\nx + 1",
        "1 / 0",
        "final_answer({'x': x + start, 'big': 'y' * 300_000})",
    )
    with agent(model, SandlotExecutor()) as one:
        box = one.python_executor.box
        answer = one.run("a task", additional_args={"start": 2})
        assert answer == {"x": 42, "big": "y" * 300_000}, answer
    assert "step one" in model.asked[1], model.asked
    assert "41" in model.asked[1], model.asked
    assert "ZeroDivisionError" in model.asked[2], model.asked
    assert box.refresh().ended


def ends_of_the_code_are_told_to_the_model(box: Sandbox) -> None:
    model = Scripted(
        "import os\nx = 1\nos._exit(3)",
        "import time\ntime.sleep(60)",
        "final_answer([double(2), 'x' in globals()])",
    )
    with agent(model, SandlotExecutor(box=box, timeout=15.0)) as one:
        answer = one.run("a task")
    assert answer == [4, False], answer
    assert "ended with exit code 3" in model.asked[1], model.asked
    assert "time limit of 15 s" in model.asked[2], model.asked
    assert not box.refresh().ended  # it is the caller's


def images_are_png_or_text(box: Sandbox) -> None:
    def image(form: str) -> bytes:
        file = BytesIO()
        PIL.Image.new("RGB", (64, 64), "red").save(file, form)
        return file.getvalue()

    png = image("PNG")
    huge = png[:16] + (1 << 16).to_bytes(4, "big") * 2 + png[24:29]
    huge += zlib.crc32(huge[12:]).to_bytes(4, "big") + png[33:]
    with SandlotExecutor(box=box) as executor:
        for data, is_image in ((png, True), (image("GIF"), False), (png[:-40], False), (huge, False)):
            shown = f"class Shown:\n    _repr_png_ = lambda self: {data}\n    __repr__ = lambda self: 'text'\nShown()"
            output = executor(shown).output
            assert getattr(output, "size", output) == ((64, 64) if is_image else "text"), output


class Losing(Scripted):
    """Loses the sandbox after the first step."""

    def __init__(self, lose: Callable[[], object], *codes: str) -> None:
        super().__init__(*codes)
        self.lose = lose

    def generate(self, messages: list[Any], **_: Any) -> ChatMessage:
        if len(self.asked) == 1:
            self.lose()
        return super().generate(messages)


def a_sandbox_that_its_code_ended_is_told_to_the_model(box: Sandbox, verdict: str) -> None:
    executor = SandlotExecutor(box=box)
    answer = "it ran out of memory"
    model = Losing(
        lambda: setattr(executor, "_context", EndedBox(verdict)), "x = 1", "x", "final_answer(x)", answer
    )
    with agent(model, executor, max_steps=3) as one:
        assert answer in one.run("a task")
        told = f"the sandbox has ended ({verdict})"
        assert told in model.asked[2], model.asked
        errors = [str(step.error) for step in one.memory.steps if getattr(step, "error", None)]
        assert [told in error for error in errors[:2]] == [True, True], errors
        try:
            one.run("another task")
        except ExecutorLost as lost:
            assert not lost.infrastructure
        else:
            raise AssertionError("a run began in a sandbox that has ended")


def a_lost_sandbox_ends_the_run(box: Sandbox, lose: Callable[[], None], *, infrastructure: bool) -> None:
    """Neither is a step that the model sees; only what the infrastructure lost is to be masked."""

    model = Losing(
        lose,
        "import subprocess\nrunning = subprocess.Popen(['sleep', '600.125'])",
        "running",
        "final_answer(1)",
    )
    with agent(model, SandlotExecutor(box=box)) as one:
        try:
            one.run("a task")
        except ExecutorLost as lost:
            assert lost.infrastructure is infrastructure, lost.cause
            assert len(model.asked) == 2, model.asked
            return
        raise AssertionError(model.asked)


def the_page_runs(page: Path) -> None:
    model = Scripted("final_answer(24133)", "import random\nfinal_answer(random.sample(range(52), 3))")
    names: dict[str, Any] = {"model": model}
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(code, names)  # noqa: S102
    assert not model.codes


def main() -> None:
    steps_share_a_process()
    with Sandbox.create() as box:
        ends_of_the_code_are_told_to_the_model(box)
        images_are_png_or_text(box)
        for verdict in ("exited", "oom", "init_killed"):
            a_sandbox_that_its_code_ended_is_told_to_the_model(box, verdict)
        a_lost_sandbox_ends_the_run(box, box.delete, infrastructure=False)
    with Sandbox.create() as box:
        a_lost_sandbox_ends_the_run(box, lambda: kill_sidecar("600.125"), infrastructure=True)
    the_page_runs(Path(sys.argv[1]))
    print("done")


if __name__ == "__main__":
    main()
