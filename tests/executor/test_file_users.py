"""A file operation that acts as a user has that user's rights and no others, whatever user code changes meanwhile."""

from __future__ import annotations

import os

import pytest
from sandlot_sidecar.executor.jobs import MOST_FILE_JOBS

from tests.executor.conftest import Box, Make, user_namespaces_allowed
from tests.executor.driver import Driver, Refused
from tests.executor.processes import children_of
from tests.stopped import stopped

pytestmark = pytest.mark.root
NOBODY = 65534


def refused(box: Driver, code: str, **arguments: object) -> Refused:
    with pytest.raises(Refused) as error:
        box.ask("file", **arguments)
    assert error.value.code == code, error.value
    return error.value


def test_what_a_user_makes_is_that_user_s(box: Driver) -> None:
    box.run("mkdir -m 1777 /shared")
    temporary, fd = box.ask_fd("file", op="create", path="/shared/a/b/file", parents=True, user="nobody")
    os.write(fd, b"x")
    os.close(fd)
    box.ask("file", op="commit", temp=temporary["temp"], path="/shared/a/b/file", user="nobody")
    box.ask("file", op="mkdir", path="/shared/made", user=NOBODY)
    told = box.run("stat -c %U:%G /shared/a /shared/a/b /shared/a/b/file /shared/made").stdout.decode()
    assert set(told.split()) == {"nobody:nogroup"}
    # Across file systems a move is a copy, and also the user's.
    box.run("mkdir -m 777 /dev/shm/open")
    box.ask("file", op="move", source="/shared/a/b/file", target="/dev/shm/open/file", user="nobody")
    assert box.run("stat -c %U /dev/shm/open/file").stdout == b"nobody\n"


def test_groups_count_and_capabilities_are_those_of_commands(start: Box) -> None:
    box = start()
    box.run("printf 'ann:x:1500:1500::/:\\n' >> /etc/passwd; printf 'team:x:1600:ann\\n' >> /etc/group")
    box.run(
        "mkdir -m 755 /app; echo x > /app/f; chmod 640 /app/f; chgrp 1600 /app/f; mkdir -m 700 /app/closed"
    )
    assert box.ask("file", op="open", path="/app/f", user="ann")
    refused(box, "permission", op="open", path="/app/f", user=NOBODY)
    refused(box, "permission", op="create", path="/app/new", user="ann")
    refused(box, "permission", op="list", path="/app/closed", user="ann")
    assert box.ask("file", op="list", path="/app/closed", user="root")["entries"] == []
    refused(box, "permission", op="chmod", path="/app/f", mode="0666", user="ann")
    refused(box, "permission", op="move", source="/app/f", target="/app/g", user="ann")
    refused(box, "permission", op="delete", path="/app", recursive=True, user="ann")
    assert refused(box, "bad_request", op="stat", path="/", user="bob").field == "user"


def test_a_file_that_the_user_may_not_write_stays_in_a_directory_that_it_may(box: Driver) -> None:
    box.run("mkdir -m 777 /open; echo kept > /open/f; chmod 644 /open/f")
    refused(box, "permission", op="create", path="/open/f", user="nobody")
    box.run("chown nobody /open/f; chmod 444 /open/f")
    refused(box, "permission", op="create", path="/open/f", user="nobody")
    assert box.run("cat /open/f; ls -A /open").stdout == b"kept\nf\n"


def test_a_replaced_file_keeps_the_owner_that_its_writer_may_give_it(box: Driver) -> None:
    box.run("mkdir -m 777 /open; echo > /open/f; chown 1234:mail /open/f; chmod 666 /open/f")
    for user, owner in (("root", b"1234:8"), ("nobody", b"65534:65534")):
        box.write("/open/f", b"x", user=user)
        assert box.run("stat -c %u:%g /open/f").stdout.strip() == owner


def test_links_that_appear_meanwhile_lead_the_user_no_further(start: Box) -> None:
    box = start()
    box.run("mkdir -m 700 /secret; echo old > /secret/f; mkdir -m 777 /open; mkdir -m 777 /open/d")
    temporary, fd = box.ask_fd("file", op="create", path="/open/d/f", user=NOBODY)
    os.write(fd, b"planted")
    os.close(fd)
    name = temporary["temp"].rpartition("/")[2]
    # As a hostile command would: the directory becomes a link to root's, which has an entry of the temporary's name.
    box.run(f"mv /open/d /open/e; ln -s /secret /open/d; echo victim > /secret/{name}")
    refused(box, "permission", op="commit", temp=temporary["temp"], path="/open/d/f", user=NOBODY)
    refused(box, "permission", op="abort", temp=temporary["temp"], user=NOBODY)
    for op in ("open", "stat", "create", "chmod"):
        refused(box, "permission", op=op, path="/open/d/f", mode="0666", user=NOBODY)
    refused(box, "permission", op="delete", path="/open/d/f", user=NOBODY)
    assert box.run(f"cat /secret/f /secret/{name}; ls -A /secret | wc -l").stdout == b"old\nvictim\n2\n"


def test_a_burst_of_calls_has_few_processes_at_once(box: Driver) -> None:
    before = len(children_of(box.process.pid))
    with stopped(box.process.pid):
        calls = [box.send("file", op="list", path="/etc", user="nobody") for _ in range(60)]
    most = 0
    for call in calls:
        most = max(most, len(children_of(box.process.pid)) - before)
        assert box.answer(call)[0]["ok"]
    assert most <= MOST_FILE_JOBS


def test_a_long_answer_of_a_user_s_listing(box: Driver) -> None:
    box.run(["python3", "-c", "import os\nos.mkdir('/app')\nfor i in range(2000): open(f'/app/{i:05}', 'w')"])
    assert len(box.ask("file", op="list", path="/app", user="nobody")["entries"]) == 2000


def test_a_rootless_sandbox_has_only_root(make: Make) -> None:
    if not user_namespaces_allowed():
        pytest.skip("user namespaces, or this interpreter, are not allowed to an ordinary user here")
    box = make(rootless=True, limits={"pids": 100})
    error = refused(box, "bad_request", op="stat", path="/", user="nobody")
    assert (error.field, "only uid 0" in str(error)) == ("user", True)
    assert box.ask("file", op="stat", path="/", user="root")["stat"]["type"] == "dir"
