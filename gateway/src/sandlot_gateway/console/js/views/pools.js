/** The pools that the key may use: what their slots are, and why starts fail. */

import { get } from "../api.js";
import { el, fill, table } from "../dom.js";
import { count } from "../format.js";
import { line } from "../text.js";
import { slotCells, SLOT_COLUMNS } from "./slots.js";

const MOST = 200;

export function pools(root, { tell }) {
  const shown = table("Shared pools, those of your tenant, and with the role operate all", [
    { title: "Pool" },
    { title: "Image" },
    { title: "Owner" },
    ...SLOT_COLUMNS,
    { title: "Each slot" },
    { title: "Reuse" },
    { title: "Last failed start" },
  ]);
  const none = el("p", { class: "note" });
  root.append(el("h1", {}, "Pools"), none, shown.node);
  let told = -1;
  return {
    title: "Pools",
    async load({ signal }) {
      const { pools: found } = await get(["pools"], {}, { signal });
      none.textContent = found.length === 0 ? "This key may use no pool." : found.length > MOST ? `The first ${MOST} of ${found.length} pools.` : "";
      shown.node.hidden = found.length === 0;
      fill(shown, found.slice(0, MOST), (pool) => pool.name, cells);
      if (told !== found.length) tell(`${(told = found.length)} pools`);
    },
  };
}

function cells(pool) {
  const bounds = pool.max_size === null ? "" : `, autoscaled from ${count(pool.min_size)} to ${count(pool.max_size)}`;
  const gpus = pool.gpu_count ? `, ${pool.gpu_count} GPU ${line(pool.gpu_type ?? "", 40)}` : "";
  const runtime = pool.runtime_class ? `, ${line(pool.runtime_class, 40)}` : "";
  const { policy, max_uses: uses, max_age: age } = pool.reuse;
  return [
    line(pool.name, 63),
    line(pool.image || "any", 150),
    line(pool.owner ?? "shared", 64),
    ...slotCells(pool),
    `${pool.cpu_cores} cores, ${pool.memory_gb} GiB memory, ${pool.disk_size_gb} GiB disk${gpus}${runtime}${bounds}`,
    policy === "never" ? "never" : `by its ${line(policy, 20)}, ${count(uses)} times, for ${count(age)} s`,
    pool.failures ? { text: `${count(pool.failures)} in a row: ${line(pool.message ?? "reason unknown", 300)}`, class: "bad" } : "–",
  ];
}
