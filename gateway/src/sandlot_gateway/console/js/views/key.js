/** The page that asks for the API key. */

import { get } from "../api.js";
import { el, setText } from "../dom.js";
import { forgetKey, keepKey } from "../key.js";

/** Show the form; `begin` runs once the gateway knows the key. */
export function askForKey(root, begin, reason) {
  const input = el("input", {
    id: "key",
    type: "password",
    required: true,
    autocomplete: "off",
    spellcheck: "false",
    "aria-describedby": "key-note key-problem",
  });
  const wrong = el("p", { id: "key-problem", class: "bad", role: "alert" }, reason);
  const button = el("button", { type: "submit" }, "Open");
  const form = el(
    "form",
    { class: "key" },
    el("label", { for: "key" }, "API key", input),
    el("p", { id: "key-note", class: "note" }, "The key stays in this browser tab until you close it or forget it. It is sent to this gateway only."),
    wrong,
    button,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const key = input.value.trim();
    if (!key) return;
    button.disabled = true;
    setText(wrong, "");
    try {
      // A header holds no other characters: fetch would fail before the gateway could say that the key is wrong.
      if (!/^[\x21-\x7e]+$/.test(key)) throw Object.assign(new Error(), { status: 401 });
      await get(["user", "whoami"], {}, { key });
      keepKey(key);
      await begin();
    } catch (error) {
      forgetKey();
      setText(wrong, error.status === 401 ? "The gateway does not know this key. Check it and enter it again." : error.message);
      button.disabled = false;
      input.focus();
      input.select();
    }
  });
  root.replaceChildren(el("h1", {}, "Sandlot console"), form);
  input.focus();
}
