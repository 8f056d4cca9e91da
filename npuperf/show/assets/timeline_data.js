// Pictures as the timeline works with them: columns of numbers, sums of shares, searches. Nothing here draws.
// All times are ns; of a picture they count from its start, of the view from the start of the first picture.

/** With more slices than this per pixel, shares say more. */
const TIMELINE_DENSE = 1;

/** Return a sentence with its parameters put in. */
function timelineSay(words, name, parameters = {}) {
  return basicsFill(words[`timeline_${name}`] ?? name, parameters);
}

/** Return the place of the first of some ascending numbers that is greater than a value. */
function timelineFirstAbove(numbers, value) {
  let low = 0;
  let high = numbers.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (numbers[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Columns of slices in which -1 says "unknown". */
const TIMELINE_COLUMNS = ["name", "called", "where", "facts", "cause", "cube", "vector", "launch_thread", "op_thread"];

/** The slices of a lane, as columns. */
class TimelineSlices {
  constructor(packed) {
    const count = packed.start.length;
    this.count = count;
    this.start = new Float64Array(count);
    this.end = new Float64Array(count);
    /** The last end of a slice and all before it: ascending, though ends of nested slices are not. */
    this.reach = new Float64Array(count);
    /** When each was launched, and when its torch operator began; NaN where nobody knows. */
    this.launch = new Float64Array(count).fill(NaN);
    this.asked = new Float64Array(count).fill(NaN);
    let now = 0;
    for (let i = 0; i < count; i += 1) {
      now += packed.start[i];
      this.start[i] = now;
      this.end[i] = now + packed.length[i];
      this.reach[i] = i ? Math.max(this.reach[i - 1], this.end[i]) : this.end[i];
      if (packed.lag && packed.lag[i] !== null) this.launch[i] = now - packed.lag[i];
      if (packed.asked && packed.asked[i] !== null) this.asked[i] = now - packed.asked[i];
    }
    this.colour = packed.colour;
    const unknown = new Int8Array(count).fill(-1);
    for (const name of TIMELINE_COLUMNS) this[name] = packed[name] ?? unknown;
    this.depth = packed.depth ?? new Uint8Array(count);
    this.deepest = packed.depth ? packed.depth.reduce((one, other) => Math.max(one, other), 0) : 0;
  }

  /** Return [first, last) of the slices that may lie in a stretch. */
  range(start, end) {
    return [timelineFirstAbove(this.reach, start), timelineFirstAbove(this.start, end)];
  }

  /** Return the slice that begins nearest to a time; -1: there is none. */
  nearest(time) {
    const after = timelineFirstAbove(this.start, time);
    if (!after || after === this.count) return after ? after - 1 : Math.min(0, this.count - 1);
    return time - this.start[after - 1] <= this.start[after] - time ? after - 1 : after;
  }

  /** Return the slice at a time and depth; of slices that begin together the last; -1: none. */
  at(time, depth) {
    const [first, last] = this.range(time, time);
    for (let i = last - 1; i >= first; i -= 1) {
      if (this.depth[i] === depth && this.start[i] <= time && time < this.end[i]) return i;
    }
    return -1;
  }
}

/** A lane: its slices, and of each colour the sum of its shares before every bucket: a stretch's is one difference. */
class TimelineLane {
  constructor(packed, picture) {
    this.picture = picture;
    this.kind = packed.kind;
    this.title = packed.title;
    this.cut = packed.cut;
    this.thread = packed.thread;
    this.counters = Object.entries(packed.counters).map(([name, bytes]) => [name, basicsBytes(bytes)]);
    this.slices = new TimelineSlices(packed.slices);
    this.colours = Object.keys(packed.shares);
    this.sums = this.colours.map((colour) => timelineSums(basicsBytes(packed.shares[colour])));
    this.buckets = this.sums.length ? this.sums[0].length - 1 : 0;
    this.bucket = this.buckets ? picture.span / this.buckets : picture.span;
  }

  /** Return how many ns of a stretch have a colour, given by its place, as far as the buckets tell. */
  busy(place, start, end) {
    const sums = this.sums[place];
    const first = Math.min(Math.max(start / this.bucket, 0), this.buckets);
    const last = Math.min(Math.max(end / this.bucket, 0), this.buckets);
    const low = Math.min(Math.floor(first), this.buckets - 1);
    const high = Math.min(Math.floor(last), this.buckets - 1);
    if (low === high) return ((last - first) * (sums[low + 1] - sums[low]) * this.bucket) / 255;
    const before = sums[low] + (first - low) * (sums[low + 1] - sums[low]);
    const after = sums[high] + (last - high) * (sums[high + 1] - sums[high]);
    return ((after - before) * this.bucket) / 255;
  }

  /**
   * Return how many ns of a stretch each colour has, and how far off that is at most: nothing where all slices are
   * there; else a quarter of a bucket at each end, and half of a 255th for every bucket, to which shares are rounded.
   */
  times(start, end) {
    const exact = this.picture.exact.findIndex((one) => one.start <= start && end <= one.end);
    if (this.kind === "parts" && exact >= 0 && !this.cut[exact] && this.slices.count) {
      return { off: 0, times: this.sliceTimes(start, end) };
    }
    const times = new Map(this.colours.map((colour, n) => [colour, this.busy(n, start, end)]));
    return { off: this.bucket * (0.5 + (end - start) / this.bucket / 510), times };
  }

  /** Tell whether slices say more than shares of what is in an exact stretch and [start, end); ``scale``: ns per px. */
  shows(exact, start, end, scale) {
    const [from, until] = [Math.max(exact.start, start), Math.min(exact.end, end)];
    if (until <= from || !this.slices.count) return false;
    const [first, last] = this.slices.range(from, until);
    return scale < this.bucket || last - first < (TIMELINE_DENSE * (until - from)) / scale;
  }

  sliceTimes(start, end) {
    const times = new Map();
    const [first, last] = this.slices.range(start, end);
    for (let i = first; i < last; i += 1) {
      const colour = this.picture.colours[this.slices.colour[i]];
      const overlap = Math.min(end, this.slices.end[i]) - Math.max(start, this.slices.start[i]);
      if (overlap > 0) times.set(colour, (times.get(colour) ?? 0) + overlap);
    }
    return times;
  }
}

/** Return the sum of all numbers before each place, and of all. */
function timelineSums(numbers) {
  const sums = new Float64Array(numbers.length + 1);
  for (let i = 0; i < numbers.length; i += 1) sums[i + 1] = sums[i] + numbers[i];
  return sums;
}

/** A device: its lanes, and what is named in it. ``shift``: what is added to its times to reach those of the view. */
class TimelinePicture {
  constructor(packed, old, words, several) {
    this.old = old;
    this.span = packed.span;
    this.at = packed.at;
    this.shift = packed.at;
    this.colours = packed.colours;
    this.names = packed.names;
    this.facts = packed.facts;
    this.exact = packed.exact;
    this.places = packed.places.map(([kind, name, start, end]) => ({ kind, name, start, end }));
    this.rank = packed.rank;
    this.why = packed.why;
    const device = timelineDeviceTitle(packed, words);
    this.title = several ? timelineSay(words, old ? "old" : "new", { device }) : device;
    this.lanes = packed.lanes.map((lane) => new TimelineLane(lane, this));
    this.steps = this.places.filter((place) => place.kind === "step").sort((one, other) => one.start - other.start);
  }

  /** The stretch that others are held against: the typical step, or the first of which there is everything. */
  get typical() {
    return this.exact.find((one) => one.typical) ?? this.exact[0] ?? null;
  }

  get bucket() {
    return this.lanes.length ? this.lanes[0].bucket : this.span;
  }

  name(place) {
    return place < 0 ? "" : this.names[place];
  }

  exactAt(start, end) {
    return this.exact.find((one) => one.start < end && start < one.end) ?? null;
  }
}

function timelineDeviceTitle(packed, words) {
  const alone = packed.device < 0 ? ["host"] : ["device", { device: packed.device }];
  const named = packed.rank === null ? alone : ["rank", { rank: packed.rank }];
  return timelineSay(words, ...named);
}

/** Put pictures on one clock; ``aligned``: the old ones so that their typical step begins where the new one's does. */
function timelineShift(pictures, aligned) {
  for (const one of pictures) one.shift = one.at;
  const [fresh, old] = [false, true].map((wanted) => pictures.find((one) => one.old === wanted));
  if (!aligned || !fresh?.typical || !old?.typical) return;
  const moved = fresh.shift + fresh.typical.start - (old.shift + old.typical.start);
  for (const one of pictures.filter((other) => other.old)) one.shift += moved;
}

/** Return all slices of some rows whose names or facts have a text in them, in the order of their times. */
function timelineMatches(rows, wanted) {
  const found = [];
  for (const row of rows) {
    const named = timelineNamed(row.picture, wanted);
    const { slices } = row.lane;
    for (let i = 0; i < slices.count; i += 1) {
      if (named(slices, i)) found.push({ row, slice: i, start: row.picture.shift + slices.start[i] });
    }
  }
  return found.sort((one, other) => one.start - other.start);
}

/** Return what tells whether a slice's names, or what is known of it, have a text in them, whichever case. */
function timelineNamed(picture, wanted) {
  const low = wanted.toLowerCase();
  const having = (texts) => new Set([...texts.keys()].filter((place) => texts[place].toLowerCase().includes(low)));
  const names = having(picture.names);
  const facts = having(picture.facts.map((known) => Object.values(known).join("\n")));
  return (slices, i) => names.has(slices.name[i]) || names.has(slices.called[i]) || facts.has(slices.facts[i]);
}

/** Return the first place, other than a step, whose name has a text in it; null: there is none. */
function timelinePlace(pictures, wanted) {
  const low = wanted.toLowerCase();
  for (const picture of pictures) {
    const place = picture.places.find(({ kind, name }) => kind !== "step" && name.toLowerCase().includes(low));
    if (place) return { picture, place };
  }
  return null;
}

/** Return the lane of a host thread, as a row; null: it is not drawn. */
function timelineHost(rows, picture, thread) {
  return rows.find((row) => row.picture === picture && row.lane?.kind === "host" && row.lane.thread === thread) ?? null;
}

/** Return the slices around a time of a lane, the innermost last; what only overlaps it is not around it. */
function timelineStack(lane, time) {
  const { slices } = lane;
  const [first, last] = slices.range(time, time);
  const found = [];
  let reach = time + 1;
  for (let i = last - 1; i >= first; i -= 1) {
    if (slices.end[i] < reach) continue;
    found.unshift(i);
    reach = slices.end[i];
  }
  return found;
}

/** Return the tasks that a slice of a host's lane asked for or launched, in the order of their starts. */
function timelineKernels(rows, { row, slice }) {
  const { slices: host, thread } = row.lane;
  const [from, until] = [host.start[slice], host.end[slice]];
  const inside = (time) => from <= time && time < until;
  const found = [];
  for (const one of rows) {
    if (one.picture !== row.picture || one.lane?.kind !== "stream") continue;
    const { slices } = one.lane;
    for (let i = 0; i < slices.count; i += 1) {
      const asked = slices.op_thread[i] === thread && inside(slices.asked[i]);
      if (asked || (slices.launch_thread[i] === thread && inside(slices.launch[i]))) found.push({ row: one, slice: i });
    }
  }
  return found.sort((one, other) => one.row.lane.slices.start[one.slice] - other.row.lane.slices.start[other.slice]);
}
