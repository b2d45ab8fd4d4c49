/** The list of sandboxes: the gateway filters and pages it, so the page holds fifty rows whatever exists. */

import { href } from "../address.js";
import { get } from "../api.js";
import { el, fill, setText, table } from "../dom.js";
import { between, clock, count, seconds } from "../format.js";
import { line } from "../text.js";
import { state, STATUSES, verdict, VERDICTS } from "./states.js";

const PER_PAGE = 50;

export function sandboxes(root, { tell }) {
  const form = filters();
  const shown = table("Newest first", [
    { title: "Sandbox" },
    { title: "State" },
    { title: "Verdict" },
    { title: "Image" },
    { title: "Run" },
    { title: "Labels" },
    { title: "Created" },
    { title: "Ran for", number: true },
  ]);
  const newer = el("button", { type: "button" }, "Newer");
  const older = el("button", { type: "button" }, "Older");
  const place = el("span");
  let page = 1;
  const turn = (step) => {
    location.hash = href("sandboxes", { query: { ...form.values(), page: page + step > 1 ? page + step : "" } });
  };
  newer.addEventListener("click", () => turn(-1));
  older.addEventListener("click", () => turn(1));
  root.append(
    el("h1", {}, "Sandboxes"),
    form.node,
    el("div", { class: "pages" }, newer, older, place),
    shown.node,
  );
  let told = "";
  return {
    title: "Sandboxes",
    async load({ query, signal }) {
      page = Math.min(1_000_000, Math.max(1, Number.parseInt(query.get("page") ?? "1", 10) || 1));
      form.show(query);
      const found = await get(["sandbox"], { ...form.asked(query), overview: "true", per_page: PER_PAGE, page }, { signal });
      fill(shown, found.sandboxes, (one) => one.id, cells);
      const pages = Math.max(1, Math.ceil(found.total / PER_PAGE));
      const text = found.total ? `Page ${count(page)} of ${count(pages)}, ${count(found.total)} sandboxes` : "No sandbox matches.";
      setText(place, text);
      newer.disabled = page <= 1;
      older.disabled = !found.has_next;
      if (text !== told) tell((told = text));
    },
  };
}

function cells(one) {
  return [
    { text: line(one.name, 60), href: href("sandbox", { id: one.id }) },
    state(one.status),
    verdict(one.verdict, one.exitCode),
    line(one.dockerImage, 100),
    line(one.run ?? "–", 63),
    line(one.labels.slice(0, 8).join(", ") || "–", 120),
    clock(one.createdAt),
    one.startedAt ? seconds(between(one.startedAt, one.terminatedAt)) : "–",
  ];
}

/** The form of filters; the address holds their values, so that a link shows the same list. */
function filters() {
  const status = choice("status", "State", [["", "all"], ["live", "live"], ["ended", "ended"], ...STATUSES.map((name) => [name, name])]);
  const why = choice("verdict", "Verdict", [["", "all"], ...VERDICTS.map((name) => [name, name])]);
  const image = field("image", "Image contains", 1024);
  const run = field("run", "Run", 63, "[A-Za-z0-9._\\-]{1,63}");
  const labels = field("labels", "Labels, all of them, by comma", 1024);
  const inputs = [status, why, image, run, labels];
  const node = el("form", { class: "filters", role: "search", "aria-label": "Filters" }, ...inputs.map((input) => input.parentNode));
  const values = () => Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()]));
  const apply = () => {
    if (node.reportValidity()) location.hash = href("sandboxes", { query: values() });
  };
  node.append(el("button", { type: "submit" }, "Filter"));
  node.addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
  for (const input of [status, why]) input.addEventListener("change", apply);
  return {
    node,
    values,
    show(query) {
      for (const input of inputs) {
        const value = query.get(input.name) ?? "";
        if (document.activeElement !== input && input.value !== value) input.value = value;
      }
    },
    asked(query) {
      const wanted = query.get("status") ?? "";
      const active = { live: "true", ended: "false" }[wanted];
      return {
        status: active ? null : wanted,
        is_active: active,
        verdict: query.get("verdict"),
        image: query.get("image"),
        run: query.get("run"),
        labels: (query.get("labels") ?? "").split(",").map((label) => label.trim()).filter(Boolean),
      };
    },
  };
}

function choice(name, title, options) {
  const input = el("select", { name }, ...options.map(([value, text]) => el("option", { value }, text)));
  el("label", {}, title, input);
  return input;
}

function field(name, title, maxlength, pattern = null) {
  const input = el("input", { name, type: "text", maxlength, pattern, autocomplete: "off", spellcheck: "false" });
  el("label", {}, title, input);
  return input;
}
