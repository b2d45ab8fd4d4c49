"""Run by tests/frameworks/test_e2b_templates.py with the SDK of E2B: builds templates and creates sandboxes from them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from e2b import BuildInfo, Sandbox, SandboxQuery, Template, wait_for_file
from e2b.exceptions import BuildException, SandboxException
from e2b.template.types import TemplateBuildStatusResponse
from e2b_end import end


def raises(kind: type[Exception], call: Callable[[], object], *texts: str) -> str:
    try:
        call()
    except kind as error:
        assert all(text in str(error) for text in texts), error
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


HERE = Path.cwd()
IMAGE = os.environ["SANDLOT_SCRIPT_IMAGE"]
(HERE / "app" / "sub").mkdir(parents=True)
(HERE / "app" / "main.py").write_text("print('hi')")
(HERE / "app" / "sub" / "data").write_text("1")
(HERE / "one file.txt").write_text("one")
(HERE / "Dockerfile").write_text(
    f'FROM {IMAGE}\nARG WHO=docker\nENV SAID="by $WHO"\nWORKDIR /srv/d\nCOPY app/main.py .\nRUN echo "$SAID" > said\n'
    'USER daemon\nCMD ["sh", "-c", "id -un > /tmp/started-by"]\n'
)


def full() -> None:
    logged: list[str] = []
    template = (
        Template(file_context_path=str(HERE))
        .from_image(IMAGE)
        .set_envs({"BASE": "/opt/base"})
        .set_envs({"DATA": "$BASE/data", "QUOTED": 'a "b" `c` $(d)'})
        .set_workdir("/opt/work")
        .run_cmd('echo "$DATA in $PWD"; mkdir -p "$DATA"; echo seen >&2')
        .copy("app", "copied/")
        .copy("app/*.py", "/opt/glob")
        .copy("one file.txt", "$DATA/renamed.txt", user="daemon", mode=0o640)
        .set_user("builder")
        .run_cmd("whoami > ~/who")
        .set_start_cmd('sleep 0.5; echo "$DATA" > /tmp/ready; sleep 1000', wait_for_file("/tmp/ready"))
    )
    info = Template.build(
        template, "full:v1", tags=["latest"], on_build_logs=lambda entry: logged.append(entry.message)
    )
    assert (info.name, info.tags) == ("full:v1", ["v1", "latest"]), info
    assert {"/opt/base/data in /opt/work", "seen"} <= set(logged), logged
    assert [Template.exists(name) for name in ("full", "full:v1", "full:v2")] == [True, True, False]
    assert Template.alias_exists("full")
    raises(SandboxException, lambda: Sandbox.create("full"), "full")  # no tag `default`
    Template.assign_tags("full:v1", ["default", "spare"])
    assert {each.tag for each in Template.get_tags("full")} == {"v1", "latest", "default", "spare"}
    Template.remove_tags("full", "spare")
    with Sandbox.create("full", envs={"OWN": "1"}, timeout=60) as box:
        run = box.commands.run
        assert (
            run('echo "$DATA|$OWN|$QUOTED|$PWD|$(id -un)"').stdout
            == '/opt/base/data|1|a "b" `c` $(d)|/opt/work|builder\n'
        )
        assert run("find copied /opt/glob -type f | sort").stdout.split() == [
            "/opt/glob/main.py",
            "copied/main.py",
            "copied/sub/data",
        ]
        assert run('stat -c "%a %U" "$DATA/renamed.txt"; cat /tmp/ready ~/who').stdout.split() == [
            "640",
            "daemon",
            "/opt/base/data",
            "builder",
        ]
        assert run("ls -a / | grep sandlot-build || true").stdout == ""
    # An equal build is found, one on top of it inherits.
    before = Template.get_tags("full")
    Template.build(template, "full:v2")
    after = {each.tag: each.build_id for each in Template.get_tags("full")}
    assert len(after) == len(before) + 1
    Template.build(
        Template().from_template("full:v2").run_cmd('echo more > "$PWD/more"', user="root"), "upper"
    )
    with Sandbox.create("upper", timeout=60) as box:
        assert box.commands.run("cat more; id -un").stdout.split() == ["more", "builder"]


def dockerfile() -> None:
    template = Template(file_context_path=str(HERE)).from_dockerfile(str(HERE / "Dockerfile"))
    template._template._ready_cmd = "test -s /tmp/started-by"  # from_dockerfile's own is `sleep 20`
    Template.build(template, "docked")
    with Sandbox.create("docked", timeout=60) as box:
        assert box.commands.run("cat said main.py /tmp/started-by; pwd").stdout.split("\n")[:4] == [
            "by docker",
            "print('hi')daemon",
            "/srv/d",
            "",
        ]


def failures() -> None:
    broken = Template().from_image(IMAGE).run_cmd("true").run_cmd("echo why-not >&2; exit 3")
    raises(BuildException, lambda: Template.build(broken, "broken"), "exit code 3", "why-not")
    assert not Template.exists("broken")
    raises(SandboxException, lambda: Sandbox.create("broken"))
    credentials = Template().from_image("private/image:1", username="me", password="secret")
    assert "secret" not in raises(
        BuildException, lambda: Template.build(credentials, "broken"), "fromImageRegistry"
    )
    gcp = Template().from_gcp_registry("gcr.io/p/i:1", service_account_json={"a": "b"})
    raises(BuildException, lambda: Template.build(gcp, "broken"), "fromImageRegistry")
    raises(
        BuildException, lambda: Template.build(Template().from_template("no-such"), "broken"), "fromTemplate"
    )
    raises(BuildException, lambda: Template.build(Template().from_image("/etc"), "broken"), "fromImage")
    plain = Template().from_image(IMAGE).run_cmd("true")
    raises(BuildException, lambda: Template.build(plain, "base"), "name")
    raises(BuildException, lambda: Template.build(plain, "a/b"), "name")
    raises(BuildException, lambda: Template.build(plain, "x", min_free_disk_mb=10), "minFreeDiskMb")


def background() -> None:
    template = Template().from_image(IMAGE).run_cmd("sleep 1000")
    info = Template.build_in_background(template, "slow")
    settled(info, lambda status: any("sleep" in each.message for each in status.log_entries))
    query = SandboxQuery(metadata={"e2b-build": info.build_id})
    (box,) = Sandbox.list(query=query).next_items()
    assert Sandbox.kill(box.sandbox_id)  # which cancels the build
    status = settled(info, lambda status: status.status != "building")
    assert status.status == "error"
    assert "sandbox" in status.reason.message, status


def settled(
    info: BuildInfo, done: Callable[[TemplateBuildStatusResponse], bool]
) -> TemplateBuildStatusResponse:
    until = time.monotonic() + 120
    while not done(status := Template.get_build_status(info)):
        assert time.monotonic() < until, status
        time.sleep(0.1)
    return status


full()
dockerfile()
failures()
background()
end("all of it")
