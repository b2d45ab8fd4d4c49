/** Builds and updates elements. Text goes in as text only: no function here takes HTML. */

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Change only what differs, so that a reader's selection and a screen reader's place survive a refresh. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A table whose rows `fill` keeps; `columns` are `{title, number}`. Roles survive the cards of a phone. */
export function table(caption, columns) {
  const head = el("tr", { role: "row" });
  for (const { title, number } of columns) {
    head.append(el("th", { scope: "col", role: "columnheader", class: number ? "number" : null }, title));
  }
  const body = el("tbody", { role: "rowgroup" });
  const node = el("table", { role: "table" }, el("caption", {}, caption), el("thead", { role: "rowgroup" }, head), body);
  return { node, body, columns, caption: node.firstChild };
}

/**
 * Show `items` in a table: `key` names a row, `cells` returns its cells, each a string or `{text, class, href}`.
 * The first cell is the row's header.
 */
export function fill({ body, columns }, items, key, cells) {
  const old = new Map([...body.children].map((row) => [row.dataset.key, row]));
  const rows = items.map((item) => {
    const name = String(key(item));
    const row = old.get(name) ?? newRow(name, columns);
    old.delete(name);
    cells(item).forEach((cell, index) => setCell(row.children[index], cell));
    return row;
  });
  const kept = new Set(rows);
  for (const row of [...body.children]) if (!kept.has(row)) row.remove();
  rows.forEach((row, index) => {
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
  });
}

function newRow(name, columns) {
  const row = el("tr", { role: "row" });
  row.dataset.key = name;
  columns.forEach(({ title, number }, index) => {
    const attributes = { "data-label": title, class: number ? "number" : null };
    row.append(
      index === 0
        ? el("th", { ...attributes, scope: "row", role: "rowheader" }, el("span"))
        : el("td", { ...attributes, role: "cell" }, el("span")),
    );
  });
  return row;
}

function setCell(node, cell) {
  const { text, href, class: kind, node: own } = typeof cell === "object" ? cell : { text: cell };
  let inner = node.firstChild;
  if (own) {
    if (inner !== own) node.replaceChildren(own);
    return;
  }
  const wanted = href ? "A" : "SPAN";
  if (inner.tagName !== wanted) {
    inner = el(wanted);
    node.replaceChildren(inner);
  }
  if (href && inner.getAttribute("href") !== href) inner.setAttribute("href", href);
  if (inner.className !== (kind ?? "")) inner.className = kind ?? "";
  setText(inner, text);
}

/** Show pairs of a term and its text in a `dl`; null leaves a pair out. */
export function facts(node, pairs) {
  const wanted = pairs.filter(([, text]) => text !== null && text !== undefined && text !== "");
  while (node.children.length > 2 * wanted.length) node.lastChild.remove();
  wanted.forEach(([term, text], index) => {
    if (node.children.length <= 2 * index) node.append(el("dt"), el("dd"));
    setText(node.children[2 * index], term);
    setText(node.children[2 * index + 1], text);
  });
}
