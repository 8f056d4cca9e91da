// The page around timelines and matrices: its data, light and dark, copying, sorting and filtering tables, ways.
// Nothing here writes markup: texts are set as texts.

/** Rows of a table that are shown at first, as page.css has it, too; longer ones can be filtered. */
const PAGE_FEW = 10;

/** Return a sentence with its parameters put in. */
function pageSay(words, name, parameters = {}) {
  return basicsFill(words[name] ?? name, parameters);
}

/** Return a new button. */
function pageButton(label, kind) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = kind;
  button.textContent = label;
  return button;
}

/** Say something to those who do not see it. */
function pageTell(said) {
  document.getElementById("live").textContent = said;
}

/** Return what the page draws: pictures, matrices, and what their scripts say. */
async function pageData() {
  const bytes = basicsBytes(document.getElementById("npuperf-data").textContent.trim());
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// --- light and dark --------------------------------------------------------------------------------------------------

function pageTheme() {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  button.hidden = false;
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
  });
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    for (const closed of document.querySelectorAll("details:not([open])")) {
      closed.open = true;
      closed.dataset.printed = "";
    }
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    for (const opened of document.querySelectorAll("details[data-printed]")) {
      opened.open = false;
      delete opened.dataset.printed;
    }
  });
}

// --- copying ---------------------------------------------------------------------------------------------------------

/** Copy a text by the clipboard, or by selecting it where the browser allows no other way; tell whether it worked. */
async function pageCopy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    const selection = getSelection();
    selection.selectAllChildren(element);
    return document.execCommand("copy");
  }
}

function pagePastes(words) {
  for (const paste of document.querySelectorAll(".paste")) {
    const button = pageButton(words.page_copy, "copy");
    button.addEventListener("click", async () => {
      const done = await pageCopy(paste.querySelector("code"));
      const said = done ? words.page_copied : words.page_copy_failed;
      pageTell(said);
      button.textContent = said;
      setTimeout(() => (button.textContent = words.page_copy), 2000);
    });
    paste.append(button);
  }
}

// --- tables ----------------------------------------------------------------------------------------------------------

/** Return what a cell is sorted by: its number, else its text; what is unknown comes last either way. */
function pageKey(cell) {
  if (!cell || cell.textContent.trim() === "–") return null;
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  const bare = cell.textContent.replace(/\s/g, "");
  return /^[+-]?\d/.test(bare) && !Number.isNaN(Number(bare)) ? Number(bare) : cell.textContent;
}

function pageCompare(one, other, sign) {
  if (one === null || other === null) return (one === null) - (other === null);
  if (typeof one === "number" && typeof other === "number") return sign * (one - other);
  return sign * String(one).localeCompare(String(other), document.documentElement.lang || undefined, { numeric: true });
}

function pageSort(table, place, words) {
  const header = table.tHead.rows[0].cells[place];
  const numeric = table.classList.contains(`n${place + 1}`);
  const was = header.getAttribute("aria-sort");
  const up = was ? was === "descending" : !numeric;
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [pageKey(row.cells[place]), row]);
  rows.sort((one, other) => pageCompare(one[0], other[0], up ? 1 : -1));
  body.append(...rows.map(([, row]) => row));
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  pageFold(table);
  pageTell(pageSay(words, up ? "page_sorted_up" : "page_sorted_down", { column: header.textContent.trim() }));
}

/** Mark the rows behind the first few of those that the filter lets through. */
function pageFold(table) {
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    if (!row.classList.contains("out")) shown += 1;
    row.classList.toggle("over", shown > PAGE_FEW);
  }
  table.classList.add("folded");
  return shown;
}

function pageTools(table, words) {
  const rows = table.tBodies[0].rows;
  if (rows.length <= PAGE_FEW) return;
  const tools = document.createElement("div");
  tools.className = "tools";
  const title = table.caption.textContent;
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = pageSay(words, "page_filter", { table: title });
  input.setAttribute("aria-label", input.placeholder);
  const found = document.createElement("span");
  found.className = "quiet";
  found.setAttribute("aria-live", "polite");
  const more = pageButton("", "more");
  const label = () => {
    const open = table.classList.contains("open");
    more.textContent = open ? words.page_fewer : pageSay(words, "page_all", { n: rows.length });
    more.setAttribute("aria-expanded", String(open));
  };
  more.addEventListener("click", () => {
    table.classList.toggle("open");
    label();
  });
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of rows) row.classList.toggle("out", !row.textContent.toLowerCase().includes(wanted));
    const shown = pageFold(table);
    found.textContent = wanted ? pageSay(words, "page_filtered", { shown, all: rows.length }) : "";
  });
  label();
  tools.append(input, more, found);
  table.closest(".grid").querySelector("header").append(tools);
}

function pageTables(words) {
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const [place, header] of [...table.tHead.rows[0].cells].entries()) {
      const button = pageButton(header.textContent, "");
      button.addEventListener("click", () => pageSort(table, place, words));
      header.replaceChildren(button);
    }
    pageFold(table);
    pageTools(table, words);
  }
}

// --- going to a place of the timeline --------------------------------------------------------------------------------

function pageGo(target) {
  const [picture, start, end] = target.dataset.go.split(":").map(Number);
  document.dispatchEvent(new CustomEvent("npuperf:go", { detail: { picture, start, end } }));
}

function pagePlaces(words) {
  for (const button of document.querySelectorAll("button.go")) {
    button.textContent = words.page_go;
    button.hidden = false;
  }
  for (const row of document.querySelectorAll("tr[data-go]")) {
    const button = pageButton("", "go"); // the style draws a sign: it is no part of the cell's text
    button.dataset.go = row.dataset.go;
    delete row.dataset.go;
    button.title = words.page_go;
    button.setAttribute("aria-label", `${words.page_go}: ${row.cells[0].textContent}`);
    row.cells[0].prepend(button);
    row.cells[0].classList.add("goes");
  }
  // Columns and blocks of charts are for the pointer alone: their tables have buttons, and the timeline has keys.
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-go]");
    if (target) pageGo(target);
  });
}

/** Mark in the contents what is in view. */
function pageContents() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) seen[isIntersecting ? "add" : "delete"](target.id);
    const first = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) {
      if (id === first) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-10% 0px -70% 0px" });
  for (const id of links.keys()) watch.observe(document.getElementById(id));
}

/** Draw what is drawn by scripts; where a browser of before 2023 cannot unpack the data, say so in its place. */
async function pageDraw(words) {
  if (typeof DecompressionStream !== "function") {
    for (const line of document.querySelectorAll(".no-script")) {
      line.classList.remove("no-script");
      const shown = line.closest("figure")?.querySelector("canvas").getAttribute("aria-label") ?? "";
      line.textContent = `${shown} ${words.page_packed}`.trim();
    }
    return;
  }
  const data = await pageData();
  if (data.pictures.length) pagePlaces(words);
  const root = document.getElementById("timeline");
  if (root && data.pictures.length) timelineStart(root, data.pictures, data.old_pictures, data.words);
  for (const canvas of document.querySelectorAll("canvas[data-matrix]")) {
    matrixStart(canvas, data.matrices[Number(canvas.dataset.matrix)], data.words);
  }
}

async function pageStart() {
  pageTheme();
  pageContents();
  const words = JSON.parse(document.getElementById("live").dataset.words);
  pageTables(words);
  pagePastes(words);
  await pageDraw(words);
  document.documentElement.dataset.ready = "";
}

document.documentElement.classList.add("js");
pageStart().catch((error) => {
  document.documentElement.classList.remove("js");
  for (const table of document.querySelectorAll("table.sortable")) table.classList.add("folded");
  console.error(error);
});
