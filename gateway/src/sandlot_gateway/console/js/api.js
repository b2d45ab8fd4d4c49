/** Calls the control API. Only GETs: the console changes nothing. */

import { storedKey } from "./key.js";
import { line } from "./text.js";

const BASE = new URL("../api/v1/", document.baseURI);
const TIMEOUT = 15000; // milliseconds

/** A call that failed; `status` is 0 without an answer, `retryAfter` are seconds. */
export class Problem extends Error {
  constructor(status, text, retryAfter = 0) {
    super(text);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** Return the JSON of `path`, of segments that are escaped here, with a query of pairs; null leaves one out. */
export async function get(path, query = {}, { signal, key = storedKey() } = {}) {
  const url = new URL(path.map(encodeURIComponent).join("/"), BASE);
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") url.searchParams.append(name, each);
    }
  }
  const timeout = AbortSignal.timeout(TIMEOUT);
  let answer;
  try {
    answer = await fetch(url, {
      headers: { Authorization: `Bearer ${key}` },
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
    if (answer.ok) return await answer.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "The gateway does not answer. Check the connection; the console tries again.");
  }
  const detail = await answer.json().then((body) => body.detail, () => "");
  throw new Problem(answer.status, line(detail || `status ${answer.status}`, 500), Number(answer.headers.get("retry-after")) || 0);
}
