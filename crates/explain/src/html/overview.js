// The overview: bars instead of arrows when there are too many, and the map at the edge.

// One bar per pixel between two lifelines, divided by kind.

function drawCrowd(first, last) {
  const bars = crowdBars(first, last);
  // On a time scale, a longer bar means more packets. In packet order, all bars are equal.
  const busiest = ladder.mode === "time" ? Math.max(...bars.map((bar) => bar.total)) : 0;
  for (const bar of bars) drawBar(bar, busiest ? bar.total / busiest : 1);
  drawTimesOfCrowd(first, last);
}

function crowdBars(first, last) {
  const bars = new Map();
  const count = analysis.lifelines.length;
  for (let row = first; row < last; row++) {
    const packet = ladder.rows[row];
    const y = Math.round(topOf(row));
    const [one, other] = [senderOf(packet).lifeline, receiverOf(packet).lifeline];
    const [left, right] = one < other ? [one, other] : [other, one];
    const key = (y * count + left) * count + right;
    let bar = bars.get(key);
    if (!bar) bars.set(key, bar = { y, left, right, total: 0, kinds: [0, 0, 0, 0, 0] });
    bar.total++;
    bar.kinds[kindOf[packet]]++;
  }
  return [...bars.values()];
}

function drawBar(bar, share) {
  const left = lifelineX(bar.left) + 3;
  const width = (lifelineX(bar.right) - 3 - left) * share;
  const height = Math.max(1, Math.min(4, ladder.mode === "rows" ? ladder.rowHeight - 1 : 1));
  let x = left;
  for (const [kind, length] of barLengths(bar, width)) {
    context.fillStyle = kindColour(kind);
    context.fillRect(x, bar.y, length, height);
    x += length;
  }
}

/** What is remarkable comes first and is never too short to be seen. */
function barLengths({ kinds, total }, width) {
  const lengths = [KIND.bad, KIND.odd, KIND.manage, KIND.response, KIND.request]
    .filter((kind) => kinds[kind])
    .map((kind) => [kind, Math.max(kind >= KIND.manage ? 5 : 0, (kinds[kind] / total) * width)]);
  const scale = width / lengths.reduce((sum, [, length]) => sum + length, 0);
  return lengths.map(([kind, length]) => [kind, length * Math.min(1, scale)]);
}

function drawTimesOfCrowd(first, last) {
  if (ladder.mode === "time") return;
  context.textAlign = "right";
  for (let y = HEAD_HEIGHT + 14; y < size.height; y += 40) {
    const row = rowAt(ladder.scroll + y - HEAD_HEIGHT);
    if (row < first || row >= last) continue;
    write(momentText(packets.time[ladder.rows[row]]), GUTTER - 12, y, `11px ${palette.mono}`, palette.soft);
  }
}

// The map at the right edge: the whole capture with its anomalies.

let map = [];

function measureMap() {
  map = Array.from({ length: Math.max(0, Math.floor(rowsHeight())) }, () => ({ odd: 0, bad: 0, total: 0 }));
  const height = contentHeight();
  for (let row = 0; row < ladder.rows.length; row++) {
    const at = Math.floor((contentTop(row) / height) * map.length);
    const pixel = map[Math.min(map.length - 1, at)];
    if (!pixel) return;
    pixel.total++;
    const kind = kindOf[ladder.rows[row]];
    if (kind === KIND.bad) pixel.bad++;
    if (kind === KIND.odd) pixel.odd++;
  }
}

function scrollToMap(y) {
  scrollTo(((y - HEAD_HEIGHT) / rowsHeight()) * contentHeight() - rowsHeight() / 2);
}

function drawMap() {
  const left = size.width - MAP_WIDTH;
  context.fillStyle = palette.band;
  context.fillRect(left, HEAD_HEIGHT, MAP_WIDTH, rowsHeight());
  const height = contentHeight();
  if (!height) return;
  const top = HEAD_HEIGHT + (ladder.scroll / height) * rowsHeight();
  const length = Math.max(6, (rowsHeight() / height) * rowsHeight());
  context.fillStyle = palette.mark;
  context.fillRect(left, top, MAP_WIDTH, Math.min(length, rowsHeight()));
  map.forEach(drawMapMark);
}

/** As wide as the share of what is remarkable, and never too narrow to be seen. */
function drawMapMark({ odd, bad, total }, y) {
  if (!odd && !bad) return;
  const width = (part) => (part ? 3 + (part / total) * (MAP_WIDTH - 8) : 0);
  const left = size.width - MAP_WIDTH + 1;
  context.fillStyle = palette.odd;
  context.fillRect(left, HEAD_HEIGHT + y, Math.min(MAP_WIDTH - 2, width(odd) + width(bad)), 1.5);
  context.fillStyle = palette.bad;
  context.fillRect(left, HEAD_HEIGHT + y, Math.min(MAP_WIDTH - 2, width(bad)), 1.5);
}
