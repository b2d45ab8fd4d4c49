/** Shows a state or verdict: its word always, a colour beside it. */

import { line } from "../text.js";

const STATES = { RUNNING: "good", PENDING: "wait", ERROR: "bad", TIMEOUT: "bad", running: "good", queued: "wait" };
const FINE = new Set(["deleted", "idle", "exited"]);

export const STATUSES = ["PENDING", "RUNNING", "TERMINATED", "ERROR", "TIMEOUT"];
export const VERDICTS = [
  "deleted", "idle", "deadline", "exited", "oom", "init_killed", "start_failed", "image_pull", "evicted", "node_lost",
  "sidecar_lost", "sandbox_lost", "reset_failed", "run_lost",
];

export function state(word) {
  return { text: line(word, 40), class: STATES[word] ?? "" };
}

export function verdict(word, exitCode = null) {
  if (!word) return "–";
  const text = exitCode === null ? line(word, 40) : `${line(word, 40)} (${exitCode})`;
  return { text, class: FINE.has(word) && !exitCode ? "" : "bad" };
}
