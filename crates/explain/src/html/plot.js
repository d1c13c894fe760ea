// Two plots over time: messages as bars for each queue pair, and PSNs with their acknowledgements.

const VIEWS = ["ladder", "messages", "psn"];

const plot = {
  view: "ladder",
  holder: document.getElementById("plots"),
  canvas: document.getElementById("plot"),
  /** The moments at the left and the right edge, in nanoseconds. */
  from: 0,
  to: 1,
  /** What was drawn where, and the packet behind it. */
  marks: [],
};

const plotContext = plot.canvas.getContext("2d");

const PLOT = { left: 14, right: 14, top: 34, lane: 9, label: 20, gap: 8, axis: 76 };

/** More bars above each other than this are drawn into the last lane. */
const MOST_LANES = 12;
/** More queue pairs than this do not fit a screen: the filter finds the rest. */
const MOST_DIRECTIONS = 100;

function chooseView(view) {
  plot.view = view;
  for (const button of document.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", button.dataset.view === view);
  ladder.scroller.hidden = view !== "ladder";
  plot.holder.hidden = view === "ladder";
  if (view === "ladder") fitCanvas(); else resetPlot();
  rememberView();
}

/** Shows the whole time of what passes the filter. */
function resetPlot() {
  const { rows } = ladder;
  plot.from = rows.length ? packets.time[rows[0]] : 0;
  plot.to = Math.max(plot.from + 1, rows.length ? packets.time[rows[rows.length - 1]] : 1);
  drawPlot();
}

const plotWidth = () => plot.holder.clientWidth;

function plotX(time) {
  const left = PLOT.left + (plot.view === "psn" ? PLOT.axis : 0);
  return left + ((time - plot.from) / (plot.to - plot.from)) * (plotWidth() - left - PLOT.right);
}

/** Keeps the moment below the pointer in place. */
function zoomPlot(factor, x = plotWidth() / 2) {
  const share = Math.min(1, Math.max(0, (x - PLOT.left) / Math.max(1, plotWidth() - PLOT.left - PLOT.right)));
  const anchor = plot.from + share * (plot.to - plot.from);
  const span = Math.max(100, (plot.to - plot.from) / factor);
  plot.from = anchor - share * span;
  plot.to = plot.from + span;
  drawPlot();
}

function movePlot(share) {
  const step = (plot.to - plot.from) * share;
  plot.from += step;
  plot.to += step;
  drawPlot();
}

function drawPlot() {
  if (plot.view === "ladder") return;
  plot.marks = [];
  const figures = plot.view === "messages" ? messageFigures() : psnFigures();
  const least = plot.holder.clientHeight - 4;
  const height = Math.max(least, PLOT.top + figures.reduce((sum, figure) => sum + figure.height + PLOT.gap, 0));
  fitPlot(height);
  plotContext.fillStyle = palette.paper;
  plotContext.fillRect(0, 0, plotWidth(), height);
  if (!figures.length) return plotText(filterHint(), PLOT.left, PLOT.top + 20, palette.soft);
  drawTimeAxis(height);
  let top = PLOT.top;
  for (const figure of figures) {
    figure.draw(top);
    top += figure.height + PLOT.gap;
  }
}

function fitPlot(height) {
  const ratio = devicePixelRatio || 1;
  plot.canvas.width = Math.round(plotWidth() * ratio);
  plot.canvas.height = Math.round(height * ratio);
  plot.canvas.style.width = `${plotWidth()}px`;
  plot.canvas.style.height = `${height}px`;
  plotContext.setTransform(ratio, 0, 0, ratio, 0, 0);
}

function plotText(text, x, y, colour, font = `12px ${palette.sans}`) {
  plotContext.font = font;
  plotContext.fillStyle = colour;
  plotContext.fillText(text, x, y);
}

function drawTimeAxis(height) {
  const step = roundStep(((plot.to - plot.from) * 110) / Math.max(1, plotWidth()));
  for (let time = Math.ceil(plot.from / step) * step; time <= plot.to; time += step) {
    const x = Math.round(plotX(time));
    plotContext.fillStyle = palette.band;
    plotContext.fillRect(x, PLOT.top - 8, 1, height);
    plotText(timeText(Math.max(0, time)), x + 3, 18, palette.soft, `11px ${palette.mono}`);
  }
}

// Directions: the requests from one end of a connection to the other.

function directionTitle(direction) {
  const { ends, service } = analysis.connections[direction >> 1];
  const [sender, receiver] = direction & 1 ? [ends[1], ends[0]] : ends;
  const name = (end) => `${end.name} QP ${end.qpn === null ? "?" : qpnText(end.qpn)}`;
  return `${service}  ${name(sender)} → ${name(receiver)}`;
}

const directionOf = (packet) => packets.connection[packet] * 2 + packets.side[packet];

// Messages.

function messageFigures() {
  const byDirection = new Map();
  for (const packet of ladder.rows) {
    const message = packets.message[packet];
    if (message === NONE || messages.first[message] !== packet) continue;
    const direction = directionOf(packet);
    if (!byDirection.has(direction)) byDirection.set(direction, []);
    byDirection.get(direction).push(message);
  }
  const directions = [...byDirection].sort((a, b) => a[0] - b[0]).slice(0, MOST_DIRECTIONS);
  return directions.map(([direction, list]) => messageFigure(direction, list));
}

const beginOf = (message) => packets.time[messages.first[message]];
const endOf = (message) => (Number.isNaN(messages.answered[message]) ? messages.sent[message] : messages.answered[message]);

function messageFigure(direction, list) {
  const { lanes, laneOf } = inLanes(list);
  return {
    height: PLOT.label + lanes * PLOT.lane,
    draw(top) {
      plotText(directionTitle(direction), PLOT.left, top + 13, palette.ink, `600 12px ${palette.sans}`);
      list.forEach((message, index) => drawMessage(message, top + PLOT.label + laneOf[index] * PLOT.lane));
    },
  };
}

/** Puts messages that overlap into lanes above each other. */
function inLanes(list) {
  const ends = [];
  const laneOf = list.map((message) => {
    let lane = ends.findIndex((end) => end <= beginOf(message));
    if (lane < 0) lane = Math.min(ends.length, MOST_LANES - 1);
    ends[lane] = Math.max(ends[lane] ?? 0, endOf(message));
    return lane;
  });
  return { lanes: Math.max(1, ends.length), laneOf };
}

function messageColour(message) {
  const outcome = analysis.messages.outcomes[messages.outcome[message]];
  if (messages.retransmitted[message]) return palette.odd;
  if (outcome === "done") return palette.response;
  return outcome.startsWith("sent;") ? palette.request : palette.bad;
}

function drawMessage(message, top) {
  const x = plotX(beginOf(message));
  const width = Math.max(2, plotX(endOf(message)) - x);
  if (x + width < 0 || x > plotWidth()) return;
  const packet = messages.first[message];
  const chosen = ladder.selected !== null && packets.message[ladder.selected] === message;
  plotContext.fillStyle = chosen ? palette.ink : messageColour(message);
  plotContext.fillRect(x, top, width, PLOT.lane - 2);
  plot.marks.push({ x, y: top, width, height: PLOT.lane - 2, packet });
}

// PSNs.

/** Both directions of the chosen connection, or the two busiest. */
function psnFigures() {
  const counts = new Map();
  for (const packet of ladder.rows) {
    if (packets.role[packet] === ROLE.request) counts.set(directionOf(packet), (counts.get(directionOf(packet)) ?? 0) + 1);
  }
  const busiest = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 2).map(([direction]) => direction);
  return busiest.map((direction) => psnFigure(direction, busiest.length));
}

function psnFigure(direction, figures) {
  const points = psnPoints(direction);
  const height = Math.max(180, (plot.holder.clientHeight - PLOT.top - PLOT.gap * figures - 8) / figures);
  const heights = points.map((point) => point.psn);
  const [lowest, highest] = [Math.min(...extremes(heights)), Math.max(...extremes(heights))];
  return {
    height,
    draw(top) {
      plotText(directionTitle(direction), PLOT.left, top + 13, palette.ink, `600 12px ${palette.sans}`);
      const y = (psn) => top + height - 8 - ((psn - lowest) / Math.max(1, highest - lowest)) * (height - PLOT.label - 14);
      drawPsnAxis(lowest, highest, y);
      drawAcknowledged(points, y);
      for (const point of points) drawPoint(point, y(point.psn));
    },
  };
}

/** The smallest and the largest value. A list may be too long for the arguments of a function. */
function extremes(values) {
  let [low, high] = [values[0] ?? 0, values[0] ?? 0];
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  return [low, high];
}

/** Requests of a direction and what answers them. PSNs are counted on beyond 2^24. */
function psnPoints(direction) {
  const opposite = direction ^ 1;
  const points = [];
  let latest = null;
  for (const packet of ladder.rows) {
    const role = packets.role[packet];
    const isRequest = directionOf(packet) === direction && role === ROLE.request;
    const isResponse = directionOf(packet) === opposite && [ROLE.acknowledge, ROLE.response, ROLE.reject, ROLE["not-ready"]].includes(role);
    if (!isRequest && !isResponse) continue;
    const psn = psnOf(packet);
    const step = latest === null ? 0 : ((psn - latest + 0x800000) & 0xffffff) - 0x800000;
    const counted = latest === null ? psn : latest + step;
    if (isRequest) latest = counted;
    points.push({ packet, psn: counted, isRequest, role, time: packets.time[packet] });
  }
  return points;
}

function drawPsnAxis(lowest, highest, y) {
  const step = Math.max(1, roundStep((highest - lowest) / 6 || 1));
  for (let psn = Math.ceil(lowest / step) * step; psn <= highest; psn += step) {
    plotContext.fillStyle = palette.band;
    plotContext.fillRect(PLOT.left + PLOT.axis - 6, Math.round(y(psn)), plotWidth(), 1);
    plotText(String(psn & 0xffffff), PLOT.left, y(psn) + 4, palette.soft, `11px ${palette.mono}`);
  }
}

/** Up to where the peer has acknowledged, as a line of steps. */
function drawAcknowledged(points, y) {
  plotContext.strokeStyle = palette.response;
  plotContext.lineWidth = 1;
  plotContext.beginPath();
  let last = null;
  for (const point of points) {
    if (point.isRequest || isRejection(point.packet) || (last && point.psn < last.psn)) continue;
    const [x, height] = [plotX(point.time), y(point.psn)];
    if (last) { plotContext.lineTo(x, y(last.psn)); plotContext.lineTo(x, height); } else plotContext.moveTo(x, height);
    last = point;
  }
  plotContext.stroke();
}

function drawPoint(point, y) {
  const x = plotX(point.time);
  if (x < PLOT.left + PLOT.axis - 8 || x > plotWidth()) return;
  const { packet } = point;
  const radius = packet === ladder.selected ? 5 : 2.5;
  plotContext.fillStyle = packet === ladder.selected ? palette.ink : colourOf(packet);
  if (hasMark(packet, MARK.lost | MARK.damaged)) plotText("×", x - 4, y + 4, palette.bad, `14px ${palette.sans}`);
  else plotContext.fillRect(x - radius, y - radius, 2 * radius, 2 * radius);
  plot.marks.push({ x: x - 4, y: y - 4, width: 8, height: 8, packet });
}

// The pointer.

function plotPlace(event) {
  const box = plot.canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

/** The topmost mark at a place. */
function markAt(x, y) {
  const hit = (mark) => x >= mark.x - 2 && x <= mark.x + mark.width + 2 && y >= mark.y && y <= mark.y + mark.height;
  return plot.marks.findLast(hit) ?? null;
}

function listenToPlot() {
  let drag = null;
  plot.canvas.addEventListener("pointerdown", (event) => { drag = plotPlace(event)[0]; plot.canvas.setPointerCapture(event.pointerId); });
  plot.canvas.addEventListener("pointermove", (event) => {
    const [x, y] = plotPlace(event);
    plot.canvas.style.cursor = markAt(x, y) ? "pointer" : "grab";
    if (drag === null || !plot.canvas.hasPointerCapture(event.pointerId) || Math.abs(x - drag) < 3) return;
    movePlot((drag - x) / Math.max(1, plotWidth()));
    drag = x;
  });
  plot.canvas.addEventListener("pointerup", () => { drag = null; });
  plot.canvas.addEventListener("click", (event) => {
    const mark = markAt(...plotPlace(event));
    if (mark) selectPacket(mark.packet);
  });
  plot.canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoomPlot(Math.exp(-event.deltaY * 0.002), plotPlace(event)[0]);
  }, { passive: false });
  for (const button of document.querySelectorAll("[data-view]")) button.addEventListener("click", () => chooseView(button.dataset.view));
  new ResizeObserver(() => requestAnimationFrame(drawPlot)).observe(plot.holder);
}
