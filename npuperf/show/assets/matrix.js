/* Heat maps: cells on a canvas, a cursor for keys and pointer, what the cell under it says, layers to choose from. */

const MatrixCodes = { missing: 0, zero: 1, first: 2, last: 255 };
const MatrixSizes = { label: 12, gap: 6, widest: 44, highest: 22, height: 560 };

/** Shows a matrix on a canvas. `matrix` is one of the page's data, `words` the texts of the scripts. */
function matrixStart(canvas, matrix, words) {
  return new MatrixPicture(canvas, matrix, words);
}

/** A colour as [red, green, blue], whatever way it is written. */
function matrixColour(context, written) {
  context.fillStyle = "#000";
  context.fillStyle = written.trim();
  const found = context.fillStyle;
  return [1, 3, 5].map((at) => parseInt(found.slice(at, at + 2), 16));
}

/** A time, a share or a rate as the report writes it. */
function matrixValue(value, unit, words) {
  if (unit === "share") return basicsPercent(value);
  if (unit === "gb_s") return basicsFill(words.matrix_rate, { n: String(Number(value.toFixed(2))) });
  return basicsDuration(value);
}

/** The least round number that is no smaller than `least`: one of `round`, or one of them times 10 (16 of ranks), … */
function matrixStep(least, round) {
  const base = round.includes(8) ? 16 : 10;
  for (let power = 1; ; power *= base) {
    const found = round.find((one) => one * power >= least);
    if (found) return found * power;
  }
}

class MatrixPicture {
  constructor(canvas, matrix, words) {
    Object.assign(this, { canvas, matrix, words, layer: 0, row: -1, column: -1 });
    this.rows = matrix.rows.length;
    this.columns = matrix.columns.length;
    this.codes = matrix.layers.map((layer) => basicsBytes(layer.codes));
    this.marked = new Set(matrix.marked);
    this.build();
    this.listen();
    this.draw();
  }

  /** Puts the canvas in a box of its own that scrolls, with layers above it and the scale below. */
  build() {
    this.whole = this.make("div", "matrix");
    this.box = this.make("div", "matrix-box");
    this.tip = this.make("div", "matrix-tip");
    this.tip.hidden = true;
    this.tip.setAttribute("aria-hidden", "true");
    this.said = this.make("p", "matrix-said");
    this.said.setAttribute("role", "status");
    this.scale = this.make("div", "matrix-scale");
    this.canvas.replaceWith(this.whole);
    this.box.append(this.canvas);
    if (this.matrix.layers.length > 1) this.whole.append(this.chooser());
    this.whole.append(this.box, this.scale, this.said, this.tip);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.say();
  }

  make(name, className, text = "") {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text;
    return made;
  }

  chooser() {
    const group = this.make("fieldset", "matrix-layers");
    group.append(this.make("legend", "", this.words.matrix_layers));
    const name = `matrix-${this.canvas.dataset.matrix || "0"}`;
    this.matrix.layers.forEach((layer, i) => {
      const label = this.make("label", "");
      const input = this.make("input", "");
      Object.assign(input, { type: "radio", name, value: String(i), checked: i === 0 });
      input.addEventListener("change", () => this.choose(i));
      label.append(input, layer.name);
      group.append(label);
    });
    return group;
  }

  choose(i) {
    this.layer = i;
    this.say();
    this.draw();
    if (this.row >= 0) this.tell();
  }

  /** Says what the picture shows to those who do not see it. */
  say() {
    const about = `${this.matrix.title}. ${this.matrix.layers[this.layer].said}. ${this.words.matrix_keys}`;
    this.canvas.setAttribute("aria-label", about);
  }

  listen() {
    const again = () => this.draw();
    new ResizeObserver(() => { if (this.box.clientWidth !== this.room) this.draw(); }).observe(this.box);
    new MutationObserver(again).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", again);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("blur", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** Decides where everything is, in device pixels, so that every cell is as wide as its neighbours. */
  measure(context) {
    const ratio = window.devicePixelRatio || 1;
    this.room = this.box.clientWidth;
    this.ratio = ratio;
    this.font = `${Math.round(MatrixSizes.label * ratio)}px ${getComputedStyle(this.canvas).fontFamily || "sans-serif"}`;
    context.font = this.font;
    const widest = Math.max(...this.matrix.rows.map((label) => context.measureText(label).width));
    this.left = Math.ceil(Math.min(widest, (this.room * ratio) / 3) + MatrixSizes.gap * ratio);
    const across = Math.floor((this.room * ratio - this.left - 1) / this.columns);
    const down = Math.floor((MatrixSizes.height * ratio) / this.rows);
    this.wide = Math.max(Math.round(ratio), Math.min(Math.round(MatrixSizes.widest * ratio), across));
    this.high = Math.max(Math.round(ratio), Math.min(Math.round(MatrixSizes.highest * ratio), down));
    const beyond = Math.max(MatrixSizes.label * ratio - this.high, 0) / 2; // of the first label, above its thin row
    this.top = Math.ceil((MatrixSizes.label + MatrixSizes.gap) * ratio + beyond);
    const title = this.left + context.measureText(this.matrix.column).width + MatrixSizes.gap * ratio;
    this.canvas.width = Math.ceil(Math.max(this.left + this.wide * this.columns + 1, title));
    this.canvas.height = this.top + this.high * this.rows + Math.ceil(2 * (MatrixSizes.label + MatrixSizes.gap) * ratio);
    this.canvas.style.width = `${this.canvas.width / ratio}px`;
    this.canvas.style.height = `${this.canvas.height / ratio}px`;
  }

  draw() {
    const context = this.canvas.getContext("2d");
    this.measure(context);
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name) || "#888";
    this.colours = {
      low: matrixColour(context, of("--heat-low")), high: matrixColour(context, of("--heat-high")),
      alike: matrixColour(context, of("--control")), zero: matrixColour(context, of("--raised")), missing: matrixColour(context, of("--paper")),
      ink: of("--ink"), muted: of("--muted"), line: of("--line"), mark: of("--heat-mark"),
    };
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.drawCells(context);
    this.drawLabels(context);
    this.drawMarks(context);
    this.drawScale();
  }

  colourOf(code) {
    if (code === MatrixCodes.missing) return this.colours.missing;
    if (code === MatrixCodes.zero) return this.colours.zero;
    if (this.matrix.layers[this.layer].alike) return this.colours.alike;
    const part = (code - MatrixCodes.first) / (MatrixCodes.last - MatrixCodes.first);
    return this.colours.low.map((low, i) => Math.round(low + part * (this.colours.high[i] - low)));
  }

  drawCells(context) {
    const small = document.createElement("canvas");
    small.width = this.columns;
    small.height = this.rows;
    const pixels = new ImageData(this.columns, this.rows);
    const table = Array.from({ length: 256 }, (_, code) => this.colourOf(code));
    this.codes[this.layer].forEach((code, i) => {
      const [red, green, blue] = table[code];
      pixels.data.set([red, green, blue, 255], 4 * i);
    });
    small.getContext("2d").putImageData(pixels, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, this.left, this.top, this.wide * this.columns, this.high * this.rows);
    if (Math.min(this.wide, this.high) >= 6) this.drawMissing(context);
    context.strokeStyle = this.colours.line;
    context.strokeRect(this.left - 0.5, this.top - 0.5, this.wide * this.columns + 1, this.high * this.rows + 1);
  }

  /** Strikes out cells of which nothing is known, so that they look unlike any value. */
  drawMissing(context) {
    context.strokeStyle = this.colours.line;
    context.lineWidth = 1;
    context.beginPath();
    this.codes[this.layer].forEach((code, i) => {
      if (code !== MatrixCodes.missing) return;
      const [x, y] = this.corner(Math.floor(i / this.columns), i % this.columns);
      context.moveTo(x + 2, y + this.high - 2);
      context.lineTo(x + this.wide - 2, y + 2);
    });
    context.stroke();
  }

  corner(row, column) {
    return [this.left + column * this.wide, this.top + row * this.high];
  }

  drawLabels(context) {
    const line = (MatrixSizes.label + MatrixSizes.gap) * this.ratio;
    context.font = this.font;
    context.fillStyle = this.colours.muted;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillText(this.matrix.row, 0, line / 2);
    context.textAlign = "right";
    const each = matrixStep(Math.ceil((MatrixSizes.label + 2) * this.ratio / this.high), [1, 2, 4, 8]);
    for (let row = 0; row < this.rows; row += each) {
      const middle = this.top + (row + 0.5) * this.high;
      context.fillText(this.matrix.rows[row], this.left - MatrixSizes.gap * this.ratio / 2, middle, this.left);
    }
    const below = this.top + this.rows * this.high + line / 2;
    const widest = Math.max(...this.matrix.columns.map((label) => context.measureText(label).width));
    const step = matrixStep(Math.ceil((widest + MatrixSizes.gap * this.ratio) / this.wide), [1, 2, 5]);
    context.textAlign = step > 1 ? "left" : "center";
    for (let column = 0; column < this.columns; column += step) {
      const [x] = this.corner(0, column);
      const label = this.matrix.columns[column];
      if (step > 1 && x + context.measureText(label).width > this.canvas.width) break; // it would be cut
      context.fillText(label, step > 1 ? x : x + this.wide / 2, below);
    }
    context.textAlign = "left";
    context.fillText(this.matrix.column, this.left, below + line);
  }

  /** Frames the marked cells and the one under the cursor. */
  drawMarks(context) {
    context.lineWidth = Math.max(2 * this.ratio, 2);
    context.strokeStyle = this.colours.mark;
    for (const cell of this.marked) this.frame(context, Math.floor(cell / this.columns), cell % this.columns);
    if (this.row < 0) return;
    context.strokeStyle = this.colours.ink;
    this.frame(context, this.row, this.column);
  }

  frame(context, row, column) {
    const [x, y] = this.corner(row, column);
    const inset = context.lineWidth / 2;
    const least = 4 * this.ratio; // a frame around a cell of one pixel is larger than it
    context.strokeRect(x + inset - (this.wide < least ? least / 2 : 0), y + inset - (this.high < least ? least / 2 : 0),
      Math.max(this.wide - 2 * inset, least), Math.max(this.high - 2 * inset, least));
  }

  drawScale() {
    const layer = this.matrix.layers[this.layer];
    const ramp = this.make("i", "matrix-ramp");
    const css = (colour) => `rgb(${colour.join(",")})`;
    ramp.style.background = `linear-gradient(to right, ${css(this.colours.low)}, ${css(this.colours.high)})`;
    const entry = (...parts) => {
      const made = this.make("span", "");
      made.append(...parts);
      return made;
    };
    const codes = this.codes[this.layer];
    const square = (colour) => {
      const made = this.make("i", "matrix-square");
      made.style.background = colour;
      return made;
    };
    const parts = [layer.alike
      ? entry(square(css(this.colours.alike)), this.words.matrix_alike) : entry(layer.ends[0], ramp, layer.ends[1])];
    if (codes.includes(MatrixCodes.zero)) parts.push(entry(square(css(this.colours.zero)), this.words.matrix_nothing));
    if (codes.includes(MatrixCodes.missing)) {
      const line = this.colours.line;
      const struck = `linear-gradient(to bottom right, transparent 45%, ${line} 45%, ${line} 55%, transparent 55%)`;
      parts.push(entry(square(struck), this.words.matrix_missing));
    }
    if (this.marked.size) {
      const framed = square("transparent");
      framed.style.border = `2px solid ${this.colours.mark}`;
      parts.push(entry(framed, this.matrix.marks));
    }
    this.scale.replaceChildren(...parts);
  }

  /** The cell at a place of the window, or null beside all cells. */
  at(event) {
    const place = this.canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - place.left) * this.ratio - this.left) / this.wide);
    const row = Math.floor(((event.clientY - place.top) * this.ratio - this.top) / this.high);
    const inside = row >= 0 && row < this.rows && column >= 0 && column < this.columns;
    return inside ? { row, column } : null;
  }

  /** What a cell says: its row, its column and its value. */
  sentence(row, column) {
    const layer = this.matrix.layers[this.layer];
    const cell = row * this.columns + column;
    const values = { row: this.matrix.row, one: this.matrix.rows[row], column: this.matrix.column,
      other: this.matrix.columns[column], value: this.valueOf(layer, this.codes[this.layer][cell], cell) };
    const said = basicsFill(this.words.matrix_cell, values);
    return this.marked.has(cell) ? `${said} (${this.matrix.marks})` : said;
  }

  valueOf(layer, code, cell) {
    if (code === MatrixCodes.missing) return this.words.matrix_missing;
    if (layer.texts.length) return layer.texts[cell];
    if (code === MatrixCodes.zero) return matrixValue(0, layer.unit, this.words);
    if (layer.least === layer.most || code === MatrixCodes.last) return layer.ends[1];
    const part = (code - MatrixCodes.first) / (MatrixCodes.last - MatrixCodes.first);
    const value = matrixValue(layer.least + part * (layer.most - layer.least), layer.unit, this.words);
    return basicsFill(this.words.matrix_about, { value });
  }

  hover(event) {
    const cell = this.at(event);
    this.tip.hidden = cell === null;
    this.canvas.style.cursor = cell && this.placeOf(cell.row, cell.column) ? "pointer" : "";
    if (cell) this.showTip(cell.row, cell.column);
  }

  /** Shows what a cell says beside it, inside of the picture. */
  showTip(row, column) {
    this.tip.textContent = this.sentence(row, column);
    this.tip.hidden = false;
    const [x, y] = this.corner(row, column).map((at) => at / this.ratio);
    const place = this.canvas.getBoundingClientRect();
    const whole = this.whole.getBoundingClientRect();
    const right = x + place.left - whole.left + this.wide / this.ratio + 8;
    const left = Math.min(right, whole.width - this.tip.offsetWidth);
    this.tip.style.left = `${Math.max(left, 0)}px`;
    this.tip.style.top = `${y + place.top - whole.top + this.high / this.ratio + 6}px`;
  }

  placeOf(row, column) {
    return this.matrix.places[String(row * this.columns + column)];
  }

  click(event) {
    const cell = this.at(event);
    if (!cell) return;
    this.move(cell.row, cell.column);
    this.go();
  }

  /** Goes to where the cell under the cursor is in the timeline. */
  go() {
    const place = this.placeOf(this.row, this.column);
    if (!place) return;
    const [picture, start, end] = place.split(":").map(Number);
    document.dispatchEvent(new CustomEvent("npuperf:go", { detail: { picture, start, end } }));
  }

  key(event) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
      Home: [0, -Infinity], End: [0, Infinity], PageUp: [-10, 0], PageDown: [10, 0] };
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape") {
      this.tip.hidden = true;
    } else if (event.key === "Enter") {
      if (this.row >= 0) this.go();
    } else if (event.key in steps) {
      const [down, right] = this.row < 0 ? [0, 0] : steps[event.key];
      event.preventDefault();
      this.move(Math.max(this.row, 0) + down, Math.max(this.column, 0) + right);
      this.showTip(this.row, this.column);
    }
  }

  move(row, column) {
    this.row = Math.min(Math.max(row, 0), this.rows - 1);
    this.column = Math.min(Math.max(column, 0), this.columns - 1);
    this.draw();
    this.tell();
  }

  tell() {
    this.said.textContent = this.sentence(this.row, this.column);
  }
}
