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

function fillAnomalies() {
  const list = analysis.anomalies.slice(0, LONGEST_LIST).map(anomalyItem);
  if (!list.length) list.push(element("p", { className: "hint" }, "Nothing out of the ordinary."));
  if (analysis.anomalies.length > LONGEST_LIST) {
    list.push(element("p", { className: "hint" }, `${grouped(analysis.anomalies.length - LONGEST_LIST)} more are marked in the diagram.`));
  }
  part("anomalies").replaceChildren(...list);
  part("anomaly-count").textContent = grouped(analysis.anomalies.length);
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
  for (const item of part("anomalies").children) item.classList.toggle("chosen", item.dataset.anomaly === String(index));
  part("anomalies").querySelector(".chosen")?.scrollIntoView({ block: "nearest" });
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
  return element("button", { className: `choice ${choice.key}`, ariaPressed: false, onclick }, choice.label);
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
  ];
  return parts.filter(Boolean);
}

const REMARKS = {
  repeated: ["sent before", "odd"],
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
  if (messages.answer[message] !== NONE) fields.push(["Answer", packetLink(messages.answer[message])]);
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
