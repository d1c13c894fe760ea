// Headers, decoded from their bytes on demand. The fields and their texts equal those of the command;
// a test compares the two.

const syndromeWords = (syndrome) => analysis.syndromes[syndrome];
const yesOrNo = (bit) => (bit ? "yes" : "no");

function bthFields(view) {
  const byte = view.getUint8(0);
  const flags = view.getUint8(1);
  const queuePair = view.getUint32(4);
  const sequence = view.getUint32(8);
  return [
    ["Opcode", `0x${hex(byte, 2)} ${analysis.opcodes[byte].name}`],
    ["Solicited event", yesOrNo(flags & 0x80)],
    ["MigReq", yesOrNo(flags & 0x40)],
    ["Pad", (flags >> 4) & 3],
    ["P_Key", `0x${hex(view.getUint16(2), 4)}`],
    ["FECN", yesOrNo(queuePair & 0x80000000)],
    ["BECN", yesOrNo(queuePair & 0x40000000)],
    ["Destination QP", qpnText(queuePair & 0xffffff)],
    ["AckReq", yesOrNo(sequence & 0x80000000)],
    ["PSN", sequence & 0xffffff],
  ];
}

const quad = (view, at) => `0x${view.getBigUint64(at).toString(16)}`;
const key = (view, at) => `0x${hex(view.getUint32(at), 8)}`;
const target = (view) => [["Virtual address", quad(view, 0)], ["R_Key", key(view, 8)]];

function operands(view, opcode) {
  if (opcode.adds) return [["Add", view.getBigUint64(12)]];
  return [["Compare", quad(view, 20)], ["Swap", quad(view, 12)]];
}

function flushWords(view) {
  const value = view.getUint32(0);
  const range = ["range", "region"][(value >> 4) & 3] ?? "reserved range";
  return `${range}${value & 1 ? " global" : ""}${value & 2 ? " persistent" : ""}`;
}

/** One row per header behind the BTH: its length and its fields. */
const HEADERS = {
  XRCETH: [4, (view) => [["SRQ", qpnText(view.getUint32(0) & 0xffffff)]]],
  DETH: [8, (view) => [["Q_Key", key(view, 0)], ["Source QP", qpnText(view.getUint32(4) & 0xffffff)]]],
  RETH: [16, (view) => [...target(view), ["DMA length", view.getUint32(12)]]],
  AtomicETH: [28, (view, opcode) => [...target(view), ...operands(view, opcode)]],
  AETH: [4, (view) => [
    ["Syndrome", `0x${hex(view.getUint8(0), 2)} ${syndromeWords(view.getUint8(0))}`],
    ["MSN", view.getUint32(0) & 0xffffff],
  ]],
  AtomicAckETH: [8, (view) => [["Original value", quad(view, 0)]]],
  ImmDt: [4, (view) => [["Data", key(view, 0)]]],
  IETH: [4, (view) => [["R_Key", key(view, 0)]]],
  FETH: [4, (view) => [["Flush", flushWords(view)]]],
};

/** Every header of a packet as `[name, fields]`; the connection manager's message is the last. */
function decode(packet) {
  const head = headOf(packet);
  const opcode = opcodeOf(packet);
  const view = (at, length) => new DataView(head.buffer, head.byteOffset + at, length);
  const layers = [["BTH", bthFields(view(0, 12))]];
  let at = 12;
  for (const name of opcode.headers) {
    const [length, fields] = HEADERS[name];
    layers.push([name, fields(view(at, length), opcode)]);
    at += length;
  }
  const managed = analysis.managed[packet];
  if (managed) layers.push([managed.name, managed.fields]);
  return layers;
}
