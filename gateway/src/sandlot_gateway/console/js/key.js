/** Keeps the API key: in this tab's session storage only, never in a URL, a cookie or the console's files. */

const NAME = "sandlot-key";

export function storedKey() {
  return sessionStorage.getItem(NAME);
}

export function keepKey(key) {
  sessionStorage.setItem(NAME, key);
}

export function forgetKey() {
  sessionStorage.removeItem(NAME);
}
