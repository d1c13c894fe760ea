// Writes the shown packets as a capture (pcapng): headers and the beginning of the payload, as a capture with a snap
// length has them.

const ROCE_PORT = 4791;
const LINKTYPE_RAW = 101;

function exportShown() {
  const blocks = [sectionHeader(), interfaceDescription(), ...Array.from(ladder.rows, packetBlock)];
  const address = URL.createObjectURL(new Blob(blocks, { type: "application/x-pcapng" }));
  const link = element("a", { href: address, download: "selection.pcapng" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

/** A block: its type, its length, its content and its length once more. */
function block(type, content) {
  const padded = (content.length + 3) & ~3;
  const bytes = new Uint8Array(padded + 12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, type, true);
  view.setUint32(4, bytes.length, true);
  bytes.set(content, 8);
  view.setUint32(bytes.length - 4, bytes.length, true);
  return bytes;
}

function words(...values) {
  const bytes = new Uint8Array(values.length * 4);
  const view = new DataView(bytes.buffer);
  values.forEach((value, index) => view.setUint32(index * 4, value >>> 0, true));
  return bytes;
}

// Byte order, version 1.0, and a length that is not known.
const sectionHeader = () => block(0x0a0d0d0a, words(0x1a2b3c4d, 1, 0xffffffff, 0xffffffff));

// No limit of length. The option says that timestamps count nanoseconds.
const interfaceDescription = () => block(1, words(LINKTYPE_RAW, 0, (1 << 16) | 9, 9, 0));

function packetBlock(packet) {
  const time = BigInt(Math.round(analysis.capture.start * 1e6)) + BigInt(Math.round(packets.time[packet]));
  const datagram = datagramOf(packet);
  const start = words(0, Number(time >> 32n), Number(time & 0xffffffffn), datagram.bytes.length, datagram.length);
  return block(6, joined(start, datagram.bytes));
}

function joined(...parts) {
  const bytes = new Uint8Array(parts.reduce((sum, one) => sum + one.length, 0));
  let place = 0;
  for (const one of parts) { bytes.set(one, place); place += one.length; }
  return bytes;
}

/** What is known of a datagram, and how long it was. */
function datagramOf(packet) {
  const head = headOf(packet);
  const pad = (head[1] >> 4) & 3;
  // The ICRC is at the end.
  const udp = 8 + head.length + packets.length[packet] + pad + 4;
  const [source, destination] = [senderOf(packet), receiverOf(packet)].map((end) => addressBytes(end.name));
  const ip = source.length === 4 ? ipv4Header(source, destination, udp) : ipv6Header(source, destination, udp);
  const udpHeader = Uint8Array.of(packets.sourcePort[packet] >> 8, packets.sourcePort[packet] & 255, ROCE_PORT >> 8, ROCE_PORT & 255, udp >> 8, udp & 255, 0, 0);
  return { bytes: joined(ip, udpHeader, head, payloadOf(packet)), length: ip.length + udp };
}

function ipv4Header(source, destination, length) {
  const header = joined(Uint8Array.of(0x45, 0, (length + 20) >> 8, (length + 20) & 255, 0, 0, 0x40, 0, 64, 17, 0, 0), source, destination);
  let sum = 0;
  for (let at = 0; at < 20; at += 2) sum += (header[at] << 8) | header[at + 1];
  sum = (sum & 0xffff) + (sum >> 16);
  sum = ~(sum + (sum >> 16)) & 0xffff;
  header[10] = sum >> 8;
  header[11] = sum & 255;
  return header;
}

const ipv6Header = (source, destination, length) => joined(Uint8Array.of(0x60, 0, 0, 0, length >> 8, length & 255, 17, 64), source, destination);

/** The bytes of an address of either family. */
function addressBytes(name) {
  if (!name.includes(":")) return Uint8Array.from(name.split(".").map(Number));
  const [before, after] = name.split("::").map((half) => (half ? half.split(":") : []));
  const groups = after ? [...before, ...Array(8 - before.length - after.length).fill("0"), ...after] : before;
  return Uint8Array.from(groups.flatMap((group) => { const value = parseInt(group, 16); return [value >> 8, value & 255]; }));
}
