#!/usr/bin/env python3
"""Two processes, one message: by SEND, which the server takes part in, or by RDMA WRITE, which it
does not even notice. And four ways to get it wrong.

    roci run --pcap server.pcapng -- python3 examples/python/rc_test.py --mode write
    roci run --pcap client.pcapng -- python3 examples/python/rc_test.py --mode write --server-ip 127.0.0.1

It uses pyverbs and nothing else, so it runs on RDMA hardware and on the kernel's Soft-RoCE too. The
Rust program of the same name speaks the same language: either can be server or client.
"""

import argparse
import ipaddress
import random
import socket
import time

import pyverbs.cm_enums as ce
import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

MESSAGE = ">>> client saying hello .......... "
BEFORE = "--- nothing has come yet ---"
ROOM = 64
PORT = 1  # RoCE devices have one port, and ports count from 1
PATIENCE = 30
HUNG_UP = "the other end hung up: its own words say why"
RNR_RETRY = 3  # 7 would mean "for ever": a missing receive would look like a program that hangs

# What is done wrong: the operation that shows it, the status that follows, and whose fault it is.
BREAKS = {
    "access": (
        "write",
        e.IBV_WC_REM_ACCESS_ERR,
        "At fault: the server. It registered its buffer without REMOTE_WRITE. A key alone is not a right.",
    ),
    "rkey": (
        "write",
        e.IBV_WC_REM_ACCESS_ERR,
        "At fault: the client. The server knows no memory with this key.",
    ),
    "addr": (
        "write",
        e.IBV_WC_REM_ACCESS_ERR,
        "At fault: the client. The text would end behind the buffer. Nothing of it was written.",
    ),
    "recv": (
        "send",
        e.IBV_WC_RNR_RETRY_EXC_ERR,
        "At fault: the server. It had posted no receive, and said so to every try (RNR NAK).",
    ),
}


def main():
    options = parse()
    if options.server_ip:
        say_hello(options)
    else:
        serve(options)


def parse():
    parser = argparse.ArgumentParser(
        description="SEND or RDMA WRITE a text from a client to a server",
        epilog="Without --server-ip it is the server. Both need the same --mode, --cm and --break.",
    )
    parser.add_argument("--device", help="the device [default: the first]")
    parser.add_argument("--mode", choices=["send", "write"], help="how the text gets to the server")
    parser.add_argument("--cm", action="store_true", help="be introduced by the connection manager")
    parser.add_argument("--server-ip", metavar="ADDR", help="the server: makes this the client")
    parser.add_argument("--gid-index", type=int, metavar="N", help="which entry of the GID table")
    parser.add_argument("--break", dest="fault", choices=BREAKS, help="do something wrong")
    parser.add_argument("--port", type=int, default=18700, help="the server's port")
    options = parser.parse_args()
    needed = BREAKS[options.fault][0] if options.fault else options.mode or "send"
    if options.mode not in (None, needed):
        parser.error("this kind of --break shows itself only with the other --mode: leave it out")
    options.mode = needed
    return options


def serve(options):
    # The mistake of --break access: the peer gets a key to memory that it may not write.
    access = e.IBV_ACCESS_LOCAL_WRITE
    if options.fault != "access":
        access |= e.IBV_ACCESS_REMOTE_WRITE
    link = ByManager(options, access) if options.cm else ByTcp(options, access)
    # The mistake of --break recv: a SEND needs a receive at the other end, and there is none.
    wants_receive = options.mode == "send" and options.fault != "recv"
    link.accept(BEFORE, wants_receive)
    if wants_receive:
        completion = link.wait_received()
        print(f"receive status {completion.status}, {completion.byte_len} bytes")
    # A WRITE completes nothing here, and neither does a failure: only the client can tell.
    link.wait_for_the_end()
    print(f'buffer  "{text(link.memory)}"')


def say_hello(options):
    link = (ByManager if options.cm else ByTcp)(options, e.IBV_ACCESS_LOCAL_WRITE)
    rkey, address, length = link.connect()
    if options.fault == "rkey":
        rkey ^= 0x5A5A5A5A  # the mistake: a key that nobody gave us
    if options.fault == "addr":
        address += length - 8  # the mistake: it begins inside of the buffer and ends outside
    link.memory.write(MESSAGE, len(MESSAGE))
    opcodes = {"send": "SEND, opcode 4", "write": "RDMA WRITE, opcode 10"}
    print(f'client  posts "{MESSAGE}": {opcodes[options.mode]}')
    if options.mode == "send":
        link.send(len(MESSAGE))
    else:
        link.write(len(MESSAGE), address, rkey)
    status = link.wait_sent().status
    link.end()
    print(f"client  the work request ended with status {status}")
    judge(status, options.fault)


def judge(status, fault):
    """A failure that was asked for is what this program is for."""
    _, expected, verdict = BREAKS[fault] if fault else (None, e.IBV_WC_SUCCESS, "")
    if status != expected:
        raise SystemExit(f"it should have ended with {expected}: does the server have the same options?")
    print(verdict)


def plan(options):
    """What both ends must want."""
    return f"mode={options.mode} break={options.fault or 'nothing'}"


def check_plan(options, said):
    if said != plan(options):
        raise SystemExit(f"the client wants `{said}` and the server `{plan(options)}`")


def fields(line):
    """`name=value name=value`, as both ends introduce themselves."""
    return dict(word.split("=", 1) for word in line.split())


def memory_fields(memory):
    return f"rkey={memory.rkey:#x} address={memory.buf:#x} length={ROOM}"


def text(memory):
    return memory.read(ROOM, 0).split(b"\0")[0].decode()


class ByTcp:
    """Two ends that tell each other over a TCP socket where they are."""

    def __init__(self, options, access):
        self.options = options
        name = options.device or first_device(options.server_ip)
        self.context = d.Context(name=name)
        self.index = options.gid_index if options.gid_index is not None else ipv4_index(self.context)
        self.gid = self.context.query_gid(PORT, self.index)
        print(f"device  {name}, GID index {self.index} = {self.gid}")
        self.domain = PD(self.context)
        self.completions = CQ(self.context, 16)
        self.memory = MR(self.domain, ROOM, access)
        self.psn = random.getrandbits(24)
        wanted = queue_pair_attributes(self.completions)
        # RESET -> INIT. What a peer may do is asked of the queue pair, too, not only of the memory.
        start = QPAttr(port_num=PORT)
        start.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        self.pair = QP(self.domain, wanted, start)

    def introduction(self):
        own = f"gid={self.gid} qpn={self.pair.qp_num:#x} psn={self.psn:#x}"
        return f"{own} {memory_fields(self.memory)}"

    def accept(self, before, wants_receive):
        self.memory.write(before, len(before))
        print(f'buffer  "{text(self.memory)}"')
        listener = socket.create_server(("", self.options.port))
        print(f"server  waits for a client at TCP port {self.options.port}", flush=True)
        connection, _ = listener.accept()
        self.lines = connection.makefile("rw")
        check_plan(self.options, self.hear())
        client = fields(self.hear())
        if wants_receive:
            self.pair.post_recv(RecvWR(wr_id=1, sg=self.piece(ROOM), num_sge=1))
        # First ready, then known: a peer may send as soon as it knows us.
        self.to_rts(client)
        self.say(self.introduction())
        print(f"server  {self.introduction()}", flush=True)

    def connect(self):
        connection = call(self.options.server_ip, self.options.port)
        self.lines = connection.makefile("rw")
        self.say(plan(self.options))
        self.say(self.introduction())
        line = self.hear()
        print(f"server  {line}")
        server = fields(line)
        self.to_rts(server)
        return int(server["rkey"], 16), int(server["address"], 16), int(server["length"])

    def to_rts(self, peer):
        """INIT, then RTR (ready to receive), then RTS (ready to send)."""
        attributes = QPAttr(port_num=PORT)
        attributes.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        route = GlobalRoute(dgid=GID(peer["gid"]), sgid_index=self.index, hop_limit=64)
        attributes.ah_attr = AHAttr(port_num=PORT, is_global=1, gr=route)
        attributes.dest_qp_num = int(peer["qpn"], 16)
        attributes.rq_psn = int(peer["psn"], 16)
        attributes.sq_psn = self.psn
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer = 12
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 16, 7, RNR_RETRY
        self.pair.to_rts(attributes)

    def piece(self, length):
        return [SGE(self.memory.buf, length, self.memory.lkey)]

    def send(self, length):
        self.pair.post_send(SendWR(wr_id=1, opcode=e.IBV_WR_SEND, sg=self.piece(length), num_sge=1))

    def write(self, length, address, rkey):
        request = SendWR(wr_id=1, opcode=e.IBV_WR_RDMA_WRITE, sg=self.piece(length), num_sge=1)
        request.set_wr_rdma(rkey, address)
        self.pair.post_send(request)

    def wait_sent(self):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            number, completions = self.completions.poll()
            if number:
                return completions[0]
        raise SystemExit("nothing completed in 30 seconds: did the other end stop?")

    wait_received = wait_sent

    def end(self):
        self.say("done")

    def wait_for_the_end(self):
        self.hear()

    def say(self, line):
        try:
            # Flushed at once: a line that waits in our buffer is a peer that waits for it.
            print(line, file=self.lines, flush=True)
        except ConnectionError:
            raise SystemExit(HUNG_UP) from None

    def hear(self):
        try:
            line = self.lines.readline()
        except ConnectionError:  # It hung up with words of ours unread.
            line = ""
        if not line:
            raise SystemExit(HUNG_UP)
        return line.strip()


class ByManager:
    """Two ends that the connection manager introduces. It makes the queue pair ready, too."""

    def __init__(self, options, access):
        self.options = options
        self.access = access
        # Everything that happens to an id is an event, and comes out of a channel.
        self.channel = CMEventChannel()
        self.identifier = CMID(creator=self.channel, port_space=ce.RDMA_PS_TCP)

    def accept(self, before, wants_receive):
        # pyverbs wants the id to be at a device from the start, so it needs an address of one.
        place = AddrInfo(
            src=own_address(self.options),
            src_service=str(self.options.port),
            port_space=ce.RDMA_PS_TCP,
            flags=ce.RAI_PASSIVE,
        )
        self.listener = self.identifier
        self.listener.bind_addr(place)
        self.listener.listen(backlog=1)
        print(f"server  waits for a client at port {self.options.port} of the connection manager", flush=True)
        request = self.expect(ce.RDMA_CM_EVENT_CONNECT_REQUEST)
        check_plan(self.options, said(request))
        self.identifier = CMID(creator=request, listen_id=self.listener)
        request.ack_cm_event()
        self.prepare()
        self.memory.write(before, len(before))
        print(f'buffer  "{text(self.memory)}"')
        if wants_receive:
            self.identifier.post_recv(self.memory)
        self.identifier.accept(self.parameters(memory_fields(self.memory)))
        self.expect(ce.RDMA_CM_EVENT_ESTABLISHED).ack_cm_event()

    def connect(self):
        server = AddrInfo(
            dst=self.options.server_ip,
            dst_service=str(self.options.port),
            port_space=ce.RDMA_PS_TCP,
        )
        self.identifier.resolve_addr(server, PATIENCE * 1000)
        self.expect(ce.RDMA_CM_EVENT_ADDR_RESOLVED).ack_cm_event()
        self.identifier.resolve_route(PATIENCE * 1000)
        self.expect(ce.RDMA_CM_EVENT_ROUTE_RESOLVED).ack_cm_event()
        self.prepare()
        self.identifier.connect(self.parameters(plan(self.options)))
        established = self.expect(ce.RDMA_CM_EVENT_ESTABLISHED)
        line = said(established)
        established.ack_cm_event()
        print(f"server  accepts: {line}")
        server = fields(line)
        return int(server["rkey"], 16), int(server["address"], 16), int(server["length"])

    def prepare(self):
        self.identifier.create_qp(queue_pair_attributes(None))
        self.memory = MR(self.identifier.pd, ROOM, self.access)

    def parameters(self, private_data):
        parameters = ConnParam(resources=1, depth=1, rnr_retry=RNR_RETRY, data_len=len(private_data))
        parameters.set_private_data(private_data.encode())
        return parameters

    def expect(self, kind):
        event = CMEvent(self.channel)
        print(f"event   {event.event_str()}")
        if event.event_type != kind:
            raise SystemExit("another event was expected: is the server there, with the same options?")
        return event

    def send(self, length):
        self.identifier.post_send(self.memory, length=length)

    def write(self, length, address, rkey):
        self.identifier.post_write(self.memory, length, address, rkey, e.IBV_SEND_SIGNALED)

    def wait_sent(self):
        return self.identifier.get_send_comp()

    def wait_received(self):
        return self.identifier.get_recv_comp()

    def end(self):
        self.identifier.disconnect()
        self.expect(ce.RDMA_CM_EVENT_DISCONNECTED).ack_cm_event()

    def wait_for_the_end(self):
        self.expect(ce.RDMA_CM_EVENT_DISCONNECTED).ack_cm_event()
        # The good-bye wants an answer.
        self.identifier.disconnect()


def own_address(options):
    """The address behind the GID in use: a GID of RoCE v2 is an IP address."""
    context = d.Context(name=options.device or first_device(None))
    index = options.gid_index if options.gid_index is not None else ipv4_index(context)
    gid = ipaddress.IPv6Address(context.query_gid(PORT, index).gid)
    return str(gid.ipv4_mapped or gid)


def said(event):
    """Private data as text. It has no length on the wire: zeros fill it up."""
    data = event.private_data
    data = data if isinstance(data, bytes) else data.encode()
    return data.split(b"\0")[0].decode()


def queue_pair_attributes(completions):
    capacity = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
    return QPInitAttr(
        qp_type=e.IBV_QPT_RC, scq=completions, rcq=completions, cap=capacity, sq_sig_all=1
    )


def call(server, port):
    """Calls a server, which may still be starting."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection((server, port))
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"nobody answers at {server} ({error}): start the server first")
            time.sleep(0.05)


def first_device(server):
    """A device that can reach the server: loopback for this machine itself, else the first."""
    names = [device.name.decode() for device in d.get_device_list()]
    if server is None or server.startswith("127."):
        return next((name for name in names if name.endswith("lo")), names[0])
    return names[0]


def ipv4_index(context):
    """The first GID that stands for an IPv4 address: that is what most networks carry."""
    table = context.query_gid_table(max_entries=context.query_port(PORT).gid_tbl_len)
    mapped = (entry.gid_index for entry in table if ":ffff:" in entry.gid_str())
    return next(mapped, table[0].gid_index)


if __name__ == "__main__":
    main()
