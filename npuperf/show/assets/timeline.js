// The timeline: what the page gets, what is in view, what stands out, what is searched for.

/** The least that a view shows, ns. */
const TIMELINE_LEAST = 100;
/** Views that show fewer buckets are too close for them. */
const TIMELINE_FEW_BUCKETS = 12;
/** A click that measures takes the end of a slice that is so near, px. */
const TIMELINE_SNAP = 6;
/** Of more devices than this all but the first show one lane only, until they are opened. */
const TIMELINE_OPEN = 2;
/** From an event of the host to its tasks there are no more arrows. */
const TIMELINE_ARROWS = 100;

function timelineElement(tag, kind, words) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (words !== undefined) element.textContent = words;
  return element;
}

/** Show pictures, and old ones to hold them against, in a section of the page. */
function timelineStart(root, pictures, oldPictures, words) {
  return new Timeline(root, pictures, oldPictures, words);
}

class Timeline {
  constructor(root, pictures, oldPictures, words) {
    this.root = root;
    this.words = words;
    const several = oldPictures.length > 0;
    const fresh = pictures.map((one) => new TimelinePicture(one, false, words, several));
    const old = oldPictures.map((one) => new TimelinePicture(one, true, words, several));
    this.fresh = fresh;
    this.pictures = [...fresh, ...old];
    for (const picture of this.pictures) for (const one of picture.exact) one.label = this.exactLabel(one);
    const partner = old.find((one) => one.rank === fresh[0].rank) ?? old[0];
    this.shown = partner ? [fresh[0], partner] : [...fresh];
    this.closed = new Set(this.shown.length > TIMELINE_OPEN ? this.shown.slice(1) : []);
    this.aligned = true;
    this.hover = null;
    this.cursor = null;
    this.chosen = null;
    /** What the chosen event of the host asked for. */
    this.tasks = [];
    this.selection = null;
    this.mark = null;
    this.search = { wanted: "", names: null, matches: [], at: -1 };
    this.longest = 0;
    this.telling = new TimelineTelling(this);
    this.flame = new TimelineFlame(this);
    this.build();
    this.hands = new TimelineHands(this);
    this.link = new TimelineLink(this);
    this.listen();
    this.readColours();
    this.arrange();
    this.whole();
    this.link.follow();
  }

  say(name, parameters) {
    return timelineSay(this.words, name, parameters);
  }

  exactLabel(one) {
    const said = this.say(one.step === null ? "exact" : "exact_step", { why: one.why, step: one.step });
    return one.cut ? `${said} (${this.say("cut", { n: one.cut })})` : said;
  }

  // --- what the page gets --------------------------------------------------------------------------------------------

  build() {
    this.box = timelineElement("div", "timeline");
    this.note = timelineElement("p", "timeline-note");
    this.note.hidden = true;
    this.labels = timelineElement("div", "timeline-labels");
    this.ruler = timelineElement("canvas", "timeline-ruler");
    this.ruler.setAttribute("aria-hidden", "true");
    this.canvas = timelineElement("canvas", "timeline-canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.tip = timelineElement("div", "timeline-tip");
    this.tip.setAttribute("aria-hidden", "true");
    this.tip.hidden = true;
    this.live = timelineElement("p", "timeline-live");
    this.live.setAttribute("role", "status");
    this.sum = timelineElement("div", "timeline-sum");
    this.sum.setAttribute("aria-live", "polite");
    this.details = timelineElement("div", "timeline-details");
    this.legend = timelineElement("ul", "timeline-legend");
    this.legend.setAttribute("aria-label", this.say("legend"));
    this.plot = timelineElement("div", "timeline-plot");
    this.plot.append(timelineElement("div", "timeline-corner"), this.ruler, this.labels, this.canvas, this.tip);
    const told = [this.legend, this.live, this.sum, this.details];
    if (this.pictures.some((one) => one.lanes.some((lane) => lane.kind === "host" && lane.slices.count))) {
      told.push(this.flame.box);
    }
    told.push(this.keysHelp());
    this.box.append(this.tools(), this.note, this.plot, ...told);
    this.root.append(this.box);
  }

  button(name, sign, act, parent) {
    const button = timelineElement("button", "timeline-button", sign ?? this.say(name));
    button.type = "button";
    button.dataset.act = name;
    if (sign) button.title = this.say(name);
    if (sign) button.setAttribute("aria-label", this.say(name));
    button.addEventListener("click", act);
    parent.append(button);
    return button;
  }

  tools() {
    const tools = timelineElement("div", "timeline-tools");
    tools.setAttribute("role", "group");
    tools.setAttribute("aria-label", this.say("tools"));
    const group = () => tools.appendChild(timelineElement("span", "timeline-group"));
    const views = group();
    this.button("zoom_in", "+", () => this.zoom(1 / TIMELINE_ZOOM), views);
    this.button("zoom_out", "−", () => this.zoom(TIMELINE_ZOOM), views);
    this.button("left", "←", () => this.pan(-TIMELINE_PAN), views);
    this.button("right", "→", () => this.pan(TIMELINE_PAN), views);
    this.button("whole", null, () => this.whole(), views);
    if (this.pictures.some((one) => one.exact.length)) {
      const exact = group();
      this.button("exact_before", "‹", () => this.toExact(-1), exact);
      this.button("typical", null, () => this.toTypical(), exact);
      this.button("exact_after", "›", () => this.toExact(1), exact);
    }
    const sums = group();
    this.button("sum", null, () => this.select(this.view.start, this.view.end), sums);
    this.ruling = this.button("measure", null, () => this.hands.measure(), sums);
    const link = this.button("link", null, () => this.link.copy(link), sums);
    if (this.pictures.length > this.fresh.length) tools.append(this.alignBox());
    if (this.pictures.length > 1) tools.append(this.deviceBox());
    tools.append(this.searchBox());
    return tools;
  }

  checkbox(label, checked, act) {
    const whole = timelineElement("label", "timeline-check");
    const input = timelineElement("input");
    input.type = "checkbox";
    input.checked = checked;
    input.addEventListener("change", () => act(input.checked));
    whole.append(input, label);
    return whole;
  }

  alignBox() {
    return this.checkbox(this.say("align"), true, (on) => {
      this.aligned = on;
      this.arrange();
      this.whole();
    });
  }

  deviceBox() {
    const whole = timelineElement("details", "timeline-devices");
    const summary = timelineElement("summary");
    const list = timelineElement("div");
    this.boxes = new Map();
    for (const picture of this.pictures) {
      const label = picture.why ? `${picture.title} (${picture.why})` : picture.title;
      const box = this.checkbox(label, this.shown.includes(picture), (on) => this.show(picture, on));
      this.boxes.set(picture, box.firstChild);
      list.append(box);
    }
    whole.append(summary, list);
    this.deviceSummary = summary;
    return whole;
  }

  searchBox() {
    const whole = timelineElement("span", "timeline-search");
    this.input = timelineElement("input");
    this.input.type = "search";
    this.input.placeholder = this.say("search");
    this.input.setAttribute("aria-label", this.say("search"));
    this.found = timelineElement("span", "timeline-found");
    this.found.setAttribute("aria-live", "polite");
    whole.append(this.input);
    this.button("search_before", "↑", () => this.toMatch(-1), whole);
    this.button("search_after", "↓", () => this.toMatch(1), whole);
    whole.append(this.found);
    return whole;
  }

  keysHelp() {
    this.help = timelineElement("details", "timeline-keys");
    const list = timelineElement("ul");
    for (const name of ["zoom", "pan", "whole", "cursor", "choose", "sum", "measure"]) {
      list.append(timelineElement("li", "", this.say(`help_${name}`)));
    }
    this.help.append(timelineElement("summary", "", this.say("keys")), list);
    return this.help;
  }

  // --- what is shown -------------------------------------------------------------------------------------------------

  /** Show a picture or take it away; one is always there. */
  show(picture, on) {
    const shown = this.pictures.filter((one) => (one === picture ? on : this.shown.includes(one)));
    if (shown.length) this.shown = shown;
    this.arrange();
    this.look(this.view.start, this.view.end);
  }

  /** Lay out rows and labels anew: other pictures are shown, or others are closed. */
  arrange() {
    timelineShift(this.pictures, this.aligned);
    const { rows, height } = timelineRows(this.shown, this.closed);
    this.rows = rows;
    this.height = height;
    this.extent = {
      start: Math.min(...this.shown.map((one) => one.shift)),
      end: Math.max(...this.shown.map((one) => one.shift + one.span)),
    };
    this.cursor = this.cursor && this.again(this.cursor);
    this.chosen = this.chosen && this.again(this.chosen);
    this.hover = null;
    this.labels.replaceChildren(...rows.map((row) => this.label(row)));
    this.canvas.style.height = `${height}px`;
    const devices = this.shown.map((one) => one.title).join(", ");
    this.canvas.setAttribute("aria-label", this.say("canvas", { devices }));
    for (const [picture, box] of this.boxes ?? []) box.checked = this.shown.includes(picture);
    if (this.deviceSummary) {
      this.deviceSummary.textContent = this.say("devices", { shown: this.shown.length, all: this.pictures.length });
    }
    this.fillLegend();
    if (this.search.wanted) this.find();
    this.tell();
  }

  /** Return a slice's place among the rows that there are now; null: it is in none. */
  again({ row, slice }) {
    const found = this.rows.find((one) => one.lane && one.lane === row.lane);
    return found ? { row: found, slice } : null;
  }

  label(row) {
    if (row.lane) {
      const label = timelineElement("div", `timeline-label timeline-${row.lane.kind}`, row.lane.title);
      label.title = row.lane.title;
      label.style.top = `${row.top}px`;
      label.style.height = `${row.height}px`;
      return label;
    }
    const button = timelineElement("button", "timeline-label timeline-device", row.picture.title);
    button.type = "button";
    button.title = row.picture.why ? `${row.picture.title}: ${row.picture.why}` : row.picture.title;
    button.setAttribute("aria-expanded", String(!this.closed.has(row.picture)));
    button.style.top = `${row.top}px`;
    button.style.height = `${row.height}px`;
    button.addEventListener("click", () => {
      if (!this.closed.delete(row.picture)) this.closed.add(row.picture);
      const place = [...this.labels.querySelectorAll("button")].indexOf(button);
      this.arrange();
      this.labels.querySelectorAll("button")[place].focus();
    });
    return button;
  }

  fillLegend() {
    const used = new Set(this.rows.flatMap((row) => row.lane?.colours ?? []));
    for (const { lane } of this.rows) {
      if (lane) for (const colour of new Set(lane.slices.colour)) used.add(lane.picture.colours[colour]);
    }
    const order = this.fresh[0].colours.filter((name) => used.has(name));
    this.legend.replaceChildren(
      ...[...order, "idle"].map((name) => {
        const entry = timelineElement("li", "");
        const key = timelineElement("span", "timeline-key");
        key.style.background = `var(--${name})`;
        entry.append(key, this.say(name));
        return entry;
      }),
    );
  }

  readColours() {
    this.colours = timelineColours(this.box, this.fresh[0].colours);
    this.tell();
  }

  // --- the view ------------------------------------------------------------------------------------------------------

  /** Show a stretch, or as much of it as there is. */
  look(start, end) {
    const most = this.extent.end - this.extent.start;
    const length = Math.min(Math.max(end - start, TIMELINE_LEAST), most);
    const middle = (start + end) / 2;
    const from = Math.min(Math.max(middle - length / 2, this.extent.start), this.extent.end - length);
    this.view = { start: from, end: from + length };
    this.tip.hidden = true;
    this.changed();
  }

  /** Draw anew; the address and the flame view follow. */
  changed() {
    this.link.soon();
    this.flame.soon();
    this.tell();
  }

  get length() {
    return this.view.end - this.view.start;
  }

  get isWhole() {
    return this.length >= (this.extent.end - this.extent.start) * 0.9999;
  }

  whole() {
    this.look(this.extent.start, this.extent.end);
  }

  zoom(factor, around = this.view.start + this.length / 2) {
    const length = Math.max(this.length * factor, TIMELINE_LEAST);
    const start = around - ((around - this.view.start) / this.length) * length;
    this.look(start, start + length);
  }

  pan(part) {
    this.look(this.view.start + part * this.length, this.view.end + part * this.length);
  }

  /** Show a stretch with a little around it. */
  frame(start, end, around = 0.04) {
    const margin = Math.max((end - start) * around, 5);
    this.look(start - margin, end + margin);
  }

  toTypical() {
    const picture = this.shown.find((one) => one.exact.length);
    if (!picture) return;
    this.frame(picture.shift + picture.typical.start, picture.shift + picture.typical.end);
    this.speak(`${picture.title}, ${picture.typical.label}`);
  }

  /** Show the next exact stretch of those shown, or the one before. */
  toExact(direction) {
    const middle = this.view.start + this.length / 2;
    const all = this.shown.flatMap((picture) =>
      picture.exact.map((one) => {
        const label = `${picture.title}, ${one.label}`;
        return { label, start: picture.shift + one.start, end: picture.shift + one.end };
      }),
    );
    const centre = (one) => (one.start + one.end) / 2;
    const there = all.filter((one) => direction * (centre(one) - middle) > Math.max(1, 0.001 * this.length));
    const next = there.sort((one, other) => direction * (centre(one) - centre(other)))[0];
    if (!next) return;
    this.frame(next.start, next.end);
    this.speak(next.label);
  }

  /** Go to what the page names: a stretch of a picture, which is shown if it is not. */
  go({ picture, start, end, old }) {
    const wanted = (old ? this.pictures.slice(this.fresh.length) : this.fresh)[picture];
    if (!wanted || !(end >= start)) return;
    this.closed.delete(wanted);
    this.show(wanted, true);
    this.toPlace(wanted, start, end);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.root.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
    this.canvas.focus({ preventScroll: true });
  }

  /** Show a stretch of a picture and mark it; what is a slice of it is chosen. */
  toPlace(picture, start, end) {
    this.mark = { picture, start, end };
    this.choose(null);
    for (const row of this.rows) {
      if (row.picture !== picture || !row.lane || row.lane.kind === "parts") continue;
      const { slices } = row.lane;
      for (let i = timelineFirstAbove(slices.start, start - 1); i < slices.count && slices.start[i] === start; i += 1) {
        if (slices.end[i] === end && !this.chosen) this.choose({ row, slice: i });
      }
    }
    const launch = this.chosen ? this.chosen.row.lane.slices.launch[this.chosen.slice] : NaN;
    const from = Number.isNaN(launch) ? start : Math.max(Math.min(launch, start), 0); // wide enough to show the launch
    const around = end - start > picture.span / 200 ? 0.04 : from < start ? 0.5 : 3;
    this.frame(picture.shift + from, picture.shift + end, around);
  }

  toggleHelp() {
    this.help.open = !this.help.open;
  }

  // --- choosing and telling ------------------------------------------------------------------------------------------

  /** Return what is under a point of the canvas: a slice, a lane's shares, or nothing. */
  under(x, y) {
    const row = this.rows.find((one) => one.lane && one.top <= y && y < one.top + one.height);
    if (!row) return null;
    const time = this.timeAt(x);
    const own = time - row.picture.shift;
    if (own < 0 || own > row.picture.span) return null;
    const scale = this.length / this.canvas.clientWidth;
    const exact = row.picture.exactAt(own, own + scale);
    const [start, end] = [this.view.start - row.picture.shift, this.view.end - row.picture.shift];
    if (!exact || !row.lane.shows(exact, start, end, scale)) return { row, slice: -1, time };
    const track = Math.min(Math.floor((y - row.top) / row.track), row.tracks - 1);
    return { row, slice: this.nearest(row.lane.slices, own, scale, track, row.tracks), time };
  }

  /** Return the beginning or the end of a slice near a point, else the time there. */
  edgeNear(x, y) {
    const time = this.timeAt(x);
    const row = this.rows.find((one) => one.lane && one.top <= y && y < one.top + one.height);
    if (!row) return time;
    const { picture: { shift }, lane: { slices } } = row;
    const reach = (TIMELINE_SNAP * this.length) / this.canvas.clientWidth;
    const [first, last] = slices.range(time - shift - reach, time - shift + reach);
    let best = time;
    let apart = reach;
    for (let i = first; i < last; i += 1) {
      for (const edge of [slices.start[i] + shift, slices.end[i] + shift]) {
        if (Math.abs(edge - time) < apart) [best, apart] = [edge, Math.abs(edge - time)];
      }
    }
    return best;
  }

  /** Return the slice at a time, or one that is no farther than two pixels; of the last track the deepest. */
  nearest(slices, time, scale, track, tracks) {
    const deepest = track === tracks - 1 ? slices.deepest : track;
    for (const near of [0, -1, 1, -2, 2]) {
      for (let depth = deepest; depth >= track; depth -= 1) {
        const found = slices.at(time + near * scale, depth);
        if (found >= 0) return found;
      }
    }
    return -1;
  }

  speak(words) {
    this.live.textContent = words;
  }

  /** Choose a slice: the cursor goes there, and all that is known of it is shown below. */
  choose(place) {
    this.chosen = place && place.slice >= 0 ? place : null;
    this.tasks = this.chosen?.row.lane.kind === "host" ? timelineKernels(this.rows, place) : [];
    this.cursor = this.chosen ?? this.cursor;
    this.details.replaceChildren();
    if (this.chosen) this.details.append(this.telling.details(place));
    this.changed();
  }

  /** Show what a stretch consists of; null: nothing is selected. */
  select(start, end) {
    const [from, until] = [Math.min(start, end), Math.max(start, end)];
    this.selection = { start: Math.max(from, this.extent.start), end: Math.min(until, this.extent.end) };
    this.sum.replaceChildren(...this.telling.sums(this.selection));
    this.changed();
  }

  clear() {
    this.selection = this.mark = this.hover = null;
    this.hands.measure(false);
    this.sum.replaceChildren();
    this.choose(null);
    this.tip.hidden = true;
  }

  // --- searching -----------------------------------------------------------------------------------------------------

  find() {
    const wanted = this.input.value.trim();
    const names = wanted ? new Map(this.shown.map((one) => [one, timelineNamed(one, wanted)])) : null;
    const matches = wanted ? timelineMatches(this.rows.filter((row) => row.lane), wanted) : [];
    this.search = { wanted, names, matches, at: -1 };
    const place = wanted && !matches.length ? timelinePlace([...this.shown, ...this.pictures], wanted) : null;
    this.search.place = place;
    this.search.names = matches.length ? names : null;
    if (!wanted) this.found.textContent = "";
    else if (matches.length) this.found.textContent = this.say("found", { n: "–", m: matches.length });
    else this.found.textContent = place ? this.say("found_place", { name: place.place.name }) : this.say("found_none");
    this.tell();
  }

  /** Go to the next match or the one before; the first is the one after where the view begins. */
  toMatch(direction) {
    const { matches, place } = this.search;
    if (place) {
      this.show(place.picture, true);
      this.toPlace(place.picture, place.place.start, place.place.end);
      this.speak(this.found.textContent);
    }
    if (!matches.length) return;
    if (this.search.at < 0) {
      const first = matches.findIndex((one) => one.start >= this.view.start);
      this.search.at = direction > 0 ? Math.max(first, 0) : (first <= 0 ? matches.length : first) - 1;
    } else {
      this.search.at = (this.search.at + direction + matches.length) % matches.length;
    }
    const { row, slice } = matches[this.search.at];
    this.bring(row, slice);
    this.choose({ row, slice });
    this.found.textContent = this.say("found", { n: this.search.at + 1, m: matches.length });
  }

  /** Show a slice: where it would be too narrow or too wide to be seen closer or farther, else as things are. */
  bring(row, slice) {
    const { slices } = row.lane;
    const [start, end] = [slices.start[slice] + row.picture.shift, slices.end[slice] + row.picture.shift];
    const part = (end - start) / this.length;
    if (part < 0.004 || part > 0.9) this.frame(start, end, 12);
    else if (start < this.view.start || end > this.view.end) {
      this.look((start + end - this.length) / 2, (start + end + this.length) / 2);
    }
  }

  /** Move the cursor to the next slice of its lane, or the one before. */
  step(direction) {
    if (!this.cursor) {
      this.enter(this.rows.findIndex((row) => row.lane?.kind === "stream" && row.lane.slices.count), 0);
      return;
    }
    const { row, slice } = this.cursor;
    const next = slice < 0 ? -1 : slice + direction;
    if (next < 0 || next >= row.lane.slices.count) return;
    this.point(row, next);
  }

  /** Move the cursor to the lane above or below, to what is there at the same time. */
  climb(direction) {
    const here = this.cursor ? this.rows.indexOf(this.cursor.row) : -1;
    let next = here + direction;
    while (this.rows[next] && !this.rows[next].lane) next += direction;
    if (this.rows[next]) this.enter(next);
  }

  /** Put the cursor into a row, on the slice nearest to where it was, or on the first one in view. */
  enter(place) {
    const row = this.rows[place] ?? this.rows.find((one) => one.lane);
    if (!row) return;
    const { slices } = row.lane;
    const was = this.cursor && this.cursor.slice >= 0 ? this.cursor : null;
    const first = Math.min(timelineFirstAbove(slices.start, this.view.start - row.picture.shift), slices.count - 1);
    const time = was ? was.row.lane.slices.start[was.slice] + was.row.picture.shift : 0;
    const slice = was ? slices.nearest(time - row.picture.shift) : first;
    const { shift } = row.picture;
    const exact = row.picture.exactAt(this.view.start - shift, this.view.end - shift);
    if (slice >= 0 && (exact || !was)) {
      this.point(row, slice);
    } else {
      this.cursor = { row, slice: -1 };
      const { facts } = this.telling.shares({ row, time: this.view.start + this.length / 2 });
      const told = facts.map((one) => one.join(" ")).join(", ");
      this.speak(`${this.say("lane_empty", { lane: row.lane.title })}; ${told}`);
      this.tell();
    }
  }

  /** Put the cursor on a slice, show it and say what it is. */
  point(row, slice) {
    this.cursor = { row, slice };
    this.bring(row, slice);
    this.speak(this.telling.spoken(this.cursor));
    const start = row.lane.slices.start[slice] + row.picture.shift;
    const x = ((start - this.view.start) / this.length) * this.canvas.clientWidth;
    this.telling.showTip(this.cursor, x, row.top + row.height);
    this.tell();
  }

  /** Zoom to a slice. */
  closer(place) {
    if (!place || place.slice < 0) return;
    const { slices } = place.row.lane;
    const { shift } = place.row.picture;
    this.frame(slices.start[place.slice] + shift, slices.end[place.slice] + shift, 0.1);
  }

  // --- what others do ------------------------------------------------------------------------------------------------

  listen() {
    this.input.addEventListener("input", () => this.find());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.toMatch(event.shiftKey ? -1 : 1);
    });
    document.addEventListener("npuperf:go", (event) => this.go(event.detail));
    new ResizeObserver(() => this.tell()).observe(this.canvas);
    const recolour = () => this.readColours();
    new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ["data-theme", "class"] });
    for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)", "print"]) {
      matchMedia(query).addEventListener("change", recolour);
    }
  }

  /** Return the time at a point of the canvas. */
  timeAt(x) {
    return this.view.start + (x / this.canvas.clientWidth) * this.length;
  }

  /** Show what is under the pointer beside it; null: nothing. */
  pointAt(place, x, y) {
    this.hover = place && place.slice >= 0 ? place : null;
    if (place) this.telling.showTip(place, x, y);
    else this.tip.hidden = true;
    this.tell();
  }

  // --- drawing -------------------------------------------------------------------------------------------------------

  /** Draw before the browser shows its next frame; however often this is called, once. */
  tell() {
    if (this.asked || !this.view) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.draw();
    });
  }

  /** Return a canvas' size, and give it as many dots as it has on the screen. */
  fit(canvas, height) {
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(canvas.clientWidth, 1);
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
    return { width, height, ratio };
  }

  draw() {
    const began = performance.now();
    const size = this.fit(this.canvas, this.height);
    const paint = new TimelinePaint(this.canvas.getContext("2d"), this.colours, this.view, size);
    paint.stretches(this.rows);
    paint.rows(this.rows, this.search.names);
    this.drawWhatStandsOut(paint);
    const room = this.fit(this.ruler, TIMELINE_RULER);
    const above = new TimelinePaint(this.ruler.getContext("2d"), this.colours, this.view, room);
    if (this.selection) above.band(this.selection.start, this.selection.end, 0, TIMELINE_RULER, false);
    above.ruler(this.extent.start, this.shown.find((one) => one.steps.length), this.words);
    this.drawNote();
    const took = performance.now() - began;
    this.longest = Math.max(this.longest, took);
    this.root.dataset.frameMs = `${took.toFixed(2)} ${this.longest.toFixed(2)}`;
    this.root.dataset.view = `${this.view.start} ${this.view.end}`;
    if (this.selection) this.root.dataset.selection = `${this.selection.start} ${this.selection.end}`;
    else delete this.root.dataset.selection;
  }

  drawWhatStandsOut(paint) {
    const { mark, selection } = this;
    if (mark && this.shown.includes(mark.picture)) {
      const mine = this.rows.filter((row) => row.picture === mark.picture);
      const last = mine[mine.length - 1];
      const { shift } = mark.picture;
      paint.band(shift + mark.start, shift + mark.end, mine[0].top, last.top + last.height, true);
    }
    if (selection) paint.band(selection.start, selection.end, 0, this.height, false);
    const { ink, accent } = this.colours;
    const all = [[this.hover, ink, 1], [this.chosen, ink, 2], [this.cursor, accent, 2]];
    for (const [place, colour, width] of all) {
      if (place && place.slice >= 0) paint.frame(place.row, place.slice, colour, width);
    }
    const one = this.hover ?? this.chosen ?? this.cursor;
    for (const task of [...(one ? [one] : []), ...this.tasks.slice(0, TIMELINE_ARROWS)]) {
      if (task.slice < 0 || Number.isNaN(task.row.lane.slices.launch[task.slice])) continue;
      const host = this.hostOf(task);
      if (host) paint.arrow(task.row, task.slice, host);
    }
    for (const { row, slice } of this.tasks) paint.frame(row, slice, accent, 2);
  }

  /** Return the row of the host thread that launched a task; of one that is not drawn the first one. */
  hostOf({ row, slice }) {
    const own = timelineHost(this.rows, row.picture, row.lane.slices.launch_thread[slice]);
    return own ?? this.rows.find((one) => one.picture === row.picture && one.lane?.kind === "host") ?? null;
  }

  /** Return the innermost host event that asked for a task, null where none is drawn. */
  askedBy({ row, slice }) {
    const { slices } = row.lane;
    for (const [thread, time] of [[slices.op_thread, slices.asked], [slices.launch_thread, slices.launch]]) {
      const host = timelineHost(this.rows, row.picture, thread[slice]);
      const around = host ? timelineStack(host.lane, time[slice] - (time === slices.launch)) : [];
      if (around.length) return { row: host, slice: around[around.length - 1] };
    }
    return null;
  }

  /** Say so where the view is closer than the data are. */
  drawNote() {
    const bucket = Math.max(...this.shown.map((one) => one.bucket));
    const exact = this.shown.some((one) => one.exactAt(this.view.start - one.shift, this.view.end - one.shift));
    const coarse = !exact && this.length < TIMELINE_FEW_BUCKETS * bucket;
    if (this.note.hidden === !coarse) return;
    this.note.hidden = !coarse;
    this.note.replaceChildren(this.say("coarse", { bucket: basicsDuration(bucket) }), " ");
    const there = this.shown.some((one) => one.exact.length);
    if (coarse && there) this.button("typical", null, () => this.toTypical(), this.note);
  }
}
