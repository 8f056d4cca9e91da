// What the timeline says of things: of a slice, of shares, of a selected stretch; the box beside the pointer.

/** What the box beside the pointer has no room for: it stands below. */
const TIMELINE_BELOW = new Set(["called", "core", "blocks", "outputs", "counters", "stack"]);
/** Of a stack no more frames are written, the innermost. */
const TIMELINE_FRAMES = 16;

/** Makes words and small tables of what a timeline shows now. */
class TimelineTelling {
  constructor(timeline) {
    this.timeline = timeline;
    this.words = timeline.words;
  }

  say(name, parameters) {
    return timelineSay(this.words, name, parameters);
  }

  /** Return what is known of a slice, as rows of label and text; the first is what it is. */
  facts({ row, slice }) {
    const { picture, lane } = row;
    const { slices } = lane;
    const [start, end] = [slices.start[slice], slices.end[slice]];
    const colour = this.say(picture.colours[slices.colour[slice]]);
    const name = picture.name(slices.name[slice]);
    const facts = [["what", name ? `${name} (${colour})` : colour], ["took", basicsDuration(end - start)]];
    if (slices.called[slice] >= 0) facts.splice(1, 0, ["called", picture.name(slices.called[slice])]);
    const exact = picture.exactAt(start, Math.max(end, start + 1));
    if (exact) {
      const share = basicsPercent((end - start) / (exact.end - exact.start));
      facts.push(["share", this.say(exact.step === null ? "of_stretch" : "of_step", { share, step: exact.step })]);
    }
    facts.push(["started", basicsDuration(start)], ...Object.entries(picture.facts[slices.facts[slice]] ?? {}));
    facts.push(...this.factsOfTask(lane, slice));
    if (slices.cause[slice] >= 0) facts.push(["cause", picture.name(slices.cause[slice])]);
    if (slices.where[slice] >= 0) facts.push(["where", picture.name(slices.where[slice])]);
    const stack = this.stack(row, slice);
    if (stack.length) facts.push(["stack", stack.join(" › ")]);
    if (lane.kind === "host") facts.push(...this.factsOfHost({ row, slice }));
    const several = this.timeline.shown.length > 1;
    facts.push(["lane", several ? `${picture.title}, ${lane.title}` : lane.title]);
    return facts;
  }

  /** Return the names of what the host was in, from the outermost, when it asked for a task, or around a host event. */
  stack(row, slice) {
    const { picture, lane: { kind, slices } } = row;
    const asked = slices.op_thread[slice] >= 0 && !Number.isNaN(slices.asked[slice]);
    const [thread, time] = asked
      ? [slices.op_thread[slice], slices.asked[slice]] : [slices.launch_thread[slice], slices.launch[slice] - 1];
    const host = kind === "host" ? row : timelineHost(this.timeline.rows, picture, thread);
    if (!host || (kind !== "host" && Number.isNaN(time))) return [];
    const around = timelineStack(host.lane, kind === "host" ? slices.start[slice] : time);
    const outer = kind === "host" ? around.filter((one) => slices.depth[one] < slices.depth[slice]) : around;
    return outer.map((one) => picture.name(host.lane.slices.name[one])).slice(-TIMELINE_FRAMES);
  }

  /** Return which tasks of the device a host event asked for, as far as they are drawn one by one. */
  factsOfHost(place) {
    const tasks = timelineKernels(this.timeline.rows, place);
    if (!tasks.length) return [];
    const lengths = tasks.map(({ row: { lane: { slices } }, slice }) => slices.end[slice] - slices.start[slice]);
    const time = basicsDuration(lengths.reduce((one, other) => one + other, 0));
    const [{ row: { lane }, slice }] = tasks;
    const lag = basicsDuration(lane.slices.start[slice] - place.row.lane.slices.start[place.slice]);
    return [["kernels", this.say("kernels_of", { n: tasks.length, time, lag })]];
  }

  /** Return what only tasks of the device have: cores, counters, and when they were launched. */
  factsOfTask({ slices, counters }, slice) {
    const facts = [];
    const used = [["cube_of", slices.cube[slice]], ["vector_of", slices.vector[slice]]].filter(([, n]) => n > 0);
    if (used.length) facts.push(["cores", used.map(([word, n]) => this.say(word, { n })).join(", ")]);
    const busy = counters.filter(([, column]) => column[slice] > 0 && column[slice] <= 100);
    if (busy.length) facts.push(["counters", busy.map(([name, column]) => `${name} ${column[slice]} %`).join(", ")]);
    const lag = slices.start[slice] - slices.launch[slice];
    if (!Number.isNaN(lag)) {
      const time = basicsDuration(Math.abs(lag));
      facts.push(["launched", this.say(lag < 0 ? "launched_after" : "launched_before", { time })]);
    }
    return facts;
  }

  /** Return a slice as one sentence to be heard. */
  spoken(place) {
    const [[, what], ...facts] = this.facts(place).filter(([label]) => !TIMELINE_BELOW.has(label));
    return [what, ...facts.map(([label, words]) => `${this.say(label)} ${words}`)].join("; ");
  }

  /** Return what is known of a lane where it has no slices: shares of the pixel, or of the bucket if that is more. */
  shares({ row, time }) {
    const { picture, lane } = row;
    const own = time - picture.shift;
    const scale = this.timeline.length / this.timeline.canvas.clientWidth;
    let [start, end] = [Math.max(own - scale / 2, 0), Math.min(own + scale / 2, picture.span)];
    if (scale < lane.bucket) {
      const bucket = Math.min(Math.floor(own / lane.bucket), lane.buckets - 1);
      [start, end] = [bucket * lane.bucket, (bucket + 1) * lane.bucket];
    }
    const told = lane.colours.map((colour, n) => [this.say(colour), lane.busy(n, start, end) / (end - start)]);
    const facts = told.filter(([, part]) => part >= 0.0005).map(([colour, part]) => [colour, basicsPercent(part)]);
    const span = this.say("in_bucket", { start: basicsDuration(start), end: basicsDuration(end) });
    return { title: lane.title, facts: facts.length ? facts : [[this.say("idle"), ""]], span };
  }

  /** Return all that is known of a slice as a list, of which the code line can be copied. */
  details(place) {
    const list = timelineElement("dl", "timeline-facts");
    for (const [label, words] of this.facts(place)) {
      const value = timelineElement("dd", "");
      value.append(timelineElement(label === "where" ? "code" : "span", "", words));
      if (label === "where") this.copyButton(value);
      const pair = timelineElement("div", "");
      pair.append(timelineElement("dt", "", this.say(label)), value);
      list.append(pair);
    }
    this.ways(list, place);
    return list;
  }

  /** Add buttons that lead from a task to the host event that asked for it, and from that to its tasks. */
  ways(list, place) {
    const { timeline } = this;
    const ways = timelineElement("div", "timeline-ways");
    const { start, end } = place.row.lane.slices;
    const { shift } = place.row.picture;
    timeline.button("show_it", null, () => timeline.closer(place), ways);
    const host = timeline.askedBy(place);
    if (host) {
      timeline.button("show_host", null, () => {
        timeline.bring(host.row, host.slice);
        timeline.choose(host);
      }, ways);
    }
    if (timeline.tasks.length) {
      const last = timeline.tasks.map(({ row, slice }) => row.lane.slices.end[slice]);
      const until = Math.max(end[place.slice], ...last);
      timeline.button("show_kernels", null, () => timeline.frame(start[place.slice] + shift, until + shift), ways);
    }
    list.append(ways);
  }

  copyButton(parent) {
    const code = parent.firstChild;
    const button = this.timeline.button("copy", null, async () => {
      const done = await pageCopy(code);
      button.textContent = this.say(done ? "copied" : "copy_failed");
      this.timeline.speak(button.textContent);
    }, parent);
  }

  // --- sums ----------------------------------------------------------------------------------------------------------

  /** Return the sum of a stretch: a table with a column per picture, and how exact it is. */
  sums({ start, end }) {
    const told = this.timeline.shown.filter((one) => one.lanes.length).map((picture) => {
      const [from, until] = [Math.max(start - picture.shift, 0), Math.min(end - picture.shift, picture.span)];
      const found = until > from ? picture.lanes[0].times(from, until) : { off: 0, times: new Map() };
      return { picture, length: Math.max(until - from, 0), ...found };
    });
    const table = this.sumTable(told, start, end);
    const off = Math.max(...told.map((one) => one.off));
    const exactness = off ? this.say("about", { time: basicsDuration(off) }) : this.say("to_the_ns");
    return [table, timelineElement("p", "timeline-quiet", exactness)];
  }

  sumTable(told, start, end) {
    const zero = this.timeline.extent.start;
    const times = { start: start - zero, end: end - zero, length: end - start };
    const words = Object.fromEntries(Object.entries(times).map(([name, ns]) => [name, basicsDuration(ns)]));
    const table = timelineElement("table", "");
    table.append(timelineElement("caption", "", this.say("selected", words)));
    const head = table.createTHead().insertRow();
    const add = (title) => { head.append(timelineElement("th", "", title)); };
    add(this.say("part"));
    for (const { picture } of told) {
      add(told.length > 1 ? picture.title : this.say("time"));
      add(this.say("share"));
    }
    for (const cell of head.cells) cell.scope = "col";
    const body = table.createTBody();
    for (const colour of told[0]?.picture.colours ?? []) {
      this.sumRow(body, colour, this.say(colour), told, ({ times }) => times.get(colour) ?? 0);
    }
    this.sumRow(body, "idle", this.say("nothing"), told, ({ times, length }) => {
      return Math.max(length - [...times.values()].reduce((one, other) => one + other, 0), 0);
    });
    return table;
  }

  /** Add a row of a sum, unless it is nothing everywhere; the times in ns are in ``data-ns``. */
  sumRow(body, colour, words, told, time) {
    const times = told.map(time);
    if (!times.some((one) => one >= 0.5)) return;
    const row = body.insertRow();
    row.dataset.part = colour;
    const title = timelineElement("th", "", words);
    title.scope = "row";
    row.append(title);
    for (const [n, one] of times.entries()) {
      const cell = timelineElement("td", "", basicsDuration(one));
      cell.dataset.ns = String(Math.round(one));
      row.append(cell, timelineElement("td", "", told[n].length ? basicsPercent(one / told[n].length) : "–"));
    }
  }

  // --- the box beside the pointer ------------------------------------------------------------------------------------

  /** Fill the box with what is known of a slice or of shares, and put it beside a point, where there is room. */
  showTip(place, x, y) {
    const { tip, plot, canvas } = this.timeline;
    const { title, facts, span } = place.slice >= 0 ? this.tipOf(place) : this.shares(place);
    const lines = facts.map(([label, words]) => {
      const line = timelineElement("span", "");
      line.append(timelineElement("span", "timeline-quiet", label), words ? ` ${words}` : "");
      return line;
    });
    tip.replaceChildren(timelineElement("b", "", title), ...lines, ...(span ? [timelineElement("i", "", span)] : []));
    tip.hidden = false;
    const room = plot.clientWidth - tip.offsetWidth;
    const right = canvas.offsetLeft + x + 14;
    const left = right > room ? canvas.offsetLeft + x - tip.offsetWidth - 14 : right;
    tip.style.left = `${Math.max(0, Math.min(left, room))}px`;
    tip.style.top = `${canvas.offsetTop + y + 14}px`;
  }

  tipOf(place) {
    const [[, title], ...facts] = this.facts(place).filter(([label]) => !TIMELINE_BELOW.has(label));
    return { title, facts: facts.map(([label, words]) => [this.say(label), words]) };
  }
}
