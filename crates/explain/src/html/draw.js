// Draws the visible part of the diagram.

/** Much longer than usual in this capture, and long enough to matter. */
const longPause = Math.max(2e4, 50 * medianPause());

function medianPause() {
  const pauses = [];
  const step = Math.max(1, Math.floor(packets.count / 1000));
  for (let packet = step; packet < packets.count; packet += step) pauses.push(packets.time[packet] - packets.time[packet - 1]);
  return pauses.sort((a, b) => a - b)[pauses.length >> 1] ?? 0;
}

let drawWanted = false;

function requestDraw() {
  if (drawWanted) return;
  drawWanted = true;
  requestAnimationFrame(() => { drawWanted = false; draw(); drawPlot(); });
}

function draw() {
  const ratio = devicePixelRatio || 1;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = palette.paper;
  context.fillRect(0, 0, size.width, size.height);
  const [first, last] = visibleRows();
  const crowded = last - first > rowsHeight() / 5;
  context.save();
  context.beginPath();
  context.rect(0, HEAD_HEIGHT, size.width, rowsHeight());
  context.clip();
  drawBands(crowded);
  if (ladder.mode === "time") drawAxis();
  drawLifelines();
  if (!ladder.rows.length) drawNothingFound();
  else if (crowded) drawCrowd(first, last);
  else drawArrows(first, last);
  context.restore();
  drawHead();
  drawMap();
}

function drawNothingFound() {
  context.textAlign = "center";
  write(filterHint(), size.width / 2, HEAD_HEIGHT + 60, `14px ${palette.sans}`, palette.soft);
}

// The background: the row below the pointer, and the selected row.

function drawBands(crowded) {
  if (ladder.hovered !== null) drawBand(ladder.hovered, palette.band, crowded);
  if (ladder.selected !== null) drawBand(ladder.selected, palette.mark, crowded);
}

function drawBand(packet, colour, crowded) {
  const row = rowOf(packet);
  if (row === null) return;
  const usual = ladder.mode === "rows" ? ladder.rowHeight : ROW.usual;
  context.fillStyle = colour;
  context.fillRect(0, Math.round(topOf(row)), size.width - MAP_WIDTH, crowded ? 3 : usual);
}

/** Round moments, where distances are durations. */
function drawAxis() {
  if (!ladder.rows.length) return;
  const step = roundStep(56 / ladder.pixelsPerNanosecond);
  const origin = ladder.clock[0];
  const first = origin + (ladder.scroll - MARGIN) / ladder.pixelsPerNanosecond;
  const last = Math.min(first + rowsHeight() / ladder.pixelsPerNanosecond, ladder.clock[ladder.rows.length - 1]);
  context.textAlign = "right";
  for (let time = Math.ceil(Math.max(first, origin) / step) * step; time <= last; time += step) {
    // An arrow leaves its lifeline below the top of its row; the axis is drawn where arrows leave.
    const y = Math.round(HEAD_HEIGHT + MARGIN + (time - origin) * ladder.pixelsPerNanosecond - ladder.scroll + ARROW_AT * ROW.usual);
    context.fillStyle = palette.band;
    context.fillRect(GUTTER, y, size.width - MAP_WIDTH - GUTTER, 1);
    write(timeText(time), GUTTER - 12, y + 4, `11px ${palette.mono}`, palette.soft);
  }
}

/** The next of 1, 2, 5, 10, 20, 50 and so on. */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

// The vertical lines. If one connection is selected, they show the states of its two queue pairs.

function drawLifelines() {
  context.fillStyle = palette.line;
  const length = Math.min(rowsHeight(), contentHeight() - ladder.scroll);
  for (const lifeline of ladder.lifelines) context.fillRect(Math.round(lifelineX(lifeline)), HEAD_HEIGHT, 1, length);
  const connection = chosenConnection();
  if (connection && ladder.rows.length) connection.ends.forEach(drawStates);
}

const chosenConnection = () => analysis.connections[filter.connection ?? (analysis.connections.length === 1 ? 0 : NONE)];

function drawStates(end) {
  end.states.forEach(([from, state], index) => {
    const top = Math.max(HEAD_HEIGHT, timeY(from));
    const bottom = Math.min(size.height, timeY(end.states[index + 1]?.[0] ?? Infinity));
    if (bottom <= top) return;
    context.fillStyle = stateColour(state);
    context.fillRect(Math.round(lifelineX(end.lifeline)) - 2, top, 5, bottom - top);
  });
}

/** Where a moment is on the canvas, whether or not a packet belongs to it. */
function timeY(time) {
  const row = lowerBound(ladder.clock, ladder.rows.length, time);
  return row < ladder.rows.length ? topOf(row) : HEAD_HEIGHT + contentHeight() - ladder.scroll;
}

function stateColour(state) {
  return { connecting: palette.odd, established: palette.response, error: palette.bad, closed: palette.faint }[state] ?? palette.line;
}

// Arrows, one by one.

function drawArrows(first, last) {
  const height = ladder.mode === "rows" ? ladder.rowHeight : ROW.usual;
  for (let row = first; row < last; row++) {
    drawArrow(ladder.rows[row], topOf(row), height);
    if (isOfChosenMessage(ladder.rows[row])) drawBelonging(topOf(row), height);
  }
  // Labels last, so that no arrow covers them.
  for (const row of labelledRows(first, last)) {
    drawLabelAlong(ladder.rows[row], topOf(row) + height * ARROW_AT, height);
    if (ladder.mode === "rows") drawTime(row, topOf(row), height);
  }
}

function isOfChosenMessage(packet) {
  if (ladder.selected === null) return false;
  const message = packets.message[ladder.selected];
  return message !== NONE && packets.message[packet] === message;
}

/** A mark before the row: the rest of a message and its responses are found at a glance. */
function drawBelonging(top, height) {
  context.fillStyle = palette.request;
  context.fillRect(GUTTER - 4, top + 2, 3, height - 2);
}

/** Rows with room for their label. Where rows lie upon each other, the remarkable ones get it. */
function labelledRows(first, last) {
  const rows = Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
  if (ladder.mode === "rows") return new Set(ladder.rowHeight >= ROW.labelled ? rows : []);
  const worth = (row) => (ladder.rows[row] === ladder.selected ? 9 : kindOf[ladder.rows[row]]);
  rows.sort((a, b) => worth(b) - worth(a) || a - b);
  const taken = [];
  return new Set(rows.filter((row) => {
    const middle = topOf(row) + slopeOf(ladder.rows[row], ROW.usual) / 2;
    if (taken.some((other) => Math.abs(other - middle) < 15)) return false;
    taken.push(middle);
    return true;
  }));
}

const kindColour = (kind) => [palette.request, palette.response, palette.manage, palette.odd, palette.bad][kind];
const colourOf = (packet) => kindColour(kindOf[packet]);

function drawArrow(packet, top, height) {
  const from = lifelineX(senderOf(packet).lifeline);
  const to = lifelineX(receiverOf(packet).lifeline);
  const start = top + height * ARROW_AT;
  const slope = slopeOf(packet, height);
  const lost = hasMark(packet, MARK.lost | MARK.damaged);
  const share = lost ? 0.62 : 1;
  const [endX, endY] = [from + (to - from) * share, start + slope * share];
  context.strokeStyle = context.fillStyle = colourOf(packet);
  context.lineWidth = packet === ladder.selected ? 2.25 : 1.25;
  context.setLineDash(hasMark(packet, MARK.retransmitted) ? [6, 3] : []);
  line(from, start, endX, endY);
  context.setLineDash([]);
  if (lost) drawCross(endX, endY); else drawTip(from, to, endY, height);
  if (missingBefore.has(packet)) drawGap(from, to, top);
}

/** As long as it was on the way, if that is known and can be shown; else just enough to look like an arrow. */
function slopeOf(packet, height) {
  const flight = ladder.mode === "time" ? flightOf(packet) : 0;
  if (flight) return Math.min(STEEPEST, Math.max(2, flight * ladder.pixelsPerNanosecond));
  return Math.min(6, height * 0.25);
}

/** What was lost took as long as what was sent shortly before. */
function flightOf(packet) {
  const isNear = (other) => other >= 0 && packet - other < 32;
  for (let other = packet; isNear(other); other--) {
    const sameWay = packets.connection[other] === packets.connection[packet] && packets.side[other] === packets.side[packet];
    if (sameWay && packets.flight[other]) return packets.flight[other];
  }
  return 0;
}

function line(x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

function drawTip(from, to, y, height) {
  const direction = Math.sign(to - from) || 1;
  const length = Math.min(8, height * 0.45);
  context.beginPath();
  context.moveTo(to - direction, y);
  context.lineTo(to - direction * (length + 1), y - length * 0.5);
  context.lineTo(to - direction * (length + 1), y + length * 0.4);
  context.fill();
}

function drawCross(x, y) {
  context.lineWidth = 1.75;
  line(x - 4, y - 4, x + 4, y + 4);
  line(x - 4, y + 4, x + 4, y - 4);
}

/** Packets of the message that should stand here were never captured. */
function drawGap(from, to, top) {
  context.strokeStyle = palette.bad;
  context.setLineDash([2, 3]);
  const end = from + Math.sign(to - from) * 28;
  line(from, top, end, top);
  context.setLineDash([]);
  drawCross(end, top);
}

/** A steep arrow takes its words along. */
function drawLabelAlong(packet, start, height) {
  const from = lifelineX(senderOf(packet).lifeline);
  const to = lifelineX(receiverOf(packet).lifeline);
  const slope = slopeOf(packet, height);
  if (slope <= 8) return drawLabel(packet, from, to, start - 4);
  context.save();
  context.translate((from + to) / 2, start + slope / 2);
  context.rotate(Math.atan(slope / (to - from)));
  drawLabel(packet, -Math.abs(to - from) / 2, Math.abs(to - from) / 2, -4);
  context.restore();
}

/** The name, and behind it as much as there is room for. */
function drawLabel(packet, from, to, baseline) {
  const room = Math.abs(to - from) - 24;
  const name = titleOf(packet);
  const nameFont = `500 11.5px ${palette.sans}`;
  const detailsFont = `11px ${palette.mono}`;
  const nameWidth = widthOf(name, nameFont) + 10;
  const details = detailsOf(packet).find((text) => nameWidth + widthOf(text, detailsFont) <= room) ?? "";
  const left = (from + to - nameWidth - widthOf(details, detailsFont)) / 2;
  context.textAlign = "left";
  write(details, left + nameWidth, baseline, detailsFont, palette.soft);
  if (nameWidth > room + 20) return;
  write(name, left, baseline, nameFont, kindOf[packet] >= KIND.odd ? colourOf(packet) : palette.ink);
}

/** What can stand behind the name, the longest first. */
function detailsOf(packet) {
  const length = packets.length[packet];
  const bytes = length && !analysis.managed[packet] ? [`${grouped(length)} B`] : [];
  const remarks = SHORT_REMARKS.filter(([mark]) => hasMark(packet, mark)).map(([, words]) => words);
  if (missingBefore.has(packet)) remarks.push(`${grouped(missingBefore.get(packet))} missing before`);
  const psn = `psn ${psnOf(packet)}`;
  return [[psn, ...bytes, ...remarks], [psn, ...remarks], [psn]].map((parts) => parts.join("  "));
}

const SHORT_REMARKS = [[MARK.retransmitted, "again"], [MARK.lost, "lost"], [MARK.damaged, "bad ICRC"], [MARK.late, "late"], [MARK.faulted, "fault injected"]];

function widthOf(text, font) {
  context.font = font;
  return context.measureText(text).width;
}

function write(text, x, y, font, colour) {
  context.font = font;
  if (ladder.mode === "time") {
    // An arrow may cross the label, so the label has an outline.
    context.strokeStyle = palette.paper;
    context.lineWidth = 3;
    context.strokeText(text, x, y);
  }
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

function drawTime(row, top, height) {
  const time = packets.time[ladder.rows[row]];
  const pause = row ? time - packets.time[ladder.rows[row - 1]] : 0;
  if (pause >= longPause) drawPause(pause, top);
  context.textAlign = "right";
  write(momentText(time), GUTTER - 12, top + height * ARROW_AT + 3, `11px ${palette.mono}`, palette.soft);
}

/** A long silence looks like any other row unless it is said. */
function drawPause(pause, top) {
  const right = lifelineX(ladder.lifelines[ladder.lifelines.length - 1]);
  context.strokeStyle = palette.faint;
  context.lineWidth = 1;
  context.setLineDash([1, 4]);
  line(lifelineX(ladder.lifelines[0]) + 8, top + 1.5, right - 8, top + 1.5);
  context.setLineDash([]);
  context.textAlign = "left";
  write(`+${timeText(pause)}`, right + 8, top + 5, `10.5px ${palette.mono}`, palette.soft);
}

// The names of the lines, above everything else.

function drawHead() {
  context.fillStyle = palette.paper;
  context.fillRect(0, 0, size.width, HEAD_HEIGHT);
  context.fillStyle = palette.line;
  context.fillRect(0, HEAD_HEIGHT - 1, size.width, 1);
  const ends = chosenConnection()?.ends ?? [];
  const names = shownNames();
  const narrow = lifelineGap() < COMFORTABLE_GAP;
  context.textAlign = "center";
  ladder.lifelines.forEach((lifeline, position) => {
    const end = ends.find((one) => one.lifeline === lifeline);
    const note = end ? (end.qpn === null ? "queue pair unknown" : `QP ${qpnText(end.qpn)}`) : analysis.lifelines[lifeline].note;
    write(names[position], nameX(lifeline, names[position]), narrow && position % 2 ? 41 : 24, nameFont(), palette.ink);
    // Where lines are near to each other, names alternate between two heights, and there is no room for notes.
    if (!narrow) write(note, lifelineX(lifeline), 41, `11px ${palette.mono}`, palette.soft);
  });
}

const nameFont = () => `600 ${lifelineGap() < COMFORTABLE_GAP ? 11 : 13}px ${palette.sans}`;

/** Above its line, and not beyond the edges. */
function nameX(lifeline, name) {
  const half = widthOf(name, nameFont()) / 2 + 4;
  return Math.max(half, Math.min(lifelineX(lifeline), size.width - MAP_WIDTH - half));
}

/** The names of the lines shown: whole where there is room, otherwise without the beginning that all have in common. */
function shownNames() {
  const names = ladder.lifelines.map((lifeline) => analysis.lifelines[lifeline].name);
  // Two gaps wide where neighbours are at another height.
  const room = lifelineGap() * (lifelineGap() < COMFORTABLE_GAP ? 2 : 1) - 8;
  const shared = commonStart(names);
  return names.map((name) => fitted(name, shared, room));
}

function fitted(name, shared, room) {
  if (widthOf(name, nameFont()) <= room) return name;
  let end = name.slice(shared) || name;
  while (end.length > 1 && widthOf(`…${end}`, nameFont()) > room) end = end.slice(1);
  return `…${end}`;
}

/** How many characters all addresses have in common, in whole groups. */
function commonStart(names) {
  let length = 0;
  while (names.length && names.every((name) => length < name.length && name[length] === names[0][length])) length++;
  const start = (names[0] ?? "").slice(0, length);
  return Math.max(start.lastIndexOf("."), start.lastIndexOf(":")) + 1;
}
