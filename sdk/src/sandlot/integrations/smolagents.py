"""Runs the code of a smolagents `CodeAgent` in a Sandlot sandbox: `CodeAgent(..., executor=SandlotExecutor())`."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from types import TracebackType
from typing import Any

import PIL.Image
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError

from sandlot._sync.python import PythonContext
from sandlot._sync.sandbox import Sandbox
from sandlot.cells import CellResult, RichOutput
from sandlot.errors import BadRequest, CommandFailed, PythonContextEnded, SandboxLost, SandlotError
from sandlot.integrations._lost_commands import ended_by_code

INSTALL_SECONDS = 600.0
MAX_PIXELS = 1 << 26  # a PNG of some kilobytes can have billions
OPTIONAL = {"PIL", "numpy"}  # smolagents' own `final_answer` looks for them, and does without


class ExecutorLost(BaseException):
    """The sandbox or its server failed, so the agent's run is no result: mask or repeat it.

    It is no `Exception`, since smolagents shows each of those to the model as a mistake of its code. `cause` is the
    SDK's error.
    """

    def __init__(self, cause: SandlotError) -> None:
        super().__init__(f"the agent's sandbox was lost: {cause}")
        self.cause = cause

    @property
    def infrastructure(self) -> bool:
        """False if the sandbox's owner ended it, by its deadline, say, or its code before this run of the agent."""
        if isinstance(self.cause, SandboxLost):
            return self.cause.infrastructure
        return not isinstance(self.cause, PythonContextEnded)


class SandlotExecutor(RemotePythonExecutor):
    """Runs an agent's code in a Python context of a sandbox, in which variables outlive each step.

    It creates a sandbox with the arguments `create` of `Sandbox.create` and deletes it in `cleanup`, which
    `CodeAgent.cleanup` calls. A `box` of yours stays. `timeout` is the seconds of one step.
    """

    def __init__(
        self,
        additional_imports: Sequence[str] = (),
        logger: AgentLogger | None = None,
        allow_pickle: bool = False,
        *,
        box: Sandbox | None = None,
        timeout: float | None = 300.0,
        interpreter: str = "python3",
        create: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger(level=LogLevel.ERROR), allow_pickle)
        self._timeout = timeout
        self._interpreter = interpreter
        self._owned = box is None
        self.box: Sandbox | None = box or Sandbox.create(**(create or {}))
        self._context: PythonContext | None = None
        self._setup: dict[str, list[str]] = {}  # what a new process needs: the code of tools and variables
        self._part: str | None = None
        self._optional: set[str] = set()
        try:
            self._context = self.box.python(interpreter=interpreter)
            self.installed_packages = self.install_packages(self.additional_imports)
        except BaseException:
            self.cleanup()
            raise

    def __enter__(self) -> SandlotExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cleanup()

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Run a step's code; what it raises is an AgentError, which the model sees. Raises ExecutorLost.

        An end of the sandbox by its code is an AgentError, too, of this step and the later ones.
        """
        if self._part is not None:
            code = _with_optional_imports(code, self._optional)
            self._setup[self._part].append(code)
            return self._output(code)
        try:
            return self._output(code)
        except ExecutorLost as lost:
            cause = lost.cause
            ended = ended_by_code(str(cause), cause.verdict) if isinstance(cause, SandboxLost) else None
            if ended is None:
                raise
            raise AgentError(f"{ended}. It runs no more code.", self.logger) from cause

    def _output(self, code: str) -> CodeOutput:
        try:
            result = self._run(code)
        except PythonContextEnded as ended:  # by a thread of an earlier step, say
            raise self._begun_again("", str(ended)) from ended
        logs = result.stdout + result.stderr
        error = result.error
        if error is not None and error.name == self.FINAL_ANSWER_EXCEPTION:
            answer = self._deserialize_final_answer(error.value, self.allow_pickle)
            return CodeOutput(output=answer, logs=logs, is_final_answer=True)
        if result.state_lost:
            raise self._begun_again(logs, result.message)
        if not result.ok:
            cause = (
                f" (the time limit of {self._timeout:g} s was reached)" if result.status == "timeout" else ""
            )
            raise AgentError(f"{logs}\nExecuting code yielded an error{cause}:\n{error}", self.logger)
        return CodeOutput(output=_value(result.result), logs=logs, is_final_answer=False)

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Define the agent's tools in the sandbox, and install what they import there."""
        others = (tool for name, tool in tools.items() if name != "final_answer")
        needed = {package for tool in others for package in tool.to_dict()["requirements"]}
        self._optional = OPTIONAL - needed
        self.installed_packages += sorted(self._optional - {*self.installed_packages})
        with self._remembered("tools"):
            super().send_tools(tools)

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Define variables in the sandbox."""
        with self._remembered("variables"):
            super().send_variables(variables)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Install packages by pip in the sandbox. Raises CommandFailed."""
        if additional_imports:
            command = [self._interpreter, "-m", "pip", "install", *additional_imports]
            self._python()
            assert self.box is not None
            with _losses():
                self.box.exec(command, timeout=INSTALL_SECONDS, check=True)
        return list(additional_imports)

    def cleanup(self) -> None:
        """End the Python process, and delete the sandbox unless it is yours."""
        box, context = self.box, self._context
        self.box = self._context = None
        try:
            if box is not None and self._owned:
                box.delete()
            elif context is not None:
                context.close()
        except SandlotError as error:
            self.logger.log_error(f"The sandbox could not be deleted, and ends at its timeout: {error}")

    def _run(self, code: str) -> CellResult:
        with _losses():
            return self._python().run(code, timeout=self._timeout)

    def _python(self) -> PythonContext:
        if self._context is None:
            raise ExecutorLost(PythonContextEnded("this executor was cleaned up: make one for each agent"))
        return self._context

    def _begun_again(self, logs: str, reason: str) -> AgentError:
        """Restart the Python process, define tools and variables in it, and return what the model is told."""
        try:
            with _losses():
                self._python().restart()
            for code in (code for codes in self._setup.values() for code in codes):
                self._run(code)
        except PythonContextEnded as error:
            raise ExecutorLost(error) from error
        return AgentError(
            f"{logs}\nThe Python process of this code has ended: {reason}. A new one has started, without the "
            "variables and imports of earlier steps; the tools are there.",
            self.logger,
        )

    @contextmanager
    def _remembered(self, part: str) -> Generator[None]:
        self._setup[part] = []
        self._part = part
        try:
            yield
        finally:
            self._part = None


@contextmanager
def _losses() -> Generator[None]:
    """Raise what is no fault of the code or the caller as ExecutorLost."""
    try:
        yield
    except (PythonContextEnded, CommandFailed, BadRequest):
        raise
    except SandlotError as error:
        raise ExecutorLost(error) from error


def _with_optional_imports(code: str, optional: set[str]) -> str:
    """Return the code of tools with those imports of modules optional that smolagents lists at its begin."""
    for name in optional:
        guarded = f"try:\n    import {name}\nexcept ImportError:\n    pass"
        code = re.sub(rf"^import {name}$", guarded, code, flags=re.MULTILINE)
    return code


def _value(result: RichOutput | None) -> Any:
    """Return an image as such, anything else as its text."""
    if result is None:
        return None
    image = None if result.png is None else _image(result.png)
    return result.text if image is None else image


def _image(data: bytes) -> PIL.Image.Image | None:
    """Return a PNG image, if it is one: code in the sandbox has written it, so no other of Pillow's formats is tried."""
    try:
        image = PIL.Image.open(BytesIO(data), formats=("PNG",))
        if image.width * image.height > MAX_PIXELS:
            return None
        image.load()  # else a broken one raises at its first use, in the agent
    except Exception:  # Pillow's are of many classes
        return None
    return image
