/** Columns that show the slots of a pool by state. */

import { count } from "../format.js";

const STATES = ["warm", "claiming", "owned", "ending", "unreported"];

export const SLOT_COLUMNS = ["Target", "Starting", "Warm", "Claiming", "Owned", "Ending", "Unreported"].map((title) => ({
  title,
  number: true,
}));

export function slotCells(pool) {
  return [count(pool.size), count(pool.starting), ...STATES.map((name) => count(pool.slots[name]))];
}
