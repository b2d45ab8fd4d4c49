"""Makes Prime's clients, unmodified, trust an authority of the tests'.

Their command transport trusts the bundle of `certifi` only: a copy of that package stands in front of theirs, with one
authority more in its bundle.
"""

from __future__ import annotations

import shutil
from pathlib import Path


def trusting(python: Path, *, authority: Path, directory: Path) -> dict[str, str]:
    """The variables with which the environment of this Python trusts `authority`; makes files in `directory`."""
    installed = next(python.parent.parent.glob("lib/python*/site-packages")) / "certifi"
    copy = directory / "certifi"
    shutil.copytree(installed, copy, dirs_exist_ok=True)
    bundle = copy / "cacert.pem"
    with bundle.open("ab") as file:
        file.write(authority.read_bytes())
    return {"PYTHONPATH": str(directory), "SSL_CERT_FILE": str(bundle)}
