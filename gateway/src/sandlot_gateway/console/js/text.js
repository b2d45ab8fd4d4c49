/**
 * Makes text from sandboxes safe to read: names, output and labels are written by hostile code.
 * What a terminal or a browser would obey or hide is shown as a sign, and nothing is longer than the reader asked for.
 */

// Direction marks, zero-width characters and tags: they reorder or hide text.
const HIDDEN = /[\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\u{e0000}-\u{e0fff}]/u;
const HALF = /^[\ud800-\udfff]$/;

function sign(character, keepLines) {
  const code = character.codePointAt(0);
  if (keepLines && (code === 0x0a || code === 0x09)) return character;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  if ((code > 0x7f && code < 0xa0) || HIDDEN.test(character)) return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  if (HALF.test(character)) return "\ufffd";
  return character;
}

/** One line of at most `limit` characters, without control characters. */
export function line(text, limit = 200) {
  return shown(text, limit, false);
}

/** Text of several lines, with its line breaks and tabs. */
export function lines(text, limit = 65536) {
  return shown(text, limit, true);
}

function shown(text, limit, keepLines) {
  const given = String(text ?? "");
  let result = "";
  for (const character of given.slice(0, limit)) result += sign(character, keepLines);
  return given.length > limit ? `${result}… (${given.length - limit} more)` : result;
}
