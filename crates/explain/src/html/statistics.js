// Statistics of the shown packets.

function countShown(rows) {
  const counted = { packets: rows.length, bytes: 0, retransmitted: 0, lost: 0, rejected: 0, notReady: 0, first: Infinity, last: 0 };
  const kinds = new Map();
  for (const packet of rows) {
    counted.bytes += packets.length[packet];
    const marks = packets.marks[packet];
    if (marks & MARK.retransmitted) counted.retransmitted++;
    if (marks & (MARK.lost | MARK.damaged)) counted.lost++;
    if (packets.role[packet] === ROLE.reject) counted.rejected++;
    if (packets.role[packet] === ROLE["not-ready"]) counted.notReady++;
    counted.first = Math.min(counted.first, packets.time[packet]);
    counted.last = Math.max(counted.last, packets.time[packet]);
    const kind = acknowledgementName(packet) ?? opcodeOf(packet).title;
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  counted.kinds = [...kinds].sort((a, b) => b[1] - a[1]);
  return counted;
}

/** How long the responses took to the messages that begin in what is shown, counted as the command does. */
function roundTrips(rows) {
  const times = [];
  for (const packet of rows) {
    const message = packets.message[packet];
    if (message === NONE || messages.first[message] !== packet || Number.isNaN(messages.answered[message])) continue;
    times.push(Math.max(0, messages.answered[message] - messages.sent[message]));
  }
  return Float64Array.from(times).sort();
}

function fillStatistics() {
  const { rows } = ladder;
  const counted = countShown(rows);
  const times = roundTrips(rows);
  part("statistics").replaceChildren(
    table(filteredTitle(rows), countFields(counted)),
    roundTripPart(times),
    ratePart(rows, counted),
    kindPart(counted),
  );
}

const filteredTitle = (rows) => (rows.length === packets.count ? "Whole capture" : "Filtered");

function countFields(counted) {
  const duration = Math.max(0, counted.last - counted.first);
  const counts = (number) => `${grouped(number)}  ${shareText(number, counted.packets)}`;
  return [
    ["Packets", grouped(counted.packets)],
    ["Payload", scaledText(counted.bytes, "B")],
    ["Duration", counted.packets ? timeText(duration) : "–"],
    ["Rate", duration ? scaledText((counted.bytes * 8e9) / duration, "bit/s") : "–"],
    ["Retransmitted", counts(counted.retransmitted)],
    ["Lost", counts(counted.lost)],
    ["NAK", counts(counted.rejected)],
    ["RNR NAK", counts(counted.notReady)],
  ];
}

// Bar charts in the size of the panel.

const SVG = "http://www.w3.org/2000/svg";

function drawing(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function bars(values, titles) {
  const [width, height] = [300, 64];
  const tallest = Math.max(...values, 1);
  const step = width / values.length;
  const shapes = values.map((value, index) => {
    const length = value ? Math.max(1.5, (value / tallest) * height) : 0;
    const shape = { x: index * step + 0.5, y: height - length, width: Math.max(0.5, step - 1), height: length };
    return drawing("rect", shape, drawing("title", {}, document.createTextNode(titles(index))));
  });
  return drawing("svg", { viewBox: `0 0 ${width} ${height}`, class: "bars", role: "img", preserveAspectRatio: "none" }, ...shapes);
}

function chart(title, note, picture, left, right) {
  const scale = element("p", { className: "scale" }, element("span", {}, left), element("span", {}, right));
  return element("section", { className: "chart" }, element("h3", {}, `${title} `, element("small", {}, note)), picture, scale);
}

const BINS = 30;

function roundTripPart(times) {
  if (!times.length) return element("section", { className: "chart" }, element("h3", {}, "Time to the response"), element("p", { className: "hint" }, "No message with a response is shown."));
  const low = Math.log(Math.max(1, times[0]));
  const high = Math.max(low + 0.01, Math.log(Math.max(1, times[times.length - 1])));
  const bins = new Array(BINS).fill(0);
  for (const time of times) bins[Math.min(BINS - 1, Math.floor(((Math.log(Math.max(1, time)) - low) / (high - low)) * BINS))]++;
  const edge = (index) => timeText(Math.exp(low + ((high - low) * index) / BINS));
  const titles = (index) => `${edge(index)} to ${edge(index + 1)}: ${grouped(bins[index])}`;
  const quantile = (share) => timeText(times[Math.min(times.length - 1, Math.floor(share * times.length))]);
  const note = `median ${quantile(0.5)}, 99 % below ${quantile(0.99)}`;
  return chart("Time to the response", note, bars(bins, titles), timeText(times[0]), timeText(times[times.length - 1]));
}

function ratePart(rows, counted) {
  const slots = 60;
  const duration = Math.max(1, counted.last - counted.first);
  const sums = new Array(slots).fill(0);
  for (const packet of rows) {
    sums[Math.min(slots - 1, Math.floor(((packets.time[packet] - counted.first) / duration) * slots))] += packets.length[packet];
  }
  const rate = (bytes) => scaledText((bytes * 8e9 * slots) / duration, "bit/s");
  const titles = (index) => `${momentText(counted.first + (duration * index) / slots)}: ${rate(sums[index])}`;
  const right = rows.length ? momentText(counted.last) : "";
  return chart("Rate", `at most ${rate(Math.max(...sums))}`, bars(sums, titles), rows.length ? momentText(counted.first) : "", right);
}

function kindPart(counted) {
  const rows = counted.kinds.map(([kind, count]) => [kind, `${grouped(count)}  ${shareText(count, counted.packets)}`]);
  return table("By kind", rows);
}
