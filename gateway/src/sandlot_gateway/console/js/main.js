/** Asks for the key once, then opens the page of the address and keeps it fresh. */

import { address } from "./address.js";
import { get } from "./api.js";
import { setText } from "./dom.js";
import { forgetKey, storedKey } from "./key.js";
import { Live } from "./live.js";
import { line } from "./text.js";
import { askForKey } from "./views/key.js";
import { overview } from "./views/overview.js";
import { pools } from "./views/pools.js";
import { sandbox } from "./views/sandbox.js";
import { sandboxes } from "./views/sandboxes.js";

const PAGES = new Map(Object.entries({ "": overview, sandboxes, sandbox, pools }));
const [main, nav, session, who, pace, problem, news] = ["main", "nav", "session", "who", "pace", "problem", "news"].map(
  (id) => document.getElementById(id),
);
let live = null;
let shown = null; // the page whose address is open

function tell(text) {
  setText(news, text);
}

function complain(text) {
  problem.hidden = !text;
  setText(problem, text);
}

function failed(error) {
  if (error?.status === 401) {
    close("The gateway does not know this key any more. Enter another one.");
    return "stop";
  }
  complain(error ? error.message : "");
  return error?.status === 404 && shown ? "stop" : "go on"; // before a page is shown, it is a proxy's
}

function close(reason = "") {
  live?.close();
  live = shown = null;
  forgetKey();
  nav.hidden = session.hidden = true;
  document.title = "Sandlot console";
  askForKey(main, begin, reason);
}

async function begin(signal) {
  const { data } = await get(["user", "whoami"], {}, { signal });
  setText(who, `tenant ${line(data.name, 64)}, role ${line(data.scope.role, 16)}`);
  nav.hidden = session.hidden = false;
  open({ first: true });
}

function open({ first = false } = {}) {
  const { page, id, query } = address();
  const make = PAGES.get(page) ?? overview;
  const name = `${page}/${id}`;
  live?.close();
  complain("");
  if (shown?.name !== name) {
    main.replaceChildren();
    shown = { name, view: make(main, { id, tell }) };
    document.title = `${shown.view.title} – Sandlot console`;
    for (const link of nav.querySelectorAll("a")) {
      const current = link.getAttribute("href") === `#/${page === "sandbox" ? "sandboxes" : page}`;
      if (current) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (!first) main.focus();
    scrollTo(0, 0);
  }
  live = new Live((signal) => shown.view.load({ query, signal }), failed, Number(pace.value));
  live.now();
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the page
  main.focus();
});
document.getElementById("forget").addEventListener("click", () => close());
pace.addEventListener("change", () => {
  if (live) live.pace = Number(pace.value);
});
addEventListener("hashchange", () => {
  if (shown) open(); // otherwise begin() opens the address that is there then
});

if (storedKey()) {
  live = new Live(begin, failed, Number(pace.value)); // open() closes it
  live.now();
} else close();
