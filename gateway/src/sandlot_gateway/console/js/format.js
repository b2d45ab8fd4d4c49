/** Writes times, durations and sizes. */

export function clock(iso) {
  if (!iso) return "–";
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return "–";
  const day = time.toLocaleDateString("en-CA");
  const hours = time.toLocaleTimeString("en-GB");
  return day === new Date().toLocaleDateString("en-CA") ? hours : `${day} ${hours}`;
}

export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
}

/** Seconds between two times; the end may be missing. */
export function between(begin, end) {
  if (!begin) return null;
  return Math.max(0, ((end ? new Date(end) : new Date()) - new Date(begin)) / 1000);
}

export function bytes(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let amount = value;
  while (amount >= 1024 && unit < units.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${unit && amount < 10 ? amount.toFixed(1) : Math.round(amount)} ${units[unit]}`;
}

export function count(value) {
  return Number.isFinite(value) ? value.toLocaleString("en-US") : "–";
}
