/** Reads and writes the page's address, `#/page/id?filter=value`: it holds no key. */

export function address() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?", 2);
  const [, page = "", id = ""] = path.split("/");
  return { page, id: decoded(id), query: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // written by hand
  }
}

export function href(page, { id = null, query = {} } = {}) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  const path = id === null ? `#/${page}` : `#/${page}/${encodeURIComponent(id)}`;
  return search ? `${path}?${search}` : path;
}
