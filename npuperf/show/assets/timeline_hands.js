// What keys, wheel, mouse and fingers do to a timeline.

/** How much of its length a step of the keys moves the view; how much a step zooms. */
const TIMELINE_PAN = 0.15;
const TIMELINE_ZOOM = 1.4;
/** A pointer that moved less has not dragged, px. */
const TIMELINE_STILL = 4;
/** A turn of the wheel that scrolls the page goes on doing so for so long, ms. */
const TIMELINE_SCROLLING = 250;
/** A wheel that turned so far, px, has doubled or halved what is in view; more at once counts as this most. */
const TIMELINE_TURN = 250;
const TIMELINE_MOST_TURN = 300;
/** What lines and pages are in pixels, by the mode of a wheel's event. */
const TIMELINE_WHEEL_UNITS = [1, 30, 300];

/** Return what each key does. */
function timelineKeys(timeline) {
  const left = () => timeline.pan(-TIMELINE_PAN);
  const right = () => timeline.pan(TIMELINE_PAN);
  const closer = () => timeline.zoom(1 / TIMELINE_ZOOM);
  const farther = () => timeline.zoom(TIMELINE_ZOOM);
  const whole = () => timeline.whole();
  return {
    ArrowLeft: left, a: left, ArrowRight: right, d: right,
    "+": closer, "=": closer, w: closer, "-": farther, _: farther, s: farther, 0: whole, Home: whole,
    t: () => timeline.toTypical(), "[": () => timeline.toExact(-1), "]": () => timeline.toExact(1),
    n: () => timeline.step(1), p: () => timeline.step(-1),
    ArrowDown: () => timeline.climb(1), ArrowUp: () => timeline.climb(-1),
    Enter: () => timeline.choose(timeline.cursor), z: () => timeline.closer(timeline.cursor),
    x: () => timeline.select(timeline.view.start, timeline.view.end), m: () => timeline.hands.measure(), Escape: () => timeline.clear(),
    "?": () => timeline.toggleHelp(),
  };
}

class TimelineHands {
  constructor(timeline) {
    this.timeline = timeline;
    this.keys = timelineKeys(timeline);
    /** Where each pointer that is down is, px from the left. */
    this.pointers = new Map();
    this.drag = null;
    /** While two clicks measure what lies between: the time of the first, null before it; undefined at other times. */
    this.measured = undefined;
    this.scrolled = -Infinity;
    const { canvas, ruler } = timeline;
    canvas.addEventListener("keydown", (event) => this.key(event));
    for (const one of [canvas, ruler]) {
      one.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      one.addEventListener("pointerdown", (event) => this.press(event));
      one.addEventListener("pointermove", (event) => this.move(event));
      one.addEventListener("pointerup", (event) => this.release(event));
      one.addEventListener("pointercancel", (event) => this.release(event, true));
    }
    canvas.addEventListener("pointerleave", () => timeline.pointAt(null));
    canvas.addEventListener("blur", () => timeline.pointAt(null));
    canvas.addEventListener("dblclick", (event) => timeline.closer(timeline.under(...this.placeOf(event))));
    addEventListener("scroll", () => { this.scrolled = performance.now(); }, { passive: true });
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const act = this.keys[event.key] ?? this.keys[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** Begin to measure, or leave it. */
  measure(on = this.measured === undefined) {
    this.measured = on ? null : undefined;
    const { ruling } = this.timeline;
    ruling.setAttribute("aria-pressed", String(on));
    if (on) this.timeline.speak(this.timeline.say("help_measure"));
  }

  /** Take a click while measuring: at the end of a slice nearby, else where it is. */
  took(x, y) {
    const { timeline } = this;
    const time = timeline.edgeNear(x, y);
    if (this.measured === null) {
      this.measured = time;
      timeline.select(time, time);
      return;
    }
    timeline.select(this.measured, time);
    timeline.speak(timeline.sum.querySelector("caption").textContent);
    this.measure(false);
  }

  placeOf(event) {
    const box = this.timeline.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  /** Zoom at the pointer, or move; what has no effect, and what began as scrolling the page, is left to the page. */
  wheel(event) {
    const { timeline } = this;
    const unit = TIMELINE_WHEEL_UNITS[event.deltaMode];
    const level = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const sideways = unit * (event.shiftKey ? event.deltaX + event.deltaY : level ? event.deltaX : 0);
    const turned = sideways ? 0 : event.deltaY * unit;
    const meant = event.ctrlKey || event.shiftKey;
    if (!meant && performance.now() - this.scrolled < TIMELINE_SCROLLING) return;
    if (!meant && timeline.isWhole && (sideways || turned > 0)) return;
    event.preventDefault();
    if (sideways) {
      timeline.pan(sideways / timeline.canvas.clientWidth);
    } else {
      const most = Math.max(-TIMELINE_MOST_TURN, Math.min(TIMELINE_MOST_TURN, turned));
      timeline.zoom(2 ** (most / TIMELINE_TURN), timeline.timeAt(this.placeOf(event)[0]));
    }
  }

  press(event) {
    if (event.button !== 0) return;
    const { view, ruler } = this.timeline;
    const [x, y] = this.placeOf(event);
    event.currentTarget.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, x);
    if (this.pointers.size === 2) {
      this.drag = { kind: "pinch", ...this.fingers() };
    } else if (this.pointers.size === 1) {
      const kind = event.shiftKey || event.currentTarget === ruler ? "select" : "pan";
      this.drag = { kind, x, y, start: view.start, end: view.end, time: this.timeline.timeAt(x), moved: false };
    }
  }

  /** Return how far two fingers are apart, and the time between them. */
  fingers() {
    const [one, other] = this.pointers.values();
    return { apart: Math.max(Math.abs(one - other), 1), time: this.timeline.timeAt((one + other) / 2) };
  }

  move(event) {
    const { timeline, drag } = this;
    const [x, y] = this.placeOf(event);
    if (!this.pointers.has(event.pointerId)) {
      timeline.pointAt(event.currentTarget === timeline.canvas ? timeline.under(x, y) : null, x, y);
      if (typeof this.measured === "number") timeline.select(this.measured, timeline.edgeNear(x, y));
      return;
    }
    this.pointers.set(event.pointerId, x);
    if (drag.kind === "pinch") {
      this.pinch();
      return;
    }
    drag.moved ||= Math.abs(x - drag.x) >= TIMELINE_STILL;
    if (!drag.moved) return;
    timeline.pointAt(null);
    if (drag.kind === "select") {
      timeline.select(drag.time, timeline.timeAt(x));
    } else {
      const moved = ((drag.x - x) / timeline.canvas.clientWidth) * (drag.end - drag.start);
      timeline.look(drag.start + moved, drag.end + moved);
    }
  }

  /** Keep the time between two fingers there, and as much between them as there was. */
  pinch() {
    const { timeline, drag } = this;
    if (this.pointers.size < 2) return;
    const [one, other] = this.pointers.values();
    const { apart } = this.fingers();
    const length = (timeline.length * drag.apart) / apart;
    const start = drag.time - ((one + other) / 2 / timeline.canvas.clientWidth) * length;
    timeline.look(start, start + length);
    drag.apart = apart;
  }

  release(event, cancelled = false) {
    const { timeline, drag } = this;
    this.pointers.delete(event.pointerId);
    if (this.pointers.size > 1) this.drag = { kind: "pinch", ...this.fingers() }; // one of three fingers is lifted
    if (!drag || this.pointers.size) return;
    this.drag = null;
    if (cancelled || drag.kind === "pinch" || drag.moved) return;
    timeline.canvas.focus({ preventScroll: true });
    if (this.measured !== undefined) {
      this.took(drag.x, drag.y);
      return;
    }
    const place = event.currentTarget === timeline.canvas ? timeline.under(drag.x, drag.y) : null;
    timeline.choose(place);
    if (event.pointerType === "touch") timeline.pointAt(place, drag.x, drag.y);
  }
}
