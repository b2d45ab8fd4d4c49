/** Orders what a sandbox's record and its commands say happened. Nothing is added that neither says. */

import { seconds } from "../format.js";
import { line } from "../text.js";
import { verdict } from "./states.js";

/** Return `{at, text, kind}`, oldest first. */
export function events(one, commands) {
  const found = [{ at: one.createdAt, text: `Create requested${one.pool ? ` from pool ${line(one.pool, 63)}` : ""}` }];
  if (one.startedAt) {
    const { queued, start, claim } = one.timings;
    const parts = [`waited ${seconds(queued)}`, start ? `started cold in ${seconds(start)}` : "from a ready slot", `claimed in ${seconds(claim)}`];
    found.push({ at: one.startedAt, text: `Running: ${parts.join(", ")}`, kind: "good" });
  }
  for (const command of commands) {
    const what = `${command.start_command ? "start command" : "command"} ${line(command.command, 100)}`;
    if (command.started_at) found.push({ at: command.started_at, text: `Started: ${what}` });
    if (command.ended_at) {
      const how = verdict(command.verdict, command.exit_code);
      found.push({ at: command.ended_at, text: `Ended ${how.text}: ${what}`, kind: command.exit_code ? "bad" : "" });
    }
  }
  if (one.terminatedAt) {
    const how = verdict(one.verdict, one.exitCode);
    const message = one.verdictMessage ? `: ${line(one.verdictMessage, 300)}` : "";
    found.push({ at: one.terminatedAt, text: `Sandbox ended, ${how.text}${message}`, kind: how.class });
  }
  return found.sort((a, b) => new Date(a.at) - new Date(b.at));
}
