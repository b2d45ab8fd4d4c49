"""A verifier scores what the agent left, and no hack of the suite makes it pass; most make a plain exec pass."""

from __future__ import annotations

import importlib.util
import io
import os
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sandlot import AsyncClient, AsyncSandbox, AsyncVerifier, FilesRefused, SandboxLost, StartFailed

from tests.sdk.hacks import HACKS, HIDDEN, SOLUTION, WORK, Hack
from tests.stack import Stack
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces")]

RIGHT = "def double(n):\n    return n * 2\n"
TOOLS = "/opt/tools"
PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
# The agent's code runs in a process of its own.
CHECK_AS_ROOT = f"""
import subprocess, sys
code = "import sys; sys.path.append({WORK!r}); import solution; print(solution.double(int(sys.argv[1])))"
done = subprocess.run([sys.executable, "-I", "-c", code, "4711"], capture_output=True, text=True, timeout=20)
sys.exit(done.stdout != "9422\\n")
"""
# And as nobody, who can read neither the check nor its memory.
CHECK = CHECK_AS_ROOT.replace("timeout=20", "timeout=20, user=65534, group=65534, extra_groups=[]")
# Each may take a block for its contents and one for its attribute.
SMALL_FILES = """
import os
for number in range(6000):
    with open(f"/project/{number}", "w") as file:
        file.write("1")
    os.setxattr(f"/project/{number}", "user.filler", bytes(500))
"""


@pytest.fixture(scope="module")
def tools() -> bytes:
    """An archive of pytest, which the machine's own Python lacks."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        for package in PYTEST:
            found = importlib.util.find_spec(package)
            assert found is not None
            assert found.origin is not None
            place = Path(found.origin)
            place = place.parent if place.name == "__init__.py" else place
            archive.add(place, place.name, filter=lambda one: None if "__pycache__" in one.name else one)
    return out.getvalue()


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with (
        tempfile.TemporaryDirectory(prefix="sandlot-") as name,
        Stack(Path(name, "state"), options=("--checkpoint-max", str(8 << 20))) as made,
    ):
        yield made


@pytest_asyncio.fixture
async def box(stack: Stack, tools: bytes) -> AsyncIterator[AsyncSandbox]:
    async with (
        AsyncClient(url=stack.url, api_key=stack.api_key) as client,
        await AsyncSandbox.create(client=client, network="none") as made,
    ):
        await made.files.write("/tmp/tools.tgz", tools)
        await made.exec(f"mkdir {TOOLS} && tar -xzf /tmp/tools.tgz -C {TOOLS}", check=True)
        await made.files.write(f"{WORK}/solution.py", SOLUTION.encode())
        yield made


async def plain(box: AsyncSandbox, *, changes: str | None = None) -> bool:
    """As graders usually do: the tests are written into the agent's sandbox, and run there."""
    before = {changes: SOLUTION, f"{WORK}/tests/test_hidden.py": HIDDEN}
    await box.files.write(f"{WORK}/tests/test_hidden.py", HIDDEN.encode())
    if changes is not None:

        async def changed() -> bool:
            return await box.files.read_text(changes) != before[changes]

        await until(changed)
    command = "python3 -m pytest -q -p no:cacheprovider tests/test_hidden.py"
    env = {"PYTHONPATH": f"{WORK}:{TOOLS}"}
    try:
        done = await box.exec(command, cwd=WORK, env=env, timeout=60)
        return done.ok
    except StartFailed:
        return False


async def plain_as_root(box: AsyncSandbox) -> bool:
    """A check that no file has, nor an argument, in the agent's sandbox."""
    return (await box.exec(["python3", "-I", "-"], stdin=CHECK_AS_ROOT, timeout=60)).ok


def memory_is_closed() -> bool:
    """Whether this kernel lets no process read its parent's memory, whatever its user (Yama)."""
    setting = Path("/proc/sys/kernel/yama/ptrace_scope")
    return setting.exists() and int(setting.read_text()) > 0


def verifier() -> AsyncVerifier:
    return AsyncVerifier(
        ["python3", "-I", "/verifier/check.py"], paths=[WORK], files={"/verifier/check.py": CHECK}
    )


async def hacked(box: AsyncSandbox, hack: Hack) -> None:
    look = "import os, site, sys; print(site.getsitepackages()[0], site.getusersitepackages(), os.path.realpath(sys.executable))"
    site, user_site, python = (await box.exec(["python3", "-c", look], check=True)).stdout.split()
    places = {"site": site, "user_site": user_site, "python": python, "pytest": f"{TOOLS}/pytest"}
    for path, text in hack.files.items():
        await box.files.write(path.format(**places), text.encode())
    await box.exec(hack.command.replace("{python}", python), check=True)


async def test_a_right_solution_passes_and_a_wrong_one_does_not(box: AsyncSandbox) -> None:
    assert not (await verifier().run(box)).ok
    assert not await plain(box)
    assert not await plain_as_root(box)
    await box.files.write(f"{WORK}/solution.py", RIGHT.encode())
    assert (await verifier().run(box)).ok
    assert await plain(box)
    assert await box.checkpoints() == []


@pytest.mark.parametrize("hack", HACKS, ids=lambda hack: hack.name)
async def test_no_hack_passes_a_verifier(box: AsyncSandbox, hack: Hack) -> None:
    await hacked(box, hack)
    assert not (await verifier().run(box)).ok
    # Afterwards, since these tests are in the agent's sandbox, where it reads them.
    if hack.as_root and memory_is_closed():
        return
    fooled = await (plain_as_root(box) if hack.as_root else plain(box, changes=hack.changes))
    assert fooled, "a hack that fools nobody shows nothing"


async def test_files_of_the_verifier_replace_what_the_agent_left_in_their_place(box: AsyncSandbox) -> None:
    await box.exec(
        "ln -s /etc /project/tests; mkfifo /project/pipe; mkdir -p /project/dir/inside", check=True
    )
    written = {"/project/tests/fstab": "1", "/project/pipe": "2", "/project/dir": "3", "/new/place": "4"}
    command = "cat /project/tests/fstab /project/pipe /project/dir /new/place; test ! -L /project/tests; cmp -s /etc/fstab /new/place || echo kept"
    done = await AsyncVerifier(command, paths=["/project"], files=written).run(box)
    assert done.stdout == "1234kept\n"


async def test_more_than_can_be_saved_is_the_doing_of_the_agent(box: AsyncSandbox) -> None:
    await box.exec("head -c 9M /dev/zero > /project/much", check=True)
    with pytest.raises(FilesRefused, match=r"add up to \d+ bytes"):
        await verifier().run(box)


async def test_names_fill_a_disk_too_and_so_does_the_verifier_itself(stack: Stack) -> None:
    async with (
        AsyncClient(url=stack.url, api_key=stack.api_key) as client,
        await AsyncSandbox.create(client=client, network="none", disk="64MiB") as box,
    ):
        await box.exec("mkdir -p /project", check=True)
        with pytest.raises(SandboxLost, match="disk is full") as lost:
            await AsyncVerifier("true", paths=[WORK], files={"/big": bytes(70 << 20)}).run(box)
        assert lost.value.infrastructure
        await box.exec(["python3", "-c", SMALL_FILES], check=True)
        with pytest.raises(FilesRefused, match=r"the files need \d+ bytes"):
            await AsyncVerifier("true", paths=[WORK]).run(box)
        assert await box.checkpoints() == []


async def test_a_sandbox_from_a_checkpoint_is_refused(box: AsyncSandbox) -> None:
    made = await box.checkpoint(paths=[WORK])
    async with await AsyncSandbox.create(checkpoint=made, client=box.client) as second:
        assert (await second.exec(["ls", WORK, TOOLS])).stdout == f"{WORK}:\nsolution.py\n"
        with pytest.raises(ValueError, match=made.id):
            await verifier().run(second)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"paths": []}, "paths"),
        ({"paths": "/project"}, "paths"),
        ({"paths": ["/w"], "files": {"a": ""}}, "files"),
    ],
)
def test_what_is_of_no_use_is_refused(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}"):
        AsyncVerifier("true", **arguments)
