// The diagram: ends as vertical lines, packets as arrows, time downwards. Only the visible part is
// drawn, so the size of the capture does not matter.

const GUTTER = 112;
const HEAD_HEIGHT = 56;
const MAP_WIDTH = 14;
/** Where in its row an arrow begins, as a share of the height. */
const ARROW_AT = 0.62;
/** Above the first row and below the last. */
const MARGIN = 10;
/** Between two vertical lines: as little as this, so that many hosts fit the screen. */
const NARROWEST_GAP = 28;
/** Enough for addresses and notes side by side. */
const COMFORTABLE_GAP = 150;
/** The greatest difference in height between the two ends of an arrow. */
const STEEPEST = 72;
const ROW = { smallest: 0.004, labelled: 15, usual: 24, largest: 48 };
/** Browsers do not make elements of any height; beyond this the scroll bar is a scaled one. */
const TALLEST = 8e6;

const ladder = {
  scroller: document.getElementById("scroller"),
  spacer: document.getElementById("spacer"),
  canvas: document.getElementById("ladder"),
  /** Packets that pass the filter. */
  rows: new Uint32Array(0),
  /** "rows": every packet gets the same height. "time": distances are durations. */
  mode: "rows",
  rowHeight: ROW.usual,
  pixelsPerNanosecond: 1,
  scroll: 0,
  hovered: null,
  selected: null,
  /** Vertical lines of the packets shown, from left to right. */
  lifelines: [],
  /** Where among them each line of the analysis stands. */
  positions: new Uint16Array(analysis.lifelines.length),
  clock: new Float64Array(0),
};

const context = ladder.canvas.getContext("2d");
const onPaper = matchMedia("print");
let palette = {};
let size = { width: 0, height: 0 };

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const names = ["paper", "ink", "soft", "faint", "line", "request", "response", "manage", "odd", "bad", "band", "mark"];
  palette = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  palette.sans = style.getPropertyValue("--sans").trim();
  palette.mono = style.getPropertyValue("--mono").trim();
}

// Coordinates.

const rowsHeight = () => size.height - HEAD_HEIGHT;

function contentHeight() {
  const { rows, clock } = ladder;
  if (!rows.length) return 0;
  if (ladder.mode === "rows") return rows.length * ladder.rowHeight + 2 * MARGIN;
  return (clock[rows.length - 1] - clock[0]) * ladder.pixelsPerNanosecond + 2 * MARGIN + ROW.usual;
}

/** Where a row begins, from the top of the canvas. */
function topOf(row) {
  return HEAD_HEIGHT + contentTop(row) - ladder.scroll;
}

function contentTop(row) {
  if (ladder.mode === "rows") return MARGIN + row * ladder.rowHeight;
  return MARGIN + (ladder.clock[row] - ladder.clock[0]) * ladder.pixelsPerNanosecond;
}

/** The first row at or behind a place in the content. */
function rowAt(place) {
  if (ladder.mode === "rows") return Math.max(0, Math.floor((place - MARGIN) / ladder.rowHeight));
  const time = ladder.clock[0] + (place - MARGIN) / ladder.pixelsPerNanosecond;
  return lowerBound(ladder.clock, ladder.rows.length, time);
}

function lowerBound(sorted, length, value) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

/** Rows on the screen, with one more at each side. */
function visibleRows() {
  const first = Math.max(0, rowAt(ladder.scroll - ROW.largest - STEEPEST) - 1);
  const last = Math.min(ladder.rows.length, rowAt(ladder.scroll + rowsHeight()) + 2);
  return [first, last];
}

function lifelineX(lifeline) {
  return FIRST_LINE + ladder.positions[lifeline] * lifelineGap() - ladder.scroller.scrollLeft;
}

const FIRST_LINE = GUTTER + 74;

function lifelineGap() {
  const gaps = Math.max(1, ladder.lifelines.length - 1);
  return Math.max(NARROWEST_GAP, (size.width - MAP_WIDTH - 86 - FIRST_LINE) / gaps);
}

// Scrolling.

const largestScroll = () => Math.max(0, contentHeight() - rowsHeight());

function scrollTo(place) {
  ladder.scroll = Math.min(Math.max(0, place), largestScroll());
  const range = ladder.scroller.scrollHeight - ladder.scroller.clientHeight;
  const share = largestScroll() ? ladder.scroll / largestScroll() : 0;
  ladder.scroller.scrollTop = share * range;
  requestDraw();
}

/** The reader moved the scroll bar. */
function followScrollBar() {
  if (onPaper.matches) return;
  const range = ladder.scroller.scrollHeight - ladder.scroller.clientHeight;
  const place = range > 0 ? (ladder.scroller.scrollTop / range) * largestScroll() : 0;
  // Setting the scroll bar calls this function too. The bar has whole pixels only, so we keep our own
  // exact value.
  const pixel = range > 0 ? largestScroll() / range : 1;
  if (Math.abs(place - ladder.scroll) > Math.max(1, pixel)) ladder.scroll = place;
  requestDraw();
}

function fitSpacer() {
  const width = GUTTER + 160 + MAP_WIDTH + (ladder.lifelines.length - 1) * NARROWEST_GAP;
  ladder.spacer.style.height = `${Math.min(TALLEST, contentHeight() + HEAD_HEIGHT)}px`;
  ladder.spacer.style.width = `${width > size.width ? width : 0}px`;
}

const centreRow = (row) => scrollTo(contentTop(row) - rowsHeight() / 3);

function revealRow(row) {
  const top = contentTop(row);
  const visible = top >= ladder.scroll && top + ROW.usual <= ladder.scroll + rowsHeight();
  if (visible) requestDraw(); else centreRow(row);
}

// Zooming: the point below the pointer stays in place.

function zoom(factor, y = HEAD_HEIGHT + rowsHeight() / 2) {
  const place = ladder.scroll + y - HEAD_HEIGHT;
  const before = contentHeight();
  if (ladder.mode === "rows") {
    const smallest = Math.max(ROW.smallest, Math.min(ROW.usual, (rowsHeight() - 2 * MARGIN) / Math.max(1, ladder.rows.length)));
    ladder.rowHeight = Math.min(ROW.largest, Math.max(smallest, ladder.rowHeight * factor));
  } else {
    ladder.pixelsPerNanosecond = Math.min(1, Math.max(timeScaleToFit(), ladder.pixelsPerNanosecond * factor));
  }
  fitSpacer();
  const grown = before ? contentHeight() / before : 1;
  scrollTo(place * grown - (y - HEAD_HEIGHT));
}

function timeScaleToFit() {
  const { clock, rows } = ladder;
  const duration = rows.length ? clock[rows.length - 1] - clock[0] : 0;
  return Math.max(1, rowsHeight() - 2 * MARGIN - ROW.usual) / Math.max(1, duration);
}

function setMode(mode) {
  const chosen = ladder.selected === null ? null : rowOf(ladder.selected);
  const anchor = chosen ?? Math.min(rowAt(ladder.scroll + rowsHeight() / 3), ladder.rows.length - 1);
  ladder.mode = mode;
  ladder.pixelsPerNanosecond = Math.max(timeScaleToFit(), usualTimeScale());
  fitSpacer();
  measureMap();
  if (ladder.rows.length) centreRow(anchor);
}

/** Half of the packets have room for their label. */
function usualTimeScale() {
  const { clock, rows } = ladder;
  const step = Math.max(1, Math.floor(rows.length / 2000));
  const gaps = [];
  for (let row = step; row < rows.length; row += step) gaps.push((clock[row] - clock[row - step]) / step);
  gaps.sort((a, b) => a - b);
  return ROW.usual / Math.max(100, gaps[gaps.length >> 1] ?? 1);
}

// The filter's result.

function showRows(rows) {
  ladder.rows = rows;
  ladder.clock = new Float64Array(rows.length);
  let latest = -Infinity;
  for (let row = 0; row < rows.length; row++) {
    latest = Math.max(latest, packets.time[rows[row]]);
    ladder.clock[row] = latest;
  }
  ladder.lifelines = lifelinesOf(rows);
  ladder.lifelines.forEach((lifeline, position) => { ladder.positions[lifeline] = position; });
  ladder.hovered = null;
  if (ladder.mode === "time") ladder.pixelsPerNanosecond = Math.max(timeScaleToFit(), ladder.pixelsPerNanosecond);
  fitSpacer();
  measureMap();
}

function lifelinesOf(rows) {
  const used = new Set();
  for (const packet of rows) used.add(packets.connection[packet]);
  const lifelines = [...used].flatMap((index) => analysis.connections[index].ends.map((end) => end.lifeline));
  return [...new Set(lifelines)].sort((a, b) => a - b);
}

function rowOf(packet) {
  const row = lowerBound(ladder.rows, ladder.rows.length, packet);
  return ladder.rows[row] === packet ? row : null;
}

/** The packet below a place on the canvas, or null. */
function packetAt(x, y) {
  if (y < HEAD_HEIGHT || x > size.width - MAP_WIDTH || !ladder.rows.length) return null;
  const place = ladder.scroll + y - HEAD_HEIGHT;
  if (ladder.mode === "rows") return ladder.rows[rowAt(place)] ?? null;
  const next = rowAt(place - 8);
  const candidates = [next - 1, next, next + 1].filter((row) => row >= 0 && row < ladder.rows.length);
  const distance = (row) => Math.abs(contentTop(row) + 8 - place);
  candidates.sort((a, b) => distance(a) - distance(b));
  return distance(candidates[0]) < ROW.usual ? ladder.rows[candidates[0]] : null;
}
