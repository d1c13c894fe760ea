// Which packets are shown.

const CHOICES = [
  { key: "request", label: "Requests", test: (packet) => packets.role[packet] === ROLE.request },
  { key: "response", label: "Responses", test: (packet) => [ROLE.response, ROLE.acknowledge].includes(packets.role[packet]) },
  { key: "manage", label: "CM", test: (packet) => packets.role[packet] === ROLE.manage },
  { key: "retransmitted", label: "Retransmitted", test: (packet) => hasMark(packet, MARK.retransmitted) },
  { key: "lost", label: "Lost", test: (packet) => hasMark(packet, MARK.lost | MARK.damaged) },
  { key: "rejected", label: "NAK and RNR", test: isRejection },
];

const filter = {
  /** Index of a connection, or null for all. */
  connection: null,
  /** Keys of choices; a packet must suit one of them. None means all. */
  choices: new Set(),
  /** Byte of an opcode, or null for all. */
  opcode: null,
  text: "",
};

/** Indices of the packets that pass, in the order of the capture. */
function passing() {
  const found = new Uint32Array(packets.count);
  const tests = filterTests();
  let count = 0;
  for (let packet = 0; packet < packets.count; packet++) {
    if (tests.every((test) => test(packet))) found[count++] = packet;
  }
  return found.subarray(0, count);
}

const filterTests = () => filterParts().map((part) => part.test);

/** The parts of the filter, each with a name for the reader. A packet must pass all of them. */
function filterParts() {
  const parts = [];
  const add = (name, test) => parts.push({ name, test });
  if (filter.connection !== null) add("the connection", (packet) => packets.connection[packet] === filter.connection);
  if (filter.opcode !== null) add("the opcode", (packet) => opcodeByte(packet) === filter.opcode);
  const wanted = CHOICES.filter((choice) => filter.choices.has(choice.key));
  if (wanted.length) add(wanted.map((choice) => choice.label).join(", "), (packet) => wanted.some((choice) => choice.test(packet)));
  for (const word of filter.text.toLowerCase().split(/\s+/).filter(Boolean)) {
    const test = word.startsWith("!") ? negated(word.slice(1)) : wordTest(word);
    if (test) add(`"${word}"`, test);
  }
  return parts;
}

/** Nothing for a single exclamation mark, behind which the reader still types. */
function negated(word) {
  const test = word ? wordTest(word) : null;
  return test && ((packet) => !test(packet));
}

/** What to do if no packet passes. */
function filterHint() {
  const parts = filterParts();
  const guilty = parts.find((one) => {
    const others = parts.filter((other) => other !== one);
    for (let packet = 0; packet < packets.count; packet++) if (others.every((other) => other.test(packet))) return true;
    return false;
  });
  const without = guilty && parts.length > 1 ? ` Without ${guilty.name}, some would.` : "";
  return `No packet passes the filter.${without} Words are names, addresses or numbers; !word leaves packets out.`;
}

/** A word is a number, of a packet or a queue pair, or a part of a name, an address or a remark. */
function wordTest(word) {
  const named = /^(psn|qp|frame|len)[:=](.+)$/.exec(word);
  if (named) return fieldTest(named[1], Number(named[2]));
  if (Number.isInteger(Number(word))) return numberTest(Number(word));
  const matches = (text) => text.toLowerCase().includes(word);
  const opcodes = Array.from({ length: 256 }, (_, byte) => byte in analysis.opcodes && opcodeMatches(analysis.opcodes[byte], matches));
  const connections = analysis.connections.map((one) => one.ends.some((end) => matches(end.name)));
  return (packet) => opcodes[opcodeByte(packet)] || connections[packets.connection[packet]] || textMatches(packet, matches);
}

function numberTest(number) {
  const tests = ["psn", "qp", "frame"].map((name) => fieldTest(name, number));
  return (packet) => tests.some((test) => test(packet));
}

const opcodeMatches = (opcode, matches) => matches(opcode.title) || matches(opcode.name);

function textMatches(packet, matches) {
  const managed = analysis.managed[packet];
  if (managed && (matches(managed.title) || managed.fields.some(([, value]) => matches(value)))) return true;
  if (packet in analysis.comments && matches(analysis.comments[packet])) return true;
  return isRejection(packet) && matches(titleOf(packet));
}

function fieldTest(name, value) {
  switch (name) {
    case "psn": return (packet) => psnOf(packet) === value;
    case "qp": return queuePairTest(value);
    case "frame": return (packet) => packets.frame[packet] === value;
    default: return (packet) => packets.length[packet] === value;
  }
}

/** All packets of its connections, and what was sent to it from elsewhere. */
function queuePairTest(number) {
  const connections = analysis.connections.map((one) => one.ends.some((end) => end.qpn === number));
  return (packet) => connections[packets.connection[packet]] || destinationOf(packet) === number;
}
