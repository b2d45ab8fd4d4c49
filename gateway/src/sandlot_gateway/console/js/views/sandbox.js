/** One sandbox: its record, its timeline, its commands and their output. */

import { get } from "../api.js";
import { el, facts, setText } from "../dom.js";
import { clock, count, seconds } from "../format.js";
import { line } from "../text.js";
import { commandTable } from "./commands.js";
import { state, verdict } from "./states.js";
import { events } from "./timeline.js";

const EVENTS = 100;
const VARIABLES = 100;

export function sandbox(root, { id, tell }) {
  const title = el("h1", {}, "Sandbox");
  const status = el("p");
  const timeline = el("ol", { class: "timeline" });
  const more = el("p", { class: "note" });
  const record = el("dl", { class: "facts" });
  const variables = el("dl", { class: "facts" });
  const commands = commandTable(id);
  root.append(
    title,
    status,
    el("h2", {}, "Timeline"),
    more,
    timeline,
    el("h2", {}, "Commands"),
    commands.node,
    el("h2", {}, "Record"),
    record,
    el("details", {}, el("summary", {}, "Environment variables"), variables),
  );
  let told = "";
  return {
    title: `Sandbox ${line(id, 40)}`,
    async load({ signal }) {
      // `observe`: to look at a sandbox must not keep one whose creator has left.
      const [one, found] = await Promise.all([
        get(["sandbox", id], { observe: "true" }, { signal }),
        get(["sandbox", id, "commands"], { limit: 100 }, { signal }),
      ]);
      setText(title, line(one.name, 100));
      const { text, class: kind } = state(one.status);
      setText(status, one.status === "PENDING" ? `${text}: ${why(one)}` : text);
      status.className = kind;
      const all = events(one, found.commands);
      setText(more, all.length > EVENTS ? `The last ${EVENTS} of ${count(all.length)} events.` : "");
      showEvents(timeline, all.slice(-EVENTS));
      facts(record, facts_of(one));
      facts(variables, environment(one));
      await commands.load(found, signal);
      if (told !== text) tell(`${line(one.name, 60)}: ${(told = text)}`);
    },
  };
}

function why(one) {
  const wait = one.estimatedWaitSeconds === null ? "" : `, about ${count(Math.round(one.estimatedWaitSeconds))} s`;
  const place = one.queuePosition ? `place ${count(one.queuePosition)} in the queue${wait}. ` : "";
  return place + line(one.pendingMessage ?? (one.queuePosition ? "No slot is free yet." : "It is being started."), 500);
}

function showEvents(list, shown) {
  while (list.children.length > shown.length) list.lastChild.remove();
  shown.forEach(({ at, text, kind = "" }, index) => {
    if (list.children.length <= index) list.append(el("li", {}, el("time"), el("span")));
    const [time, what] = list.children[index].children;
    if (at) time.setAttribute("datetime", at);
    setText(time, clock(at));
    setText(what, text);
    what.className = kind;
  });
}

function facts_of(one) {
  const ended = verdict(one.verdict, one.exitCode);
  return [
    ["Id", line(one.id, 128)],
    ["Image", line(one.dockerImage, 300)],
    ["Image digest", one.imageDigest && line(one.imageDigest, 100)],
    ["Start command", startCommand(one.startCommand)],
    ["Verdict", one.verdict && ended.text],
    ["Message", one.verdictMessage && line(one.verdictMessage, 1000)],
    ["Run", one.run && line(one.run, 63)],
    ["Labels", line(one.labels.join(", "), 1000)],
    ["Pool", one.pool && line(one.pool, 63)],
    ["Taken from a pool", one.poolHit ? "yes" : "no"],
    ["Why it started cold", one.coldReason && line(one.coldReason, 300)],
    ["Size", `${one.cpuCores} cores, ${one.memoryGB} GiB memory, ${one.diskSizeGB} GiB disk${one.gpuCount ? `, ${one.gpuCount} GPU` : ""}`],
    ["Network", line(one.network, 10)],
    ["Allowed destinations", one.networkAllowlist && line(one.networkAllowlist.join(", ") || "none", 500)],
    ["Denied destinations", one.networkDenylist && line(one.networkDenylist.join(", ") || "none", 500)],
    ["Lifetime", one.timeoutSeconds === null ? "unlimited" : seconds(one.timeoutSeconds)],
    ["Idle timeout", one.idleTimeoutSeconds === null ? "none" : seconds(one.idleTimeoutSeconds)],
    ["Workdir", one.workdir && line(one.workdir, 300)],
    ["Secrets", line(Object.keys(one.secrets).join(", "), 500)],
    ["Notes", line(one.notes.join("; "), 1000)],
  ];
}

function startCommand(command) {
  if (!command) return null;
  return line(typeof command === "string" ? command : [command.executable, ...command.args].join(" "), 500);
}

function environment(one) {
  const all = Object.entries(one.environmentVars);
  const shown = all.slice(0, VARIABLES).map(([name, value]) => [line(name, 100), line(value, 200) || "(empty)"]);
  return all.length > VARIABLES ? [...shown, ["…", `${all.length - VARIABLES} more`]] : shown.length ? shown : [["–", "none"]];
}
