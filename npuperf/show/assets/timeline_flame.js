// The flame view: what host threads did in a stretch, equal stacks put together, as wide as they take time.

/** Stacks that are drawn: those that take most time, and no narrower than this part of the whole. */
const TIMELINE_FLAMES = 600;
const TIMELINE_THINNEST = 0.0015;
const TIMELINE_STORY = 18;

/** A stack of the tree: its name, colour, ns, and what is inside. */
function timelineNode(name, colour) {
  return { name, colour, time: 0, inside: new Map() };
}

/** Return what is inside a node by its name, a new one if it is the first. */
function timelineInside(node, name, colour) {
  if (!node.inside.has(name)) node.inside.set(name, timelineNode(name, colour));
  return node.inside.get(name);
}

/** Add the stacks of a lane in a stretch to a tree. */
function timelineGrow(root, lane, start, end) {
  const { slices, picture } = lane;
  const open = [];
  const [first, last] = slices.range(start, end);
  for (let i = first; i < last; i += 1) {
    const time = Math.min(slices.end[i], end) - Math.max(slices.start[i], start);
    if (time <= 0) continue;
    while (open.length && slices.end[open[open.length - 1].slice] < slices.end[i]) open.pop();
    const around = open.length ? open[open.length - 1].node : root;
    const node = timelineInside(around, picture.name(slices.name[i]), picture.colours[slices.colour[i]]);
    node.time += time;
    if (around === root) root.time += time;
    open.push({ slice: i, node });
  }
}

/** Return the boxes of a tree: node, depth, and from where to where, as parts of the whole; the widest ones. */
function timelineBoxes(root) {
  const boxes = [];
  const add = (node, depth, left) => {
    const width = node.time / Math.max(root.time, 1);
    if (width < TIMELINE_THINNEST) return;
    boxes.push({ node, depth, left, width });
    let at = left;
    for (const one of [...node.inside.values()].sort((a, b) => b.time - a.time)) {
      add(one, depth + 1, at);
      at += one.time / Math.max(root.time, 1);
    }
  };
  add(root, 0, 0);
  return boxes.sort((a, b) => b.width - a.width).slice(0, TIMELINE_FLAMES);
}

/** Shows the flame view of a timeline's selection, or of what is in view; a click on a box makes it the whole. */
class TimelineFlame {
  constructor(timeline) {
    this.timeline = timeline;
    this.box = timelineElement("details", "timeline-flame");
    this.about = timelineElement("p", "timeline-quiet");
    this.boxes = timelineElement("div", "timeline-flames");
    this.box.append(timelineElement("summary", "", timeline.say("flame")), this.about, this.boxes);
    this.box.open = timeline.pictures.every(({ lanes }) => lanes.every(({ kind }) => kind === "host")); // all there is
    this.box.addEventListener("toggle", () => this.update());
  }

  /** Show what is in view now, once it has stayed so for a moment. */
  soon() {
    if (!this.box.open) return;
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.update(), 150);
  }

  update() {
    if (!this.box.open) return;
    const { timeline } = this;
    const { start, end } = timeline.selection ?? timeline.view;
    const root = timelineNode(timeline.say("flame_all"), "idle");
    for (const picture of timeline.shown) {
      for (const lane of picture.lanes.filter(({ kind }) => kind === "host")) {
        const name = timeline.shown.length > 1 ? `${picture.title}, ${lane.title}` : lane.title;
        const thread = timelineInside(root, name, "host_op");
        for (const one of picture.exact) {
          const [from, until] = [Math.max(start - picture.shift, one.start), Math.min(end - picture.shift, one.end)];
          if (until > from) timelineGrow(thread, lane, from, until);
        }
        root.time += thread.time;
      }
    }
    const zero = timeline.extent.start;
    const words = { start: basicsDuration(start - zero), end: basicsDuration(end - zero) };
    this.about.textContent = timeline.say(root.time ? "flame_about" : "flame_none", words);
    this.show(root, root);
  }

  /** Draw a tree, of ``whole`` the part that was clicked. */
  show(root, whole) {
    const { timeline } = this;
    const boxes = root.time ? timelineBoxes(root) : [];
    this.boxes.style.height = `${(1 + Math.max(...boxes.map(({ depth }) => depth), 0)) * TIMELINE_STORY}px`;
    this.boxes.replaceChildren(...boxes.sort((a, b) => a.depth - b.depth || a.left - b.left).map((one) => {
      const { node, depth, left, width } = one;
      const button = timelineElement("button", "timeline-flame-box", node.name);
      button.type = "button";
      const { style } = button;
      [style.left, style.width, style.top] = [`${100 * left}%`, `${100 * width}%`, `${depth * TIMELINE_STORY}px`];
      style.background = `color-mix(in srgb, var(--${node.colour}) ${18 + (timelineTint(node.name) % 4) * 7}%, var(--paper))`;
      const parts = { name: node.name, time: basicsDuration(node.time), share: basicsPercent(node.time / whole.time) };
      button.title = timeline.say("flame_box", parts);
      button.addEventListener("click", () => this.show(node === root ? whole : node, whole));
      return button;
    }));
  }
}

/** Return a number that names alike have in common. */
function timelineTint(name) {
  let sum = 0;
  for (let i = 0; i < name.length; i += 1) sum = (31 * sum + name.charCodeAt(i)) % 9973;
  return sum;
}
