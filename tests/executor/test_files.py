"""File operations stay inside the sandbox, replace atomically, and never hang."""

from __future__ import annotations

import contextlib
import os
import time

import pytest
from sandlot_sidecar.executor import file_documents

from tests.executor.conftest import Make
from tests.executor.driver import Command, Driver, Refused

pytestmark = pytest.mark.root


def refused(box: Driver, code: str, **arguments: object) -> None:
    with pytest.raises(Refused) as error:
        box.ask("file", **arguments)
    assert error.value.code == code


def test_write_and_read(any_box: Driver) -> None:
    any_box.write("/app/deep/file", b"content", parents=True, mode="0640")
    assert any_box.read("/app/deep/file") == b"content"
    assert any_box.run("cat /app/deep/file; stat -c %a /app/deep/file").stdout == b"content640\n"


def test_owner_and_group(box: Driver) -> None:
    box.write("/app/file", b"x", parents=True, owner="nobody", group="mail")
    stat = box.ask("file", op="stat", path="/app/file")["stat"]
    assert (stat["user"], stat["group"], stat["uid"], stat["mode"]) == ("nobody", "mail", 65534, "0644")
    assert box.ask("file", op="stat", path="/app")["stat"]["user"] == "nobody"
    refused(box, "bad_request", op="create", path="/app/y", owner="no-such-user")
    refused(box, "bad_request", op="create", path="/app/y", group="no-such-group")


def test_a_replaced_file_keeps_mode_and_owner(box: Driver) -> None:
    box.write("/app/file", b"x", parents=True, owner=1234, mode="0600")
    box.write("/app/file", b"y")
    stat = box.ask("file", op="stat", path="/app/file")["stat"]
    assert (stat["uid"], stat["mode"], stat["size"]) == (1234, "0600", 1)


def test_nothing_is_seen_before_the_commit(any_box: Driver) -> None:
    box = any_box
    answer, fd = box.ask_fd("file", op="create", path="/app/file", parents=True)
    os.write(fd, b"half")
    os.close(fd)
    refused(box, "not_found", op="stat", path="/app/file")
    box.ask("file", op="abort", temp=answer["temp"])
    assert box.run("ls -A /app").stdout == b""


def test_abort_only_removes_what_create_made(any_box: Driver) -> None:
    any_box.write("/app/file", b"x", parents=True)
    refused(any_box, "bad_request", op="abort", temp="/app/file")


def test_writing_through_a_symlink_keeps_it(any_box: Driver) -> None:
    any_box.write("/app/real", b"old", parents=True)
    any_box.run("ln -s real /app/link")
    any_box.write("/app/link", b"new")
    assert any_box.run("readlink /app/link; cat /app/real").stdout == b"real\nnew"


@pytest.mark.parametrize(
    "path", ["/../../../../etc/hostname", "/app/../../etc/hostname", "/link/etc/hostname"]
)
def test_no_path_leads_out(any_box: Driver, path: str) -> None:
    any_box.run("mkdir /app; ln -s /../../.. /link; ln -s / /app/root")
    assert any_box.read(path) == b"box\n"
    with open("/etc/hostname", "rb") as file:
        assert file.read() != b"box\n"


def test_magic_links_do_not_lead_out(any_box: Driver) -> None:
    box = any_box
    for path in ("/proc/self/root/etc/hostname", "/proc/1/root/etc/hostname", "/proc/1/cwd/etc/hostname"):
        with contextlib.suppress(Refused):
            assert box.read(path) == b"box\n"


def test_pipes_devices_and_directories_do_not_hang(any_box: Driver) -> None:
    any_box.run("mkdir /app; mkfifo /app/pipe; ln -s /dev/zero /app/zero; ln -s /dev/tty /app/tty")
    began = time.monotonic()
    for path in ("/app/pipe", "/app/zero", "/app/tty", "/dev/null"):
        refused(any_box, "permission", op="open", path=path)
        refused(any_box, "exists", op="create", path=path)
    refused(any_box, "is_directory", op="open", path="/app")
    refused(any_box, "is_directory", op="create", path="/app")
    assert time.monotonic() - began < 30


def test_errors_have_codes(any_box: Driver) -> None:
    box = any_box
    box.write("/app/file", b"x", parents=True)
    refused(box, "not_found", op="open", path="/no/such")
    refused(box, "not_found", op="create", path="/no/such/file")
    refused(box, "not_a_directory", op="open", path="/app/file/below")
    refused(box, "exists", op="mkdir", path="/app", parents=False)
    refused(box, "not_empty", op="delete", path="/app")
    refused(box, "permission", op="delete", path="/", recursive=True)
    refused(box, "bad_request", op="stat", path="relative")
    refused(box, "bad_request", op="stat", path="/a\0b")
    refused(box, "bad_path", op="stat", path="/" + "x" * 300)
    refused(box, "bad_request", op="create", path="/app/x", mode="99")
    refused(box, "bad_request", op="nothing", path="/")
    refused(box, "bad_request", op="list", path="/app", limit="many")
    box.run("ln -s /app/loop /app/loop")
    refused(box, "bad_path", op="open", path="/app/loop")


def test_list_in_pages(any_box: Driver) -> None:
    any_box.run("mkdir /app; cd /app; touch a c b; mkdir d; ln -s a e; mkfifo f")
    first = any_box.ask("file", op="list", path="/app", limit=4)
    assert [entry["path"] for entry in first["entries"]] == ["/app/a", "/app/b", "/app/c", "/app/d"]
    second = any_box.ask("file", op="list", path="/app", limit=4, cursor=first["cursor"])
    assert [(entry["type"], entry["target"]) for entry in second["entries"]] == [
        ("symlink", "a"),
        ("other", None),
    ]
    assert second["cursor"] is None


def test_a_page_ends_by_its_size(any_box: Driver) -> None:
    make = "import os\nos.mkdir('/app')\nfor i in range(1000): os.symlink('t' * 4000, f'/app/{i:04}' + 'n' * 200)"
    any_box.run(["python3", "-c", make])
    names: list[str] = []
    pages, cursor = 0, None
    while pages == 0 or cursor is not None:
        page = any_box.ask("file", op="list", path="/app", cursor=cursor)
        size = sum(len(entry["path"]) + len(entry["target"]) for entry in page["entries"])
        assert 0 < size < file_documents.PAGE + 8192
        names += [entry["path"][5:9] for entry in page["entries"]]
        cursor = page["cursor"]
        pages += 1
    assert names == [f"{number:04}" for number in range(1000)]
    assert pages == 5


def test_a_name_that_is_no_text(any_box: Driver) -> None:
    any_box.run("mkdir /app; touch \"$(printf '/app/\\377')\"")
    entry = any_box.ask("file", op="list", path="/app")["entries"][0]
    assert entry["path"] == "/app/\udcff"
    assert any_box.ask("file", op="stat", path="/app/\udcff")["stat"]["size"] == 0


def test_a_chain_of_links_without_end_is_a_loop(any_box: Driver) -> None:
    make = "import os\nos.mkdir('/app')\nfor i in range(1500): os.symlink(f'/app/{i + 1}', f'/app/{i}')"
    any_box.run(["python3", "-c", make])
    refused(any_box, "bad_path", op="create", path="/app/0")
    refused(any_box, "bad_path", op="open", path="/app/0")
    assert any_box.run("echo still here").stdout == b"still here\n"


UNEXPECTED = (
    "from sandlot_sidecar.executor import files\n"
    "def broken(message): raise RecursionError('too deep')\n"
    "def large(message): return {'text': ' ' * (65 << 20)}, []\n"
    "files.OPERATIONS.update(stat=broken, move=broken, list=large)\n"
)


@pytest.mark.parametrize("op", ["stat", "move", "list"])
def test_an_unexpected_failure_is_that_request_s_own(make: Make, op: str) -> None:
    box = make(first=UNEXPECTED)
    with pytest.raises(Refused, match="WireError" if op == "list" else "RecursionError") as error:
        box.ask("file", op=op, path="/")
    assert error.value.code == "internal"
    assert box.run("echo still here").stdout == b"still here\n"


def test_stat_follows_or_not(any_box: Driver) -> None:
    any_box.run("mkdir /app; echo x > /app/a; ln -s a /app/l; ln -s none /app/dangling")
    assert any_box.ask("file", op="stat", path="/app/l")["stat"]["type"] == "file"
    link = any_box.ask("file", op="stat", path="/app/l", follow=False)["stat"]
    assert (link["type"], link["target"]) == ("symlink", "a")
    refused(any_box, "not_found", op="stat", path="/app/dangling")


def test_mkdir_move_chmod(any_box: Driver) -> None:
    box = any_box
    made = box.ask("file", op="mkdir", path="/app/a/b", mode="0750")["stat"]
    assert (made["type"], made["mode"]) == ("dir", "0750")
    assert box.ask("file", op="mkdir", path="/app/a/b")["stat"]["type"] == "dir"
    box.write("/app/x", b"x")
    box.write("/app/y", b"y")
    refused(box, "exists", op="move", source="/app/x", target="/app/y", overwrite=False)
    box.ask("file", op="move", source="/app/x", target="/app/y")
    assert box.read("/app/y") == b"x"
    box.ask("file", op="move", source="/app/y", target="/dev/shm/y")
    assert box.read("/dev/shm/y") == b"x"
    refused(box, "not_found", op="stat", path="/app/y")
    refused(box, "not_found", op="move", source="/app/none", target="/app/z")
    box.ask("file", op="chmod", path="/dev/shm/y", mode="0400")
    assert box.ask("file", op="stat", path="/dev/shm/y")["stat"]["mode"] == "0400"


def test_a_deep_and_wide_tree_is_deleted_aside(box: Driver) -> None:
    box.run(
        [
            "python3",
            "-c",
            "import os\nos.mkdir('/t')\nos.chdir('/t')\nfor i in range(1500): os.mkdir('d'); os.chdir('d')",
        ]
    )
    box.run(
        "mkdir -p /t/w; cd /t/w; for i in $(seq 200); do mkdir $i; done; ln -s / link; cd 7 && touch $(seq 5000)"
    )
    seq = box.send("file", op="delete", path="/t", recursive=True)
    assert box.run("echo meanwhile").stdout == b"meanwhile\n"
    box.answer(seq)
    refused(box, "not_found", op="stat", path="/t")
    assert box.run("ls /etc/hostname")["exit_code"] == 0


def test_delete(any_box: Driver) -> None:
    any_box.write("/app/file", b"x", parents=True)
    any_box.run("ln -s /etc /app/link; mkdir /app/empty")
    for path in ("/app/link", "/app/file", "/app/empty"):
        any_box.ask("file", op="delete", path=path)
    assert any_box.run("ls -A /app; ls /etc/hostname").stdout == b"/etc/hostname\n"


def test_a_lease_on_a_file_is_no_failure_of_the_sandbox_s(any_box: Driver) -> None:
    any_box.write("/leased", b"x")
    # F_SETLEASE, F_WRLCK
    hold = "import fcntl, time\nf = open('/leased', 'r+')\nfcntl.fcntl(f, 1024, 1)\nprint('held', flush=True)\ntime.sleep(600)"
    runner = any_box.runner()
    command = runner.start(
        ["python3", "-c", "import signal\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n" + hold]
    )
    assert isinstance(command, Command), command
    command.read_until(b"held")
    refused(any_box, "permission", op="open", path="/leased")
    runner.ask({"kill": True})
    command.wait()


def test_open_with_flags(any_box: Driver) -> None:
    _, fd = any_box.ask_fd(
        "file", op="open", path="/app/log", flags=os.O_WRONLY | os.O_CREAT, mode="0600", parents=True
    )
    os.write(fd, b"abc")
    os.close(fd)
    assert any_box.read("/app/log") == b"abc"
    assert any_box.ask("file", op="stat", path="/app/log")["stat"]["mode"] == "0600"


def test_a_poisoned_passwd_does_not_hang(box: Driver) -> None:
    box.run("rm /etc/passwd /etc/group; mkfifo /etc/passwd; ln -s /dev/zero /etc/group")
    assert box.ask("file", op="stat", path="/etc")["stat"]["user"] is None
    assert box.run("echo fine").stdout == b"fine\n"
    answer = box.runner().start("true", user="nobody")
    assert isinstance(answer, dict)
    assert answer["field"] == "user"


def test_numbers_and_names_without_end_in_passwd(box: Driver) -> None:
    long = "n" * 300
    write = f"printf 'a:x:%s:0::/:\\n{long}:x:77:0::/:\\nz:x:78:0::/:\\n' $(head -c 5000 /dev/zero | tr '\\0' 9) > /etc/passwd"
    box.run(f"{write}; printf '{long}:x:79:\\n' > /etc/group")
    box.run("mkdir /app; touch /app/long /app/short; chown 77:79 /app/long; chown 78 /app/short")
    long_named, short_named = box.ask("file", op="list", path="/app")["entries"]
    assert (long_named["uid"], long_named["user"], long_named["gid"], long_named["group"]) == (
        77,
        None,
        79,
        None,
    )
    assert short_named["user"] == "z"
    refused(box, "bad_request", op="chmod", path="/app/long", owner="a")
    refused(box, "bad_request", op="chmod", path="/app/long", owner=long)
    refused(box, "bad_request", op="chmod", path="/app/long", owner="9" * 5000)
    assert box.ask("file", op="chmod", path="/app/long", owner="z")["stat"]["uid"] == 78
