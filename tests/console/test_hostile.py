"""What hostile code can write into a page: names, labels, variables, commands and output are text, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.conftest import Console, OpenPage
from tests.ports import free_port
from tests.waiting import wait_until

IMAGE = '<img src=x onerror="stolen.push(1)">'
SCRIPT = "<script>stolen.push(2)</script>"
LINK = '<a href="javascript:stolen.push(3)">click</a>'
# A terminal would clear its screen, a browser turn the rest of the line around.
CONTROLS = "\x1b[2J\x1b]0;title\x07 \u202eevil \u200bhidden"


@pytest.fixture
def hostile(console: Console) -> Any:
    made = console.create(
        name=IMAGE,
        run="hostile",
        labels=[SCRIPT, CONTROLS, LINK],
        environment_vars={"A": SCRIPT, SCRIPT: "b"},
        start_command=["/bin/echo", IMAGE, CONTROLS],
    )
    console.run(made["id"], f"printf '%s' '{IMAGE}{SCRIPT}{CONTROLS}'; printf '\\xff\\0' # {LINK}")
    yield made
    console.delete(made["id"])


def test_nothing_of_a_sandbox_is_more_than_text(console: Console, open_page: OpenPage, hostile: Any) -> None:
    page = open_page("#/sandboxes?run=hostile")
    link = page.get_by_role("link", name=IMAGE)
    link.wait_for()
    listed = page.locator("tbody").inner_text()
    assert SCRIPT in listed
    for mark in ("\u241b[2J", "\u2407", "⟨U+202E⟩", "⟨U+200B⟩"):
        assert mark in listed, mark
    link.click()
    page.get_by_role("heading", name=IMAGE).wait_for()
    page.get_by_role("button", name="of output of printf").click()
    output = page.get_by_role("region", name="Standard output")
    wait_until(lambda: IMAGE in output.inner_text())
    assert "\u241b[2J\u241b]0;title\u2407 ⟨U+202E⟩evil ⟨U+200B⟩hidden" in output.inner_text()
    assert output.inner_text().endswith("\ufffd\u2400")
    page.get_by_text("Environment variables").click()
    main = page.get_by_role("main")
    assert main.inner_text().count(SCRIPT) >= 4
    assert main.locator("img, script, iframe, object, [onerror]").count() == 0
    assert main.locator("a[href^=javascript]").count() == 0
    assert page.evaluate("stolen") == []
    for control in ("\x1b", "\x07", "\x00", "\u202e", "\u200b"):
        assert control not in main.evaluate("node => node.textContent")


def test_an_address_is_text_too(console: Console, open_page: OpenPage) -> None:
    page = open_page(f"#/sandbox/{'%3Cimg%20src=x%20onerror=stolen.push(4)%3E'}")
    page.get_by_role("alert").get_by_text("no sandbox").wait_for()
    for address in (
        "#/sandbox/..%2F..%2Fuser",
        "#/sandbox/%E0%A4%A",
        "#/__proto__/x",
        "#/constructor",
        f"#/pools/{SCRIPT}",
    ):
        page.goto(f"{console.url}/console/{address}")
        page.get_by_role("heading").first.wait_for()
    assert page.evaluate("stolen") == []


def test_a_page_that_a_sandbox_serves_cannot_reach_the_console(console: Console, open_page: OpenPage) -> None:
    """An exposed app has the gateway's origin: it opens the console in a window, in a frame, and as a worker's scope."""
    port = free_port()  # its sandbox has the machine's own network
    app = (
        "import http.server\n"
        "class App(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200)\n"
        "        self.send_header('Service-Worker-Allowed', '/')\n"
        "        self.send_header('Cross-Origin-Opener-Policy', 'same-origin')\n"
        "        js = self.path.endswith('.js')\n"
        "        self.send_header('Content-Type', 'text/javascript' if js else 'text/html')\n"
        "        self.end_headers()\n"
        "        self.wfile.write(b'' if js else b'<title>app</title>')\n"
        f"http.server.HTTPServer(('127.0.0.1', {port}), App).serve_forever()\n"
    )
    made = console.create(name="app", start_command=["/usr/bin/python3", "-c", app])
    url = f"/api/v1/sandbox/{made['id']}/expose"
    exposed = console.client.post(url, json={"port": port}).json()
    path = f"/expose/{exposed['exposure_id']}/"
    wait_until(lambda: console.client.get(path).status_code == 200)
    page = open_page(complains=True)
    page.goto(f"{console.url}{path}")
    tried = page.evaluate(
        """async () => {
          const frame = document.body.appendChild(document.createElement("iframe"));
          const loaded = new Promise((done) => (frame.onload = done));
          frame.src = "/console/";
          await loaded;
          const framed = frame.contentDocument?.getElementById("main") ?? null;
          const worker = await navigator.serviceWorker.register("sw.js", {scope: "/"}).then(() => "took over", (error) => error.name);
          return {framed, worker};
        }"""
    )
    assert tried == {"framed": None, "worker": "SecurityError"}
    with page.context.expect_page() as opened:
        page.evaluate("window.seen = window.open('/console/')")
    opened.value.get_by_role("heading").first.wait_for()
    assert page.evaluate("seen.closed") is True  # for the opener; the window is there
    console.delete(made["id"])
