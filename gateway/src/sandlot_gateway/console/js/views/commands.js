/** The commands of one sandbox, and the output of the one that the reader chooses. */

import { get } from "../api.js";
import { el, fill, setText, table } from "../dom.js";
import { bytes, clock, count, seconds } from "../format.js";
import { line, lines } from "../text.js";
import { state, verdict } from "./states.js";

const TAIL = 32768; // bytes of output

export function commandTable(id) {
  const note = el("p", { class: "note" });
  const shown = table("Newest first", [
    { title: "Command" },
    { title: "State" },
    { title: "Verdict" },
    { title: "Started" },
    { title: "Took", number: true },
    { title: "CPU", number: true },
    { title: "Memory", number: true },
    { title: "Output" },
  ]);
  const heading = el("h3", { tabindex: "-1" });
  const [out, err] = ["Standard output", "Standard error"].map((name) => ({
    name: el("p", { class: "note" }, name),
    text: el("pre", { class: "output", tabindex: "0", role: "region", "aria-label": name }),
  }));
  const panel = el("section", { id: "output", "aria-label": "Output of a command", hidden: true }, heading, out.name, out.text, err.name, err.text);
  const buttons = new Map();
  let chosen = null;
  let settled = null; // the sizes whose output is shown

  function button(command) {
    let node = buttons.get(command.op_id);
    if (!node) {
      node = el("button", { type: "button", "aria-controls": "output" });
      node.addEventListener("click", () => choose(command.op_id));
      buttons.set(command.op_id, node);
    }
    setText(node, `Show ${bytes(command.stdout_bytes + command.stderr_bytes)}`);
    node.setAttribute("aria-expanded", String(chosen === command.op_id));
    node.setAttribute("aria-label", `${node.textContent} of output of ${line(command.command, 60)}`);
    return node;
  }

  let last = { commands: [], total: 0, unknown: null };

  async function choose(op) {
    chosen = chosen === op ? null : op;
    settled = null;
    panel.hidden = chosen === null;
    for (const { name, text } of [out, err]) {
      setText(name, "");
      setText(text, "");
    }
    const shown = show(last, undefined); // names the command in the heading before it reads the output
    if (chosen) heading.focus();
    await shown.catch((error) => {
      if (chosen === op) setText(heading, error.message);
    });
  }

  async function show(found, signal) {
    last = found;
    const names = new Set(found.commands.map((command) => command.op_id));
    for (const name of buttons.keys()) if (!names.has(name)) buttons.delete(name);
    const hidden = found.total - found.commands.length;
    setText(note, found.unknown ? `No commands: ${line(found.unknown, 300)}.` : hidden > 0 ? `The last ${found.commands.length} of ${count(found.total)} commands.` : found.total ? "Ended commands are known for 10 minutes." : "No command is known: none ran in the last 10 minutes.");
    shown.node.hidden = found.commands.length === 0;
    fill(shown, found.commands, (command) => command.op_id, (command) => cells(command, button(command)));
    const command = found.commands.find((each) => each.op_id === chosen);
    if (chosen && !command) {
      setText(heading, "The output of this command is not known any more.");
      return;
    }
    const sizes = command && `${command.state} ${command.stdout_bytes} ${command.stderr_bytes}`;
    if (!command || sizes === settled) return;
    setText(heading, `Output of ${line(command.command, 100)}`);
    await Promise.all([
      read(command, "stdout", command.stdout_bytes, out, signal),
      read(command, "stderr", command.stderr_bytes, err, signal),
    ]);
    if (chosen === command.op_id) settled = sizes;
  }

  async function read(command, stream, size, { name, text }, signal) {
    const { output } = size ? await get(["sandbox", id, "commands", command.op_id, "output"], { stream, tail: TAIL }, { signal }) : { output: "" };
    if (chosen !== command.op_id) return; // the heading names another one meanwhile
    const cut = part(size, command.truncated);
    setText(name, `Standard ${stream === "stdout" ? "output" : "error"}${cut}`);
    setText(text, lines(output, TAIL));
    text.hidden = !size;
    if (!size) setText(name, `${name.textContent}: empty`);
  }

  return { node: el("div", {}, note, shown.node, panel), load: show };
}

function part(size, truncated) {
  if (size <= TAIL) return size && truncated ? ", as far as it was kept" : "";
  return truncated ? `, the last ${bytes(TAIL)} of what was kept; the rest was dropped` : `, the last ${bytes(TAIL)} of ${bytes(size)}`;
}

function cells(command, button) {
  return [
    { text: `${command.start_command ? "(start command) " : ""}${line(command.command, 256) || "(not known)"}`, class: "code" },
    state(command.state),
    verdict(command.verdict, command.exit_code),
    clock(command.started_at),
    seconds(command.wall),
    seconds(command.cpu),
    bytes(command.peak_memory),
    { node: button },
  ];
}
