// The panels around the diagram. Text from the capture is inserted as text only, never as markup.

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "data") Object.assign(made.dataset, value);
    else if (name.startsWith("aria")) made.setAttribute(`aria-${name.slice(4).toLowerCase()}`, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const part = (id) => document.getElementById(id);

// Connections.

/** Longer lists are hard to read; the filter finds the rest. */
const LONGEST_LIST = 500;

function fillConnections() {
  const all = connectionButton(null, element("span", { className: "name" }, "All connections"));
  const listed = analysis.connections.slice(0, LONGEST_LIST);
  const buttons = listed.map((connection, index) => connectionButton(index, ...connectionLines(connection)));
  part("connections").replaceChildren(all, ...buttons);
  part("connection-count").textContent = grouped(analysis.connections.length);
  const more = analysis.connections.length - listed.length;
  if (more) part("connections").append(element("p", { className: "hint" }, `${grouped(more)} more: filter by qp: and a number.`));
  markConnection();
}

function connectionButton(index, ...lines) {
  const onclick = () => { filter.connection = index; markConnection(); applyFilter(); };
  return element("button", { className: "connection", data: { connection: index ?? "all" }, onclick }, ...lines);
}

function connectionLines(connection) {
  const [left, right] = connection.ends;
  const names = element("span", { className: "name" }, `${left.name} – ${right.name}`);
  const qpns = [left, right].map((end) => (end.qpn === null ? "?" : qpnText(end.qpn))).join(" – ");
  const facts = `${connection.service}  ${grouped(connection.packets)} packets${connection.note ? `  ${connection.note}` : ""}`;
  return [
    names,
    element("span", { className: "numbers" }, qpns),
    element("span", { className: "facts" }, facts),
    ...connection.ends.map(stateStrip),
  ];
}

/** What is known of one queue pair's states, from left to right. */
function stateStrip(end) {
  const strip = element("span", { className: "strip", title: stripTitle(end) });
  const duration = Math.max(1, packets.time[packets.count - 1]);
  end.states.forEach(([from, state], index) => {
    const to = end.states[index + 1]?.[0] ?? duration;
    const piece = element("i", { className: state });
    piece.style.left = `${(100 * from) / duration}%`;
    piece.style.width = `${Math.max(0.5, (100 * (to - from)) / duration)}%`;
    strip.append(piece);
  });
  return strip;
}

const stripTitle = (end) => `${end.name}: ${end.states.map(([at, state]) => `${state} at ${momentText(at)}`).join(", ") || "nothing known"}`;

function markConnection() {
  for (const button of part("connections").querySelectorAll("button")) {
    const chosen = button.dataset.connection === String(filter.connection ?? "all");
    button.setAttribute("aria-pressed", chosen);
  }
}

// Anomalies.

/** A kind with more anomalies than this is folded. */
const UNFOLDED = 8;

function fillAnomalies() {
  const kinds = new Map();
  analysis.anomalies.forEach((anomaly, index) => {
    if (!kinds.has(anomaly.kind)) kinds.set(anomaly.kind, []);
    kinds.get(anomaly.kind).push(index);
  });
  const groups = [...kinds].map(([kind, indices]) => anomalyGroup(kind, indices));
  if (!groups.length) groups.push(element("p", { className: "hint" }, "Nothing out of the ordinary."));
  part("anomalies").replaceChildren(...groups);
  part("anomaly-count").textContent = grouped(analysis.anomalies.length);
}

/** All anomalies of one kind, under its name. */
function anomalyGroup(kind, indices) {
  const { name, severity } = analysis.anomalyKinds[kind];
  const items = indices.slice(0, LONGEST_LIST).map((index) => anomalyItem(analysis.anomalies[index], index));
  const more = indices.length - items.length;
  const rest = more ? element("p", { className: "hint" }, `${grouped(more)} more are marked in the diagram.`) : null;
  const summary = element("summary", { className: severity }, `${name} `, element("span", {}, grouped(indices.length)));
  return element("details", { className: "kind", open: indices.length <= UNFOLDED }, summary, ...items, rest);
}

function anomalyItem(anomaly, index) {
  const kind = analysis.anomalyKinds[anomaly.kind];
  const heading = element("span", { className: "heading" },
    element("b", {}, kind.name), element("time", {}, momentText(anomaly.time)));
  const onclick = () => jumpToAnomaly(index);
  const button = element("button", { className: "jump", onclick }, heading, element("span", { className: "sentence" }, anomaly.sentence));
  const causes = element("ul", {}, ...kind.causes.map((cause) => element("li", {}, cause)));
  const why = element("details", {}, element("summary", {}, "Why"), element("p", {}, kind.rule), causes);
  return element("article", { className: `anomaly ${kind.severity}`, data: { anomaly: index } }, button, why);
}

function markAnomaly(index) {
  for (const item of part("anomalies").querySelectorAll("article")) item.classList.toggle("chosen", item.dataset.anomaly === String(index));
  const chosen = part("anomalies").querySelector(".chosen");
  if (!chosen) return;
  chosen.closest(".kind").open = true;
  chosen.scrollIntoView({ block: "nearest" });
}

// Filters.

function fillFilters() {
  part("choices").replaceChildren(...CHOICES.map(choiceButton));
  const counts = new Map();
  for (let packet = 0; packet < packets.count; packet++) {
    const byte = opcodeByte(packet);
    counts.set(byte, (counts.get(byte) ?? 0) + 1);
  }
  const options = [...counts].sort((a, b) => b[1] - a[1]).map(([byte, count]) =>
    element("option", { value: byte }, `${analysis.opcodes[byte].title} (${grouped(count)})`));
  part("opcode").append(...options);
}

function choiceButton(choice) {
  const onclick = (event) => {
    const chosen = !filter.choices.delete(choice.key);
    if (chosen) filter.choices.add(choice.key);
    event.currentTarget.setAttribute("aria-pressed", chosen);
    applyFilter();
  };
  return element("button", { className: `choice ${choice.key}`, data: { choice: choice.key }, ariaPressed: false, onclick }, choice.label);
}

// The selected packet.

function showPacket(packet) {
  part("packet").replaceChildren(...(packet === null ? [packetHint()] : packetParts(packet)));
  showTab(packet === null ? "statistics" : "packet");
}

const packetHint = () => element("p", { className: "hint" }, "Click an arrow, or press j and k, to see its headers.");

function packetParts(packet) {
  const parts = [
    element("h2", { className: "packet-title" }, titleOf(packet)),
    element("p", { className: "remarks" }, ...remarksOf(packet).map(([text, tone]) => element("span", { className: tone }, text))),
    packet in analysis.comments ? element("p", { className: "comment" }, analysis.comments[packet]) : null,
    table("Packet", packetFields(packet)),
    packets.message[packet] === NONE ? null : table("Message", messageFields(packets.message[packet])),
    ...decode(packet).map(([name, fields]) => table(name, fields)),
    payloadPart(packet),
  ];
  return parts.filter(Boolean);
}

/** The beginning of the payload in hexadecimal digits and as text, 8 bytes to a line. */
function payloadPart(packet) {
  const bytes = payloadOf(packet);
  // The fields of a management datagram are listed above.
  if (!bytes.length || analysis.managed[packet]) return null;
  const lines = [];
  for (let at = 0; at < bytes.length; at += 8) lines.push(payloadLine(at, bytes.subarray(at, at + 8)));
  const rest = packets.length[packet] - bytes.length;
  if (rest > 0) lines.push(`and ${grouped(rest)} bytes`);
  return element("section", { className: "payload" }, element("h3", {}, "Payload"), element("pre", {}, lines.join("\n")));
}

function payloadLine(at, bytes) {
  const digits = Array.from(bytes, (byte) => hex(byte, 2)).join(" ").padEnd(23);
  const text = Array.from(bytes, (byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
  return `${hex(at, 4)}  ${digits}  ${text}`;
}

const REMARKS = {
  retransmitted: ["sent before", "odd"],
  lost: ["did not arrive", "bad"],
  damaged: ["ICRC is wrong", "bad"],
  needless: ["already settled", "plain"],
  stray: ["answers nothing in this capture", "plain"],
  late: ["out of order", "odd"],
  cut: ["captured in part", "plain"],
  congested: ["congestion marked", "odd"],
  faulted: ["fault injected on purpose", "odd"],
};

function remarksOf(packet) {
  return Object.keys(REMARKS).filter((name) => hasMark(packet, MARK[name])).map((name) => REMARKS[name]);
}

function packetFields(packet) {
  const [sender, receiver] = [senderOf(packet), receiverOf(packet)];
  return [
    ["Frame", grouped(packets.frame[packet])],
    ["Time", momentText(packets.time[packet])],
    packets.flight[packet] ? ["On the way", timeText(packets.flight[packet])] : null,
    ["From", `${sender.name}  port ${packets.sourcePort[packet]}`],
    ["To", receiver.name],
    ["Payload", `${grouped(packets.length[packet])} bytes`],
  ].filter(Boolean);
}

function messageFields(message) {
  const answered = messages.answered[message];
  const fields = [
    ["Operation", analysis.messages.names[messages.name[message]]],
    ["Length", `${grouped(messages.length[message])} bytes`],
    ["Outcome", analysis.messages.outcomes[messages.outcome[message]]],
    ["First packet", packetLink(messages.first[message])],
  ];
  if (messages.response[message] !== NONE) fields.push(["Response", packetLink(messages.response[message])]);
  if (!Number.isNaN(answered)) fields.push(["Answered after", timeText(Math.max(0, answered - messages.sent[message]))]);
  return fields;
}

function packetLink(packet) {
  return element("button", { className: "link", onclick: () => selectPacket(packet) }, `frame ${grouped(packets.frame[packet])}`);
}

function table(name, fields) {
  const rows = fields.map(([label, value]) => element("tr", {}, element("th", {}, label), element("td", {}, value instanceof Node ? value : String(value))));
  return element("table", {}, element("caption", {}, name), element("tbody", {}, ...rows));
}

function showTab(name) {
  for (const tab of document.querySelectorAll("[data-tab]")) tab.setAttribute("aria-selected", tab.dataset.tab === name);
  for (const one of ["packet", "statistics"]) part(one).hidden = one !== name;
}
