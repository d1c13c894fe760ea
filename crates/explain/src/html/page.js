// Connects the parts: user input and its effects.

function applyFilter() {
  showRows(passing());
  part("shown").textContent = ladder.rows.length === packets.count
    ? `${grouped(packets.count)} packets` : `${grouped(ladder.rows.length)} of ${grouped(packets.count)} packets`;
  document.body.classList.toggle("filtered", ladder.rows.length !== packets.count);
  fillStatistics();
  const row = ladder.selected === null ? null : rowOf(ladder.selected);
  if (row === null) scrollTo(0); else centreRow(row);
  if (plot.view !== "ladder") resetPlot();
  rememberView();
}

function clearFilter() {
  filter.connection = filter.opcode = null;
  filter.choices.clear();
  filter.text = part("search").value = part("opcode").value = "";
  for (const button of part("choices").children) button.setAttribute("aria-pressed", false);
  markConnection();
}

function selectPacket(packet) {
  ladder.selected = packet;
  showPacket(packet);
  rememberView();
  if (packet === null) return requestDraw();
  if (rowOf(packet) === null) { clearFilter(); applyFilter(); }
  revealRow(rowOf(packet));
}

function jumpToAnomaly(index) {
  const { packet } = analysis.anomalies[index];
  chosenAnomaly = index;
  markAnomaly(index);
  if (packet !== null) selectPacket(packet);
}

let chosenAnomaly = null;

function stepAnomaly(step) {
  if (!analysis.anomalies.length) return;
  const next = chosenAnomaly === null ? (step > 0 ? 0 : analysis.anomalies.length - 1) : chosenAnomaly + step;
  jumpToAnomaly(Math.min(Math.max(0, next), analysis.anomalies.length - 1));
}

function stepPacket(step) {
  if (!ladder.rows.length) return;
  const row = ladder.selected === null ? null : rowOf(ladder.selected);
  const next = row === null ? firstVisibleRow() : row + step;
  selectPacket(ladder.rows[Math.min(Math.max(0, next), ladder.rows.length - 1)]);
}

const firstVisibleRow = () => Math.min(ladder.rows.length - 1, Math.ceil(rowAt(ladder.scroll)));

function chooseMode(mode) {
  for (const button of document.querySelectorAll("[data-mode]")) button.setAttribute("aria-pressed", button.dataset.mode === mode);
  setMode(mode);
  rememberView();
}

// Keys.

const KEYS = {
  j: () => stepPacket(1), ArrowDown: () => stepPacket(1),
  k: () => stepPacket(-1), ArrowUp: () => stepPacket(-1),
  n: () => stepAnomaly(1),
  p: () => stepAnomaly(-1),
  g: () => scrollTo(0), Home: () => scrollTo(0),
  G: () => scrollTo(Infinity), End: () => scrollTo(Infinity),
  PageDown: () => scrollTo(ladder.scroll + rowsHeight() * 0.9), " ": () => scrollTo(ladder.scroll + rowsHeight() * 0.9),
  PageUp: () => scrollTo(ladder.scroll - rowsHeight() * 0.9),
  "+": () => zoomView(1.3), "=": () => zoomView(1.3),
  "-": () => zoomView(1 / 1.3),
  m: () => chooseView(plot.view === "messages" ? "ladder" : "messages"),
  q: () => chooseView(plot.view === "psn" ? "ladder" : "psn"),
  e: () => exportShown(),
  t: () => chooseMode(ladder.mode === "rows" ? "time" : "rows"),
  s: () => showTab("statistics"),
  "/": () => part("search").focus(),
  "?": () => part("help").showModal(),
  Escape: () => selectPacket(null),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || part("help").open) return;
  if (event.target.matches("input, select")) {
    if (event.key === "Escape" || event.key === "Enter") event.target.blur();
    return;
  }
  const pressesButton = event.target.matches("button, summary") && [" ", "Enter"].includes(event.key);
  const action = pressesButton ? null : KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

const zoomView = (factor) => (plot.view === "ladder" ? zoom(factor) : zoomPlot(factor));

// The pointer.

function place(event) {
  const box = ladder.canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

const isOnMap = (x) => x > size.width - MAP_WIDTH;

function onPress(event) {
  const [x, y] = place(event);
  if (!isOnMap(x)) return;
  ladder.canvas.setPointerCapture(event.pointerId);
  scrollToMap(y);
}

function onMove(event) {
  const [x, y] = place(event);
  if (ladder.canvas.hasPointerCapture(event.pointerId)) return scrollToMap(y);
  const packet = packetAt(x, y);
  ladder.canvas.style.cursor = packet === null ? "default" : "pointer";
  if (packet === ladder.hovered) return;
  ladder.hovered = packet;
  requestDraw();
}

function onClick(event) {
  const [x, y] = place(event);
  if (!isOnMap(x)) selectPacket(packetAt(x, y));
}

function onWheel(event) {
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * 0.002), place(event)[1]);
  } else if (contentHeight() > TALLEST && !event.shiftKey) {
    // The scroll bar is scaled: one wheel step would skip thousands of packets.
    event.preventDefault();
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? ROW.usual : 1;
    scrollTo(ladder.scroll + event.deltaY * unit);
  }
}

function fitCanvas() {
  const ratio = devicePixelRatio || 1;
  size = { width: ladder.scroller.clientWidth, height: ladder.scroller.clientHeight };
  ladder.canvas.width = Math.round(size.width * ratio);
  ladder.canvas.height = Math.round(size.height * ratio);
  ladder.canvas.style.width = `${size.width}px`;
  ladder.canvas.style.height = `${size.height}px`;
  fitSpacer();
  measureMap();
  draw();
}

function listen() {
  document.addEventListener("keydown", onKey);
  ladder.scroller.addEventListener("scroll", followScrollBar, { passive: true });
  ladder.scroller.addEventListener("wheel", onWheel, { passive: false });
  ladder.canvas.addEventListener("pointerdown", onPress);
  ladder.canvas.addEventListener("pointermove", onMove);
  ladder.canvas.addEventListener("pointerleave", () => { ladder.hovered = null; requestDraw(); });
  ladder.canvas.addEventListener("click", onClick);
  part("search").addEventListener("input", (event) => { filter.text = event.target.value; applyFilter(); });
  part("opcode").addEventListener("change", (event) => { filter.opcode = event.target.value === "" ? null : Number(event.target.value); applyFilter(); });
  part("clear").addEventListener("click", () => { clearFilter(); applyFilter(); });
  part("export").addEventListener("click", exportShown);
  part("zoom-in").addEventListener("click", () => zoomView(1.3));
  part("zoom-out").addEventListener("click", () => zoomView(1 / 1.3));
  part("keys").addEventListener("click", () => part("help").showModal());
  part("close-help").addEventListener("click", () => part("help").close());
  for (const button of document.querySelectorAll("[data-mode]")) button.addEventListener("click", () => chooseMode(button.dataset.mode));
  for (const tab of document.querySelectorAll("[data-tab]")) tab.addEventListener("click", () => showTab(tab.dataset.tab));
  const repaint = () => { readPalette(); draw(); drawPlot(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  onPaper.addEventListener("change", () => { readPalette(); fitCanvas(); scrollTo(ladder.scroll); });
  new ResizeObserver(() => requestAnimationFrame(fitCanvas)).observe(ladder.scroller);
}

function start() {
  readPalette();
  fillSummary();
  fillFilters();
  fillConnections();
  fillAnomalies();
  listen();
  listenToPlot();
  fitCanvas();
  recallView();
  addEventListener("hashchange", recallView);
  requestAnimationFrame(() => setTimeout(() => { document.documentElement.dataset.ready = Math.round(performance.now()); }));
}

function fillSummary() {
  const duration = packets.count ? timeText(packets.time[packets.count - 1]) : "0 s";
  const facts = [dateText(analysis.capture.start), duration, `${grouped(analysis.connections.length)} connection${analysis.connections.length === 1 ? "" : "s"}`];
  part("facts").textContent = facts.join("  ·  ");
  part("notes").replaceChildren(...analysis.capture.remarks.map((remark) => element("li", {}, remark)));
}

/** The capture's clock may say anything. */
function dateText(milliseconds) {
  const date = new Date(milliseconds);
  return Number.isNaN(date.getTime()) ? "no date" : date.toISOString().replace("T", " ").replace("Z", " UTC");
}

start();
