// What all scripts of the page need: sentences with their parameters, times and shares as text, bytes.

/** Nanoseconds per unit, the largest first. */
const BASICS_UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];

/** Put parameters into a sentence; what is put in is never searched for places. */
function basicsFill(sentence, parameters) {
  return sentence.replace(/\{(\w+)\}/g, (place, name) => (name in parameters ? parameters[name] : place));
}

/** Return a time as every other format has it: in the largest unit that it fills, with two decimals. */
function basicsDuration(ns) {
  const [size, unit] = BASICS_UNITS.find(([least]) => Math.abs(ns) >= least) ?? [1, "ns"];
  return `${(ns / size).toFixed(size === 1 ? 0 : 2)} ${unit}`;
}

/** Return a share as every other format has it. */
function basicsPercent(part) {
  return `${(100 * part).toFixed(1)} %`;
}

function basicsBytes(base64) {
  return Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));
}
