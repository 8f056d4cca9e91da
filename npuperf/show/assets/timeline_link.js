// Links to a place: the address holds what is in view, which devices are shown, and what is chosen or selected.
//
// "#timeline=<start>:<end>", ns of the view; "&show=<devices>" by their places; "&sum=<start>:<end>"; "&at=<device>:
// <lane>:<start>:<depth>" of the slice that is chosen.

/** The address follows what is looked at once that has stayed so for a moment, ms. */
const TIMELINE_STAYED = 400;
const TIMELINE_LINK = "#timeline=";

class TimelineLink {
  constructor(timeline) {
    this.timeline = timeline;
    addEventListener("hashchange", () => this.follow());
  }

  /** Return what is looked at, as the end of an address; empty where that is everything and nothing is chosen. */
  written() {
    const { timeline } = this;
    const { view, selection, chosen, pictures, shown } = timeline;
    if (timeline.isWhole && !selection && !chosen) return "";
    const span = ({ start, end }) => `${Math.round(start)}:${Math.round(end)}`;
    const parts = [`${TIMELINE_LINK}${span(view)}`];
    if (pictures.length > 1) parts.push(`show=${shown.map((one) => pictures.indexOf(one)).join(",")}`);
    if (selection) parts.push(`sum=${span(selection)}`);
    if (chosen) {
      const { row: { picture, lane }, slice } = chosen;
      const place = [pictures.indexOf(picture), picture.lanes.indexOf(lane)];
      parts.push(`at=${[...place, lane.slices.start[slice], lane.slices.depth[slice]].join(":")}`);
    }
    return parts.join("&");
  }

  /** Write it into the address, soon. */
  soon() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.write(), TIMELINE_STAYED);
  }

  write() {
    const link = this.written();
    const mine = location.hash.startsWith(TIMELINE_LINK);
    if (link === location.hash || (!link && !mine)) return;
    history.replaceState(null, "", link || location.href.split("#")[0]);
  }

  /** Show what the address says; tell whether it says anything. What it says and there is not is left out. */
  follow() {
    if (!location.hash.startsWith(TIMELINE_LINK)) return false;
    const { timeline } = this;
    const told = new Map(location.hash.slice(1).split("&").map((part) => part.split("=")));
    const numbers = (name, sign = ":") => (told.get(name) ?? "").split(sign).filter(Boolean).map(Number);
    const known = (some, count) => some.length === count && some.every(Number.isFinite);
    const shown = new Set(numbers("show", ","));
    const pictures = timeline.pictures.filter((_, place) => shown.has(place));
    if (pictures.length) timeline.shown = pictures;
    timeline.arrange();
    timeline.clear();
    const view = numbers("timeline");
    if (known(view, 2) && view[1] > view[0]) timeline.look(...view);
    const sum = numbers("sum");
    if (known(sum, 2)) timeline.select(...sum);
    const at = numbers("at");
    const lane = known(at, 4) ? timeline.pictures[at[0]]?.lanes[at[1]] : null;
    if (lane) {
      if (timeline.closed.delete(lane.picture)) timeline.arrange();
      const row = timeline.rows.find((one) => one.lane === lane);
      timeline.choose(row ? { row, slice: lane.slices.at(at[2], at[3]) } : null);
    }
    timeline.root.scrollIntoView({ block: "start" });
    return true;
  }

  /** Copy the address. */
  async copy(button) {
    this.write();
    const text = timelineElement("span", "timeline-live", location.href);
    this.timeline.box.append(text);
    const done = await pageCopy(text);
    text.remove();
    const said = this.timeline.say(done ? "copied" : "copy_failed");
    this.timeline.speak(said);
    button.textContent = said;
    setTimeout(() => (button.textContent = this.timeline.say("link")), 2000);
  }
}
