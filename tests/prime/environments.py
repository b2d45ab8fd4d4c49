"""Makes environments that hold one published client package each, as a user installs it, and keeps them between runs.

`python -m tests.prime.environments` makes all that the tests use: on the cluster's network there is no index.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path

from packaging.version import InvalidVersion, Version

# Set, as by `make test-clients` and `make test-frameworks`: also what takes long and shows little more.
WHOLE = "SANDLOT_WHOLE_SUITES"
# A directory with environments of newest releases, by package, which tests use then.
NEWEST_IN = "SANDLOT_NEWEST_FRAMEWORKS"
THIS = Version(".".join(map(str, sys.version_info[:3])))
CACHE = Path(os.environ.get("SANDLOT_CLIENTS_CACHE", Path.home() / ".cache" / "sandlot-clients"))

SDKS = ("0.2.6", "0.2.13", "0.2.27", "0.2.36", "0.2.42", "0.3.0", "0.3.2", "0.4.0", "0.4.7", "0.5.0", "0.5.1")
CLIENTS = (
    *(("prime-sandboxes", version) for version in SDKS),
    ("prime", "0.18.0", "prime-sandboxes==0.5.1"),
    ("verifiers", "0.1.14", "prime-sandboxes==0.2.36"),
    ("verifiers", "0.4.0", "prime-sandboxes==0.5.1"),
    ("matplotlib", "3.11.2"),  # for figures in cells
)


class EnvironmentFailed(Exception):
    """The package could not be installed; the message is the installer's."""


class IndexUnreachable(EnvironmentFailed):
    """No package index answered: nothing is known of the package."""


def environment(
    package: str, version: str, *, also: tuple[str, ...] = (), python: str = "3.11", alone: bool = False
) -> Path:
    """The Python of an environment with `package==version` and what it asks for; made once, then found again.

    `also` are further requirements, `("prime-sandboxes==0.2.36",)` say, and `python` the lowest version of Python
    that it runs on. `alone`: without what it asks for, to read files of a package that needs gigabytes. Two processes
    that ask at the same time make one environment. Raises EnvironmentFailed, IndexUnreachable.
    """
    requirements = (f"{package}=={version}", *also)
    wanted = ("--no-deps", *requirements) if alone else requirements
    return _made(f"{package}-{version}", wanted, key="\n".join(wanted), interpreter=interpreter(python))


def newest_environment(
    home: Path, package: str, *, also: tuple[str, ...] = (), interpreter: Path, alone: bool = False
) -> Path:
    """Make an environment in `home` with the newest release that this Python runs; return its own Python.

    Raises EnvironmentFailed, IndexUnreachable.
    """
    words = ("--no-deps",) if alone else ()
    _fill(home, (*words, package, *also), interpreter=interpreter)
    return home / "bin" / "python"


def newest_python(package: str) -> Path | None:
    """The Python of the environment with this package's newest release, in a run of newest releases that has one."""
    python = Path(os.environ.get(NEWEST_IN, "/")) / package / "bin" / "python"
    return python if python.exists() else None


def version_in(python: Path, package: str) -> str:
    """The version of a package that is installed."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def at_hand(lowest: str) -> dict[Version, Path]:
    """The Pythons of this machine of at least this version (`3.12`): that of the tests, then the oldest first."""
    return {version: python for version, python in _pythons(_pyenv()).items() if version >= Version(lowest)}


@cache
def _pythons(pyenv: Path) -> dict[Version, Path]:
    found = {THIS: Path(sys.executable)}
    for python in _pyenvs(pyenv).values():
        # Its directory may be a link or an alias, or what is left of it.
        if version := _version_of(python):
            found.setdefault(version, python)
    for each in json.loads(uv("python", "list", "--only-installed", "--output-format", "json")):
        if (each["implementation"], each["variant"]) == ("cpython", "default"):
            found.setdefault(Version(each["version"]), Path(each["path"]))
    return {version: found[version] for version in sorted(found, key=lambda each: (each != THIS, each))}


def _version_of(python: Path) -> Version | None:
    code = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
    try:
        told = subprocess.run(
            [python, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        return Version(told.stdout.strip())
    except (OSError, subprocess.SubprocessError, InvalidVersion):
        return None


def _pyenv() -> Path:
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")


def _pyenvs(pyenv: Path) -> dict[Version, Path]:
    """By the names of their directories."""
    found = (pyenv / "versions").glob("3.*/bin/python")
    # Its name may be `3.13t` or `3.14-dev`.
    by_name = {path.parts[-3]: path for path in found if re.fullmatch(r"[\d.]+", path.parts[-3])}
    return {Version(name): by_name[name] for name in sorted(by_name, key=Version)}


def interpreter(lowest: str) -> Path:
    """A Python of at least this version (`3.12`): that of the tests, else another of the machine, else uv's.

    Raises IndexUnreachable where there is none and uv cannot download one.
    """
    if Version(lowest) <= THIS:
        return Path(sys.executable)
    # Before uv, which takes seconds to look at all Pythons of a machine.
    for version, python in _pyenvs(_pyenv()).items():
        if version >= Version(lowest):
            return python
    try:
        return Path(uv("python", "find", f">={lowest}").strip())
    except EnvironmentFailed:
        uv("python", "install", lowest)
        return Path(uv("python", "find", f">={lowest}").strip())


def pinned_environment(pinned: Path) -> Path:
    """The Python of an environment with what a list pins by hash; made once, then found again.

    Raises EnvironmentFailed, IndexUnreachable.
    """
    wanted = ("--require-hashes", "--requirement", str(pinned))
    return _made(pinned.stem, wanted, key=pinned.read_text(), interpreter=Path(sys.executable))


def _made(name: str, wanted: tuple[str, ...], *, key: str, interpreter: Path) -> Path:
    """Install `wanted` under this name; another `key` or Python is another environment."""
    # With the interpreter's place and build: the environment links to it.
    build = f"{sys.base_prefix}\n{sys.version}" if interpreter == Path(sys.executable) else str(interpreter)
    digest = hashlib.sha256(f"{build}\n{key}".encode()).hexdigest()[:8]
    home = CACHE / f"{name}-{digest}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            _fill(home, wanted, interpreter=interpreter)
            (home / "complete").touch()
    return home / "bin" / "python"


def _fill(home: Path, wanted: tuple[str, ...], *, interpreter: Path) -> None:
    uv("venv", "--quiet", "--python", str(interpreter), str(home))
    place = ("--python", str(home / "bin" / "python"))
    uv("pip", "install", "--quiet", "--compile-bytecode", *place, *wanted)


def client_env(home: Path, *, url: str, api_key: str) -> dict[str, str]:
    """The environment variables of a client's process: this server, and nothing of the machine's own settings.

    `home` takes the files that clients write (~/.prime), so that they neither find nor leave any elsewhere.
    """
    foreign = ("PRIME_", "PYTHON", "VIRTUAL_ENV", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"HOME": str(home), "PRIME_API_BASE_URL": url, "PRIME_API_KEY": api_key}


def uv(*arguments: str, variables: Mapping[str, str] | None = None) -> str:
    """What uv prints, with these further variables of environment. Raises EnvironmentFailed, IndexUnreachable."""
    program = Path(sys.executable).with_name("uv")
    # uv starts each of pyenv's shims to see which Python it is, for seconds; `_pyenvs` finds those Pythons.
    found = os.environ["PATH"].split(os.pathsep)
    path = os.pathsep.join(each for each in found if not Path(each).is_relative_to(_pyenv()))
    # A directory of its own: the workspace's settings for uv are not the client's.
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [str(program), *arguments],
            env={**os.environ, "PATH": path, **(variables or {})},
            capture_output=True,
            text=True,
            check=False,
            cwd=elsewhere,
        )
    if done.returncode != 0:
        unreachable = any(words in done.stderr for words in ("Failed to fetch", "network was disabled"))
        kind = IndexUnreachable if unreachable else EnvironmentFailed
        raise kind(f"uv {' '.join(arguments)}: {done.stderr[-2000:]}")
    return done.stdout


def make_all(makers: Iterable[tuple[str, Callable[[], Path]]]) -> None:
    """Make them; what cannot be had is said; the tests that need it are skipped, or fail with SANDLOT_REQUIRE_CLIENTS."""
    for name, make in makers:
        try:
            make()
        except EnvironmentFailed as error:
            print(f"{name}: {error}", file=sys.stderr)


def clients() -> Iterator[tuple[str, Callable[[], Path]]]:
    """What makes each of CLIENTS, by name."""
    for package, version, *also in CLIENTS:
        yield f"{package} {version}", partial(environment, package, version, also=tuple(also))


if __name__ == "__main__":
    make_all(clients())
