// Formats numbers, times and names for people.

/** The first digits of a digest. */
export const short = (digest) => digest.replace(/^sha256:/, "").slice(0, 12);

/** A number with three significant digits. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6) return `${number(value / 1e6)} M`;
  if (size >= 1e4) return `${number(value / 1e3)} k`;
  if (size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

/** A whole number. */
export const count = (value) => value.toLocaleString("en");

/** "1 model", "2 models". */
export const many = (value, one, more = `${one}s`) => `${count(value)} ${value === 1 ? one : more}`;

export const percent = (part) => `${number(part * 100)} %`;

/** Milliseconds. */
export function latency(value) {
  return value >= 1000 ? `${number(value / 1000)} s` : `${number(value)} ms`;
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit += 1) value /= 1024;
  return `${unit === 0 ? value : number(value)} ${units[unit]}`;
}

/** Seconds, roughly: "3 min", "2 h 5 min", "4 d". */
export function duration(seconds) {
  if (seconds < 1) return "a moment";
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  const days = Math.floor(hours / 24);
  return days < 10 ? `${days} d ${hours % 24} h` : `${count(days)} d`;
}

// Times use the server's clock, not the browser's.
let ahead = 0;

/** Sets the clock to the server's time, in milliseconds since 1970. */
export const setClock = (server) => {
  ahead = server - Date.now();
};

/** The seconds since a time. */
export const secondsSince = (at) => Math.max(0, (Date.now() + ahead - at) / 1000);

/** The age of a time, with the exact time as title. */
export const ago = (at) => `${duration(secondsSince(at))} ago`;
export const exactly = (at) => new Date(at).toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");

/** A name such as "rolled_back" in words. */
export const words = (name) => name.replaceAll("_", " ");
