"""A part of e2b_script.py: files, directories, watches and signed URLs."""

from __future__ import annotations

import io
import sys
import urllib.request
from datetime import UTC, datetime, timedelta

from e2b import (
    AuthenticationException,
    FileNotFoundException,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
)
from e2b_raises import raises

OLD = "old" in sys.argv


def files(box: Sandbox) -> None:
    base = "/tmp/e2b files"
    written = box.files.write(f"{base}/deep/a.txt", "hällo")
    assert (written.name, written.path, written.type.value) == ("a.txt", f"{base}/deep/a.txt", "file")
    assert box.files.read(f"{base}/deep/a.txt") == "hällo"
    binary = bytes(range(256)) * 4096
    box.files.write(f"{base}/b.bin", binary)
    assert bytes(box.files.read(f"{base}/b.bin", format="bytes")) == binary
    box.files.write(f"{base}/stream.bin", io.BytesIO(binary))
    assert b"".join(box.files.read(f"{base}/stream.bin", format="stream")) == binary
    box.files.write(f"{base}/packed.bin", binary, gzip=True)
    assert bytes(box.files.read(f"{base}/packed.bin", format="bytes")) == binary
    several = [{"path": f"{base}/{name}", "data": name} for name in ("1", 'quoted "2"', "empty")]
    assert [each.path for each in box.files.write_files(several)] == [each["path"] for each in several]
    assert box.files.read(f'{base}/quoted "2"') == 'quoted "2"'
    box.files.write(f"{base}/empty", "")
    assert box.files.read(f"{base}/empty") == ""

    info = box.files.get_info(f"{base}/deep/a.txt")
    assert (info.size, info.owner, info.permissions) == (6, "root", "-rw-r--r--")
    assert datetime.now(UTC) - info.modified_time < timedelta(minutes=5)
    box.commands.run(f"ln -s deep '{base}/link'")
    link = box.files.get_info(f"{base}/link")
    assert (link.type.value, link.symlink_target) == ("dir", "deep")
    assert {each.name for each in box.files.list(base)} >= {"deep", "b.bin", "link", "1"}
    assert "a.txt" in {each.name for each in box.files.list(base, depth=2)}
    assert box.files.make_dir(f"{base}/x/y")
    assert not box.files.make_dir(f"{base}/x/y")
    assert box.files.rename(f"{base}/1", f"{base}/new/one").path == f"{base}/new/one"
    assert box.files.exists(f"{base}/new/one")
    assert not box.files.exists(f"{base}/1")
    box.files.remove(f"{base}/new")
    box.files.remove(f"{base}/new")
    assert not box.files.exists(f"{base}/new")

    for work in (
        lambda: box.files.read(f"{base}/none"),
        lambda: box.files.list(f"{base}/none"),
        lambda: box.files.get_info(f"{base}/none"),
        lambda: box.files.rename(f"{base}/none", f"{base}/other"),
    ):
        raises(NotFoundException if OLD else FileNotFoundException, work)
    raises(InvalidArgumentException, lambda: box.files.read(base))
    raises(InvalidArgumentException, lambda: box.files.list(f"{base}/b.bin"))
    watch = box.files.watch_dir(f"{base}/x", recursive=True)
    box.files.write(f"{base}/x/y/seen", "1")
    box.files.remove(f"{base}/x/y/seen")
    box.files.write(f"{base}/x/other", "2")
    seen = [(each.name, each.type.value) for each in watch.get_new_events()]
    assert seen == [("other", "create"), ("other", "write")]
    assert watch.get_new_events() == []
    watch.stop()
    raises(Exception, lambda: box.files.watch_dir(f"{base}/none"))
    signed(box, f"{base}/deep/a.txt")
    box.commands.run("mkdir -m 700 /srv/closed && echo secret > /srv/closed/a && mkdir -m 777 /srv/open")
    assert box.files.write("/srv/open/a", "mine", user="nobody").path == "/srv/open/a"
    assert box.files.get_info("/srv/open/a", user="nobody").owner == "nobody"
    assert box.files.read("/srv/open/a", user="nobody") == "mine"
    raises(Exception, lambda: box.files.read("/srv/closed/a", user="nobody"))
    raises(Exception, lambda: box.files.remove("/srv/closed/a", user="nobody"))
    raises(AuthenticationException, lambda: box.files.read("/srv/open/a", user="no-such-user"))
    assert box.files.read("/srv/closed/a") == "secret\n"


def signed(box: Sandbox, path: str) -> None:
    """A signed URL names no sandbox where one host serves all: a header has to, or the host name of a domain."""
    url = box.download_url(path, use_signature_expiration=60).replace("/files?", "/e2b/files?")
    request = urllib.request.Request(url, headers={"E2b-Sandbox-Id": box.sandbox_id})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.read().decode() == "hällo"
    url = box.upload_url(path).replace("/files?", "/e2b/files?")
    headers = {"E2b-Sandbox-Id": box.sandbox_id, "Content-Type": "application/octet-stream"}
    request = urllib.request.Request(url, data=b"new", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
    assert box.files.read(path) == "new"
