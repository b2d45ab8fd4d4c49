/** The overview: sandboxes and slots by state, what waits and why, the machine. */

import { href } from "../address.js";
import { get } from "../api.js";
import { el, facts, fill, setText, table } from "../dom.js";
import { between, bytes, count, seconds } from "../format.js";
import { line } from "../text.js";
import { slotCells, SLOT_COLUMNS } from "./slots.js";
import { STATUSES } from "./states.js";

const SHOWN = 20; // waiting sandboxes

export function overview(root, { tell }) {
  const statuses = el("ul", { class: "counts" });
  const verdicts = el("ul", { class: "counts" });
  const noVerdicts = el("p", { class: "note" }, "None has ended.");
  const queue = el("p", { class: "note" });
  const waiting = table("The next to start first", [
    { title: "Sandbox" },
    { title: "Place", number: true },
    { title: "Waits for", number: true },
    { title: "Image" },
    { title: "Run" },
    { title: "Why" },
  ]);
  const poolTable = table("Slots of each pool by state, as this gateway knows them", [{ title: "Pool" }, ...SLOT_COLUMNS, { title: "Trouble" }]);
  const noPools = el("p", { class: "note" }, "This key may use no pool.");
  const machine = el("dl", { class: "facts" });
  const notes = el("ul");
  root.append(
    el("h1", {}, "Overview"),
    el("h2", {}, "Your sandboxes"),
    statuses,
    el("h2", {}, "Ended, by verdict"),
    noVerdicts,
    verdicts,
    el("h2", {}, "What waits, and why"),
    queue,
    waiting.node,
    el("h2", {}, "Pools and slots"),
    noPools,
    poolTable.node,
    el("h2", {}, "Capacity"),
    machine,
    notes,
  );
  let told = "";
  return {
    title: "Overview",
    async load({ signal }) {
      const stats = await get(["stats"], { usage: "false" }, { signal });
      const pending = stats.sandboxes.PENDING ?? 0;
      const found = await oldest(pending, signal);
      counts(statuses, STATUSES.map((name) => [name, stats.sandboxes[name] ?? 0, { status: name }]));
      const ended = Object.entries(stats.verdicts).sort(([a], [b]) => (a < b ? -1 : 1));
      counts(verdicts, ended.map(([name, number]) => [name, number, { verdict: name }]));
      noVerdicts.hidden = ended.length > 0;
      const { waiting: all, starting, ready } = stats.queue;
      setText(
        queue,
        `${count(all)} creates of all tenants wait at this gateway, ${count(starting)} cold starts are in flight, ${count(ready)} slots are ready.` +
          (pending > SHOWN ? ` Of your ${count(pending)} pending sandboxes, the oldest are shown.` : ""),
      );
      waiting.node.hidden = found.length === 0;
      fill(waiting, found.sort(byPlace), (one) => one.id, waitingCells);
      noPools.hidden = stats.pools.length > 0;
      poolTable.node.hidden = stats.pools.length === 0;
      fill(poolTable, stats.pools.slice(0, 200), (pool) => pool.name, (pool) => [line(pool.name, 63), ...slotCells(pool), trouble(pool)]);
      facts(machine, capacity(stats.machine));
      notes.replaceChildren(...(stats.machine.notes ?? []).slice(0, 20).map((note) => el("li", {}, line(note, 300))));
      const now = `${count(stats.sandboxes.RUNNING ?? 0)} running, ${count(pending)} pending`;
      if (now !== told) tell((told = now));
    },
  };
}

/** Lists begin with the newest, and the oldest is the next to start; the last page alone may have one row. */
async function oldest(pending, signal) {
  const last = Math.ceil(pending / SHOWN);
  const query = { status: "PENDING", overview: "true", per_page: SHOWN };
  const lists = await Promise.all(
    [last - 1, last].filter((page) => page > 0).map((page) => get(["sandbox"], { ...query, page }, { signal })),
  );
  // A create between the two answers moves a sandbox to the next page: both may have it.
  const all = new Map(lists.flatMap((list) => list.sandboxes).map((one) => [one.id, one]));
  return [...all.values()].slice(-SHOWN);
}

function byPlace(a, b) {
  return (a.queuePosition ?? 0) - (b.queuePosition ?? 0);
}

function counts(list, entries) {
  const wanted = entries.map(([name]) => name).join(" ");
  if (list.dataset.names !== wanted) {
    list.dataset.names = wanted;
    list.replaceChildren(
      ...entries.map(([name, , query]) => el("li", {}, el("strong"), el("a", { href: href("sandboxes", { query }) }, line(name, 40)))),
    );
  }
  entries.forEach(([, number], index) => setText(list.children[index].firstChild, count(number)));
}

function waitingCells(one) {
  const why = one.pendingMessage ?? (one.queuePosition ? "No slot is free yet." : "It is being started.");
  return [
    { text: line(one.name, 60), href: href("sandbox", { id: one.id }) },
    one.queuePosition ? count(one.queuePosition) : "–",
    seconds(between(one.createdAt)),
    line(one.dockerImage, 100),
    line(one.run ?? "–", 63),
    line(why, 400),
  ];
}

function trouble(pool) {
  if (!pool.failures) return "–";
  return { text: `${count(pool.failures)} failed starts: ${line(pool.message ?? "reason unknown", 200)}`, class: "bad" };
}

const SIZES = /(^|_)(memory|disk|bytes|swap)/;
const WORDS = 24; // figures shown

function capacity(machine) {
  return Object.entries(machine)
    .filter(([, value]) => ["number", "string"].includes(typeof value))
    .slice(0, WORDS)
    .map(([name, value]) => [line(name.replaceAll("_", " "), 40), figure(name, value)]);
}

function figure(name, value) {
  if (typeof value === "string") return line(value, 100);
  if (SIZES.test(name)) return bytes(value);
  return Number.isInteger(value) ? count(value) : value.toFixed(2);
}
