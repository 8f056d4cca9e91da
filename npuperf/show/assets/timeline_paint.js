// How the timeline looks: areas of busy shares, exact slices, stretches, arrows, the ruler. All sizes are CSS pixels.

/** Heights of a row by its lane's kind; of lanes with sub-tracks, of one track, and how many are shown at most. */
const TIMELINE_HEIGHTS = { parts: 32, waits: 22, stream: 20, host: 20, cores: 26, clock: 26, memory: 26 };
const TIMELINE_TRACKS = { stream: [16, 4], host: [13, 7] };
const TIMELINE_HEAD = 22;
const TIMELINE_GAP = 4;
const TIMELINE_RULER = 40;
/** Areas are no higher, however many tracks the lane has. */
const TIMELINE_AREA = 32;
/** Slices narrower than this are drawn together with the one before; as wide at least are those that are drawn. */
const TIMELINE_MERGED = 0.3;
const TIMELINE_NARROWEST = 0.7;
const TIMELINE_FONT = 11;

/** Return the colours that the page's style sheet has now, and black or white to write on each. */
function timelineColours(root, names) {
  const style = getComputedStyle(root);
  const probe = document.createElement("canvas").getContext("2d");
  const colours = { font: `${TIMELINE_FONT}px ${style.fontFamily}`, on: {} };
  for (const name of [...names, "paper", "raised", "line", "ink", "muted", "accent", "idle"]) {
    probe.fillStyle = "#808080";
    probe.fillStyle = style.getPropertyValue(`--${name}`).trim();
    colours[name] = probe.fillStyle;
    const parts = [1, 3, 5].map((at) => (parseInt(probe.fillStyle.slice(at, at + 2), 16) / 255) ** 2.2);
    const light = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    colours.on[name] = (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#000000" : "#ffffff";
  }
  return colours;
}

/** Return the rows of some pictures from top to bottom; of closed ones the head and the first lane. */
function timelineRows(pictures, closed) {
  const rows = [];
  let top = 0;
  const add = (row, height) => {
    rows.push({ ...row, top, height });
    top += height + TIMELINE_GAP;
  };
  for (const picture of pictures) {
    add({ picture, lane: null, tracks: 1, track: TIMELINE_HEAD }, TIMELINE_HEAD);
    for (const lane of closed.has(picture) ? picture.lanes.slice(0, 1) : picture.lanes) {
      const [size, most] = TIMELINE_TRACKS[lane.kind] ?? [TIMELINE_HEIGHTS[lane.kind], 1];
      const tracks = Math.min(lane.slices.deepest + 1, most);
      const height = Math.max(TIMELINE_HEIGHTS[lane.kind], tracks * size);
      add({ picture, lane, tracks, track: height / tracks }, height);
    }
  }
  return { rows, height: top };
}

/** Draws one frame: a canvas, a view of it, and what is to stand out. */
class TimelinePaint {
  constructor(context, colours, view, size) {
    this.context = context;
    this.colours = colours;
    this.start = view.start;
    this.width = size.width;
    this.height = size.height;
    /** ns per pixel. */
    this.scale = (view.end - view.start) / size.width;
    this.end = view.end;
    context.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
    context.clearRect(0, 0, size.width, size.height);
    context.font = colours.font;
    context.textBaseline = "middle";
  }

  x(time) {
    return (time - this.start) / this.scale;
  }

  time(x) {
    return this.start + x * this.scale;
  }

  /** Draw the rows; ``found``: per picture the names that are searched for, null without a search. */
  rows(rows, found) {
    for (const row of rows) {
      if (row.lane) this.lane(row, found);
      else this.head(row);
    }
  }

  /** Draw where there are exact slices, behind all lanes of each picture. */
  stretches(rows) {
    const { context, colours } = this;
    for (const picture of new Set(rows.map((row) => row.picture))) {
      const mine = rows.filter((row) => row.picture === picture);
      const last = mine[mine.length - 1];
      for (const one of picture.exact) {
        const [left, right] = this.clipped(picture.shift + one.start, picture.shift + one.end);
        if (right <= left) continue;
        context.fillStyle = colours.accent;
        context.globalAlpha = 0.09;
        context.fillRect(left, mine[0].top, Math.max(right - left, 1), last.top + last.height - mine[0].top);
        context.globalAlpha = 1;
      }
    }
  }

  clipped(start, end) {
    return [Math.max(this.x(start), 0), Math.min(this.x(end), this.width)];
  }

  /** Draw the names of exact stretches above a picture's lanes. */
  head(row) {
    const { context, colours } = this;
    for (const one of row.picture.exact) {
      const [left, right] = this.clipped(row.picture.shift + one.start, row.picture.shift + one.end);
      if (right <= left) continue;
      context.fillStyle = colours.accent;
      context.fillRect(left, row.top + row.height - 2, Math.max(right - left, 1), 2);
      this.text(one.label, left + 4, row.top + row.height / 2 - 1, right - left - 8, colours.ink);
    }
  }

  /** Write a text, cut to the room there is; nothing where there is too little. */
  text(words, x, y, room, colour) {
    if (room < 14) return;
    const { context } = this;
    const width = context.measureText(words).width;
    const letters = Math.floor((words.length * room) / Math.max(width, 1)) - 1;
    if (width > room && letters < 2) return;
    context.fillStyle = colour;
    context.fillText(width > room ? `${words.slice(0, letters)}…` : words, x, y, room);
  }

  lane(row, found) {
    const { context, colours } = this;
    const [left, right] = this.clipped(row.picture.shift, row.picture.shift + row.picture.span);
    if (right <= left) return;
    context.fillStyle = colours.idle;
    context.globalAlpha = 0.5;
    context.fillRect(left, row.top, right - left, row.height);
    context.globalAlpha = 1;
    let from = Math.floor(left);
    for (const one of this.exact(row)) {
      const [first, last] = this.clipped(row.picture.shift + one.start, row.picture.shift + one.end);
      this.area(row, from, Math.round(first), found);
      this.slices(row, one, found);
      from = Math.round(last);
    }
    this.area(row, from, Math.ceil(right), found);
  }

  /** Return the exact stretches in view of which a lane's slices are drawn, in order. */
  exact(row) {
    const { picture, lane } = row;
    const [start, end] = [this.start - picture.shift, this.end - picture.shift];
    return picture.exact.filter((one) => lane.shows(one, start, end, this.scale));
  }

  /** Draw the shares of each pixel column of [left, right), one colour upon the other. */
  area(row, left, right, found) {
    const columns = right - left;
    if (columns <= 0) return;
    const { lane, picture } = row;
    const height = Math.min(row.height, TIMELINE_AREA);
    const total = new Float32Array(columns);
    const layers = lane.colours.map((_, place) => {
      let time = this.time(left) - picture.shift;
      for (let column = 0; column < columns; column += 1) {
        const next = this.time(left + column + 1) - picture.shift;
        total[column] += lane.busy(place, time, next) / this.scale;
        time = next;
      }
      return total.slice();
    });
    for (let place = layers.length - 1; place >= 0; place -= 1) {
      this.steps(layers[place], left, row.top + row.height, height, this.colours[lane.colours[place]]);
    }
    if (!found) return;
    this.context.fillStyle = this.colours.paper;
    this.context.globalAlpha = 0.7;
    this.context.fillRect(left, row.top, columns, row.height);
    this.context.globalAlpha = 1;
  }

  /** Fill what lies below a line of steps, one per pixel. */
  steps(shares, left, bottom, height, colour) {
    const { context } = this;
    context.fillStyle = colour;
    context.beginPath();
    context.moveTo(left, bottom);
    let level = 0;
    for (let column = 0; column < shares.length; column += 1) {
      if (shares[column] === level) continue;
      context.lineTo(left + column, bottom - height * Math.min(level, 1));
      level = shares[column];
      context.lineTo(left + column, bottom - height * Math.min(level, 1));
    }
    context.lineTo(left + shares.length, bottom - height * Math.min(level, 1));
    context.lineTo(left + shares.length, bottom);
    context.fill();
  }

  /** Draw a lane's slices of one stretch: first boxes, colour by colour, then what is written on them. */
  slices(row, stretch, found) {
    const { lane, picture } = row;
    const { slices } = lane;
    const names = found?.get(picture);
    const drawn = new Float64Array(row.tracks).fill(-1);
    const start = Math.max(stretch.start, this.start - picture.shift);
    const end = Math.min(stretch.end, this.end - picture.shift);
    const [first, last] = slices.range(start, end);
    const [edge, border] = this.clipped(picture.shift + stretch.start, picture.shift + stretch.end);
    const boxes = new Map();
    const wide = [];
    for (let i = first; i < last; i += 1) {
      const left = Math.max(this.x(picture.shift + slices.start[i]), edge);
      const right = Math.min(this.x(picture.shift + slices.end[i]), border);
      const track = Math.min(slices.depth[i], row.tracks - 1);
      const stands = names ? names(slices, i) : false;
      if (right < edge || (right <= drawn[track] + TIMELINE_MERGED && !stands)) continue;
      drawn[track] = Math.max(right, drawn[track]);
      const width = right - left > 3 ? right - left - 0.5 : Math.max(right - left, TIMELINE_NARROWEST);
      const kind = slices.colour[i] * 2 + (stands ? 1 : 0);
      if (!boxes.has(kind)) boxes.set(kind, []);
      boxes.get(kind).push(left, row.top + track * row.track, width);
      if (width > 18) wide.push(i, left, row.top + track * row.track, width, stands);
    }
    this.boxes(boxes, row, found !== null);
    this.names(wide, row, found !== null);
  }

  boxes(boxes, row, searching) {
    const { context, colours } = this;
    for (const kind of [...boxes.keys()].sort((one, other) => (one & 1) - (other & 1))) {
      const list = boxes.get(kind);
      const stands = kind & 1;
      context.fillStyle = colours[row.picture.colours[kind >> 1]];
      context.globalAlpha = searching && !stands ? 0.3 : 1;
      for (let at = 0; at < list.length; at += 3) {
        context.fillRect(list[at], list[at + 1] + 0.5, list[at + 2], row.track - 1);
      }
      context.globalAlpha = 1;
      if (!stands) continue;
      context.fillStyle = colours.ink;
      for (let at = 0; at < list.length; at += 3) {
        context.fillRect(list[at], list[at + 1] - 1, Math.max(list[at + 2], 1.5), 2);
        context.fillRect(list[at], list[at + 1] + row.track - 1, Math.max(list[at + 2], 1.5), 2);
      }
    }
  }

  names(wide, row, searching) {
    const { slices } = row.lane;
    for (let at = 0; at < wide.length; at += 5) {
      const [i, left, top, width, stands] = wide.slice(at, at + 5);
      const name = row.picture.names[slices.name[i]];
      const colour = row.picture.colours[slices.colour[i]];
      const ink = searching && !stands ? this.colours.muted : this.colours.on[colour];
      if (name) this.text(name, left + 3, top + row.track / 2 + 0.5, width - 6, ink);
    }
  }

  /** Frame a slice. */
  frame(row, slice, colour, width) {
    const { slices } = row.lane;
    const left = this.x(row.picture.shift + slices.start[slice]);
    const right = this.x(row.picture.shift + slices.end[slice]);
    if (right < 0 || left > this.width) return;
    const top = row.top + Math.min(slices.depth[slice], row.tracks - 1) * row.track;
    this.context.strokeStyle = colour;
    this.context.lineWidth = width;
    const from = Math.max(left, -4);
    this.context.strokeRect(from - 0.5, top, Math.max(Math.min(right, this.width + 4) - from, 2) + 1, row.track);
  }

  /** Draw from where the host submitted a task to where it started. */
  arrow(row, slice, host) {
    const { context, colours } = this;
    const { slices } = row.lane;
    const x0 = this.x(row.picture.shift + slices.launch[slice]);
    const x1 = this.x(row.picture.shift + slices.start[slice]);
    if (Number.isNaN(x0) || Math.max(x0, x1) < 0 || Math.min(x0, x1) > this.width) return;
    const y0 = host.top + Math.min(host.height, TIMELINE_AREA) / 2;
    const y1 = row.top + (Math.min(slices.depth[slice], row.tracks - 1) + 0.5) * row.track;
    const bend = Math.max(-60, Math.min(60, (x1 - x0) / 2));
    context.strokeStyle = context.fillStyle = colours.ink;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - Math.max(bend, 12), y1, x1 - 4, y1);
    context.stroke();
    context.beginPath();
    context.arc(x0, y0, 3, 0, 7);
    context.moveTo(x1, y1);
    context.lineTo(x1 - 7, y1 - 4);
    context.lineTo(x1 - 7, y1 + 4);
    context.fill();
  }

  /** Shade a stretch of [top, bottom) and draw its borders. */
  band(start, end, top, bottom, dashed) {
    const { context, colours } = this;
    const [left, right] = this.clipped(start, end);
    if (right < left) return;
    context.fillStyle = colours.accent;
    context.globalAlpha = 0.12;
    context.fillRect(left, top, right - left, bottom - top);
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.setLineDash(dashed ? [5, 3] : []);
    context.strokeRect(left, top + 1, Math.max(right - left, 1), bottom - top - 2);
    context.setLineDash([]);
  }

  /** Draw times since ``zero`` above, and steps below. */
  ruler(zero, picture, words) {
    const { context, colours } = this;
    const step = timelineTick(this.scale * 96);
    const { base, label } = timelineLabels(step, this.start - zero, this.end - zero);
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    const first = Math.ceil((this.start - zero) / step);
    const kept = base === null ? 0 : this.written(timelineLong(base), 10) + 10;
    for (let n = first; n * step <= this.end - zero; n += 1) {
      const x = Math.round(this.x(zero + n * step)) + 0.5;
      context.beginPath();
      context.moveTo(x, 14);
      context.lineTo(x, 20);
      context.stroke();
      const words = label(n);
      const at = Math.min(x + 3, this.width - context.measureText(words).width);
      context.fillStyle = colours.muted;
      if (at >= kept) context.fillText(words, at, 9);
    }
    if (picture) this.stepTicks(picture, words);
  }

  written(words, y) {
    this.context.fillStyle = this.colours.ink;
    this.context.fillText(words, 2, y - 1);
    return this.context.measureText(words).width;
  }

  stepTicks(picture, words) {
    const { context, colours } = this;
    let free = -1;
    for (const one of picture.steps) {
      const [left, right] = [this.x(picture.shift + one.start), this.x(picture.shift + one.end)];
      if (right < 0 || left > this.width) continue;
      context.fillStyle = colours.line;
      context.fillRect(Math.round(left), 22, 1, TIMELINE_RULER - 24);
      context.fillRect(Math.round(right), 22, 1, TIMELINE_RULER - 24);
      const from = Math.max(left, 0);
      const title = timelineSay(words, "step", { step: one.name });
      const width = context.measureText(title).width;
      if (from < free || Math.min(right, this.width) - from < Math.min(width + 6, 30)) continue;
      this.text(title, from + 4, 31, Math.min(right, this.width) - from - 6, colours.ink);
      free = from + 30;
    }
  }
}

/** Return the least time of 1, 2 or 5 times a power of ten that is not below a time; at least 1 ns. */
function timelineTick(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return Math.max(1, [1, 2, 5, 10].map((n) => n * power).find((tick) => tick >= least * 0.999));
}

/** Return how ticks are labelled: by their times, or, where these had many digits, by what follows a base. */
function timelineLabels(step, start, end) {
  const [size, unit] = BASICS_UNITS.find(([one]) => step >= one) ?? [1, "ns"];
  const largest = Math.max(Math.abs(start), Math.abs(end));
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  const far = largest / step > 2e4;
  const around = far ? 10 ** Math.ceil(Math.log10(end - start)) : 1;
  const base = far ? Math.floor(start / around) * around : null;
  if (base === null) {
    const [larger, name] = BASICS_UNITS.find(([one]) => largest >= one) ?? [size, unit];
    const decimals = Math.max(0, Math.ceil(-Math.log10(step / larger) - 1e-9));
    return { base, label: (n) => `${((n * step) / larger).toFixed(decimals)} ${name}` };
  }
  return { base, label: (n) => `+${((n * step - base) / size).toFixed(digits)} ${unit}` };
}

/** Return a time to the nanosecond, in seconds. */
function timelineLong(ns) {
  return `${(ns / 1e9).toFixed(9).replace(/\.?0+$/, "")} s`;
}
