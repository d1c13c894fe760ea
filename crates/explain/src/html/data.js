// The data of the capture: columns of numbers, one entry per packet, and a few small lists.

const analysis = JSON.parse(document.getElementById("analysis").textContent);

function bytesOf(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

const column = (Type, text) => new Type(bytesOf(text).buffer);

const packets = {
  count: analysis.packets.count,
  /** Nanoseconds since the first packet. */
  time: column(Float64Array, analysis.packets.time),
  /** Nanoseconds on the way, where both ends were captured; else 0. */
  flight: column(Uint32Array, analysis.packets.flight),
  /** Its number in the capture file, as Wireshark counts. */
  frame: column(Uint32Array, analysis.packets.frame),
  connection: column(Uint32Array, analysis.packets.connection),
  /** The end of the connection that sent it: 0 is the left one. */
  side: column(Uint8Array, analysis.packets.side),
  role: column(Uint8Array, analysis.packets.role),
  marks: column(Uint16Array, analysis.packets.marks),
  message: column(Uint32Array, analysis.packets.message),
  /** Bytes of payload. */
  length: column(Uint16Array, analysis.packets.length),
  sourcePort: column(Uint16Array, analysis.packets.sourcePort),
  /** Transport headers, one packet's behind the other's, and where each ends. */
  heads: column(Uint8Array, analysis.packets.heads),
  headEnds: column(Uint32Array, analysis.packets.headEnds),
  /** The first bytes of each payload, likewise. */
  payloads: column(Uint8Array, analysis.packets.payloads),
  payloadEnds: column(Uint32Array, analysis.packets.payloadEnds),
};

const messages = {
  /** When its last packet left and when it was answered (NaN: never), in nanoseconds. */
  sent: column(Float64Array, analysis.messages.sent),
  answered: column(Float64Array, analysis.messages.answered),
  first: column(Uint32Array, analysis.messages.first),
  response: column(Uint32Array, analysis.messages.response),
  length: column(Float64Array, analysis.messages.length),
  /** An index of `analysis.messages.names` and one of `analysis.messages.outcomes`. */
  name: column(Uint8Array, analysis.messages.name),
  outcome: column(Uint8Array, analysis.messages.outcome),
  /** How many of its packets were retransmitted, at most 255. */
  retransmitted: column(Uint8Array, analysis.messages.retransmitted),
};

const NONE = 0xffffffff;
const MARK = analysis.marks;
const ROLE = analysis.roles;

/** How a packet is coloured and counted. A greater one hides a smaller one. */
const KIND = { request: 0, response: 1, manage: 2, odd: 3, bad: 4 };
const kindOf = classified();

function classified() {
  const bad = MARK.lost | MARK.damaged;
  const odd = MARK.retransmitted | MARK.late;
  const byRole = new Uint8Array(16);
  byRole[ROLE.response] = byRole[ROLE.acknowledge] = KIND.response;
  byRole[ROLE.manage] = KIND.manage;
  byRole[ROLE["not-ready"]] = byRole[ROLE.congestion] = KIND.odd;
  byRole[ROLE.reject] = KIND.bad;
  const kinds = new Uint8Array(packets.count);
  for (let packet = 0; packet < kinds.length; packet++) {
    const marks = packets.marks[packet];
    const marked = marks & bad ? KIND.bad : marks & odd ? KIND.odd : 0;
    kinds[packet] = Math.max(marked, byRole[packets.role[packet]]);
  }
  return kinds;
}

const hasMark = (packet, marks) => (packets.marks[packet] & marks) !== 0;
const connectionOf = (packet) => analysis.connections[packets.connection[packet]];
const senderOf = (packet) => connectionOf(packet).ends[packets.side[packet]];
const receiverOf = (packet) => connectionOf(packet).ends[1 - packets.side[packet]];

const headStart = (packet) => (packet ? packets.headEnds[packet - 1] : 0);
const headOf = (packet) => packets.heads.subarray(headStart(packet), packets.headEnds[packet]);
const payloadOf = (packet) => packets.payloads.subarray(packet ? packets.payloadEnds[packet - 1] : 0, packets.payloadEnds[packet]);
const opcodeByte = (packet) => packets.heads[headStart(packet)];
const opcodeOf = (packet) => analysis.opcodes[opcodeByte(packet)];

/** The low 24 bits of a word of the BTH. */
function numberAt(packet, offset) {
  const at = headStart(packet) + offset;
  const { heads } = packets;
  return (heads[at] << 16) | (heads[at + 1] << 8) | heads[at + 2];
}

const destinationOf = (packet) => numberAt(packet, 5);
const psnOf = (packet) => numberAt(packet, 9);

/** How many packets of its message should have come before a packet and are not in the capture. */
const missingBefore = gaps();

function gaps() {
  const found = new Map();
  const latest = new Map();
  for (let packet = 0; packet < packets.count; packet++) {
    const message = packets.message[packet];
    if (message === NONE || !opcodeOf(packet).continues) continue;
    const direction = message * 2 + packets.side[packet];
    const psn = psnOf(packet);
    const step = latest.has(direction) ? (psn - latest.get(direction)) & 0xffffff : 1;
    // A distance above half of the PSN space is negative: the sender went back.
    if (step > 1 && step < 0x800000) found.set(packet, step - 1);
    latest.set(direction, psn);
  }
  return found;
}

/** The name that stands on the arrow. */
function titleOf(packet) {
  const managed = analysis.managed[packet];
  if (managed) return managed.title;
  return isRejection(packet) ? syndromeWords(headOf(packet)[12]) : acknowledgementName(packet) ?? opcodeOf(packet).title;
}

/** ACK, NAK and RNR NAK have one opcode. */
function acknowledgementName(packet) {
  const role = packets.role[packet];
  if (role === ROLE.acknowledge) return "ACK";
  if (role === ROLE.reject) return "NAK";
  return role === ROLE["not-ready"] ? "RNR NAK" : null;
}

function isRejection(packet) {
  const role = packets.role[packet];
  return role === ROLE.reject || role === ROLE["not-ready"];
}

// Numbers as text.

const hex = (value, digits) => value.toString(16).padStart(digits, "0");
const qpnText = (value) => `0x${hex(value, 6)}`;
const grouped = (value) => value.toLocaleString("en-US");

function shareText(part, whole) {
  if (!part || !whole) return "";
  const percent = (100 * part) / whole;
  return percent < 0.1 ? "< 0.1 %" : `${percent.toFixed(1)} %`;
}

/** A duration with the unit that suits it. */
function timeText(nanoseconds) {
  if (nanoseconds >= 1e9) return `${digits(nanoseconds / 1e9)} s`;
  if (nanoseconds >= 1e6) return `${digits(nanoseconds / 1e6)} ms`;
  if (nanoseconds >= 1e3) return `${digits(nanoseconds / 1e3)} µs`;
  return `${Math.round(nanoseconds)} ns`;
}

/** Four digits that count. */
const digits = (value) => value.toFixed(value >= 100 ? 1 : value >= 10 ? 2 : 3);

/** A moment since the first packet: one unit for the whole capture, so that a column lines up. */
const momentText = momentFormat(packets.count ? packets.time[packets.count - 1] : 0);

function momentFormat(duration) {
  if (duration >= 1e10) return (time) => `${(time / 1e9).toFixed(6)} s`;
  if (duration >= 1e7) return (time) => `${(time / 1e6).toFixed(4)} ms`;
  return (time) => `${(time / 1e3).toFixed(2)} µs`;
}

function scaledText(value, unit) {
  const steps = ["", "k", "M", "G", "T"];
  let step = 0;
  while (value >= 1000 && step < steps.length - 1) { value /= 1000; step++; }
  return `${step ? digits(value) : Math.round(value)} ${steps[step]}${unit}`;
}
