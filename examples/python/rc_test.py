#!/usr/bin/env python3
"""Sends one message from a client process to a server process, by SEND or by RDMA WRITE. `--break`
makes one of four common mistakes, to show its symptoms.

    roci run --pcap server.pcapng -- python3 examples/python/rc_test.py --mode write
    roci run --pcap client.pcapng -- python3 examples/python/rc_test.py --mode write --server-ip 127.0.0.1

It uses only pyverbs, so it also runs on RDMA hardware and on the kernel's Soft-RoCE. It interoperates
with the Rust program of the same name: either can be server or client.
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
BEFORE = "--- nothing has arrived ---"
BUFFER_SIZE = 64
PORT = 1  # RoCE devices have one port, and port numbers begin at 1
TIMEOUT = 30  # seconds
CLOSED = "the peer closed the connection: see its own output for the reason"
RNR_RETRY = 3  # 7 means "forever": with a missing receive the program would seem to hang

# The mistakes: the operation that each affects, the expected status, and an explanation.
BREAKS = {
    "access": (
        "write",
        e.IBV_WC_REM_ACCESS_ERR,
        "At fault: the server. It registered its buffer without REMOTE_WRITE. A key does not imply this right.",
    ),
    "rkey": (
        "write",
        e.IBV_WC_REM_ACCESS_ERR,
        "At fault: the client. The server has no memory with this key.",
    ),
    "addr": (
        "write",
        e.IBV_WC_REM_ACCESS_ERR,
        "At fault: the client. The text would end outside the buffer. Nothing was written.",
    ),
    "recv": (
        "send",
        e.IBV_WC_RNR_RETRY_EXC_ERR,
        "At fault: the server. It had posted no receive, and answered each attempt with an RNR NAK.",
    ),
}


def main():
    options = parse()
    if options.server_ip:
        run_client(options)
    else:
        run_server(options)


def parse():
    parser = argparse.ArgumentParser(
        description="SEND or RDMA WRITE a text from a client to a server",
        epilog="Without --server-ip this is the server. Both need the same --mode, --cm and --break.",
    )
    parser.add_argument("--device", help="the device [default: one with an IPv4 address]")
    parser.add_argument("--mode", choices=["send", "write"], help="the operation")
    parser.add_argument("--cm", action="store_true", help="connect with the connection manager")
    parser.add_argument("--server-ip", metavar="ADDR", help="be the client of this server")
    parser.add_argument("--gid-index", type=int, metavar="N", help="GID index")
    parser.add_argument("--break", dest="fault", choices=BREAKS, help="make a mistake on purpose")
    parser.add_argument("--port", type=int, default=18700, help="the server's port")
    options = parser.parse_args()
    needed = BREAKS[options.fault][0] if options.fault else options.mode or "send"
    if options.mode not in (None, needed):
        parser.error("this kind of --break needs the other --mode: leave out --mode")
    options.mode = needed
    return options


def run_server(options):
    # The mistake of --break access: the peer gets a key for memory without the right to write it.
    access = e.IBV_ACCESS_LOCAL_WRITE
    if options.fault != "access":
        access |= e.IBV_ACCESS_REMOTE_WRITE
    link = ByManager(options, access) if options.cm else ByTcp(options, access)
    # The mistake of --break recv: a SEND needs a receive at the server, and there is none.
    wants_receive = options.mode == "send" and options.fault != "recv"
    link.accept(BEFORE, wants_receive)
    if wants_receive:
        completion = link.wait_received()
        print(f"receive status {completion.status}, {completion.byte_len} bytes")
    # Neither a WRITE nor a rejected request completes here, so the client reports that it is done.
    link.wait_for_the_end()
    print(f'buffer  "{text(link.memory)}"')


def run_client(options):
    link = (ByManager if options.cm else ByTcp)(options, e.IBV_ACCESS_LOCAL_WRITE)
    rkey, address, length = link.connect()
    if options.fault == "rkey":
        rkey ^= 0x5A5A5A5A  # the mistake: a key that the server did not send
    if options.fault == "addr":
        address += length - 8  # the mistake: the text begins inside the buffer and ends outside
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
    report(status, options.fault)


def report(status, fault):
    """A failure that --break asked for is a success of this program."""
    _, expected, verdict = BREAKS[fault] if fault else (None, e.IBV_WC_SUCCESS, "")
    if status != expected:
        raise SystemExit(f"it should have ended with {expected}: does the server have the same options?")
    print(verdict)


def plan(options):
    """The options that must be the same on both sides."""
    return f"mode={options.mode} break={options.fault or 'nothing'}"


def check_plan(options, client):
    if client != plan(options):
        raise SystemExit(f"the client has `{client}` and the server `{plan(options)}`")


def fields(line):
    """Parses `name=value name=value`."""
    return dict(word.split("=", 1) for word in line.split())


def memory_fields(memory):
    return f"rkey={memory.rkey:#x} address={memory.buf:#x} length={BUFFER_SIZE}"


def text(memory):
    return memory.read(BUFFER_SIZE, 0).split(b"\0")[0].decode()


class ByTcp:
    """Connects the two sides over a TCP socket."""

    def __init__(self, options, access):
        self.options = options
        name = options.device or first_device(options.server_ip)
        self.context = d.Context(name=name)
        self.index = options.gid_index if options.gid_index is not None else ipv4_index(self.context)
        self.gid = self.context.query_gid(PORT, self.index)
        print(f"device  {name}, GID index {self.index} = {self.gid}")
        self.domain = PD(self.context)
        self.completions = CQ(self.context, 16)
        self.memory = MR(self.domain, BUFFER_SIZE, access)
        self.psn = random.getrandbits(24)
        wanted = queue_pair_attributes(self.completions)
        # RESET -> INIT. A peer needs access rights on the queue pair, too, not only on the memory.
        start = QPAttr(port_num=PORT)
        start.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        self.pair = QP(self.domain, wanted, start)

    def parameters_line(self):
        own = f"gid={self.gid} qpn={self.pair.qp_num:#x} psn={self.psn:#x}"
        return f"{own} {memory_fields(self.memory)}"

    def accept(self, before, wants_receive):
        self.memory.write(before, len(before))
        print(f'buffer  "{text(self.memory)}"')
        listener = socket.create_server(("", self.options.port))
        print(f"server  waits for a client on TCP port {self.options.port}", flush=True)
        connection, _ = listener.accept()
        self.lines = connection.makefile("rw")
        check_plan(self.options, self.receive_line())
        client = fields(self.receive_line())
        if wants_receive:
            self.pair.post_recv(RecvWR(wr_id=1, sg=self.segment(BUFFER_SIZE), num_sge=1))
        # Connect before replying: the client may send as soon as it has the reply.
        self.to_rts(client)
        self.send_line(self.parameters_line())
        print(f"server  {self.parameters_line()}", flush=True)

    def connect(self):
        connection = connect_tcp(self.options.server_ip, self.options.port)
        self.lines = connection.makefile("rw")
        self.send_line(plan(self.options))
        self.send_line(self.parameters_line())
        line = self.receive_line()
        print(f"server  {line}")
        server = fields(line)
        self.to_rts(server)
        return int(server["rkey"], 16), int(server["address"], 16), int(server["length"])

    def to_rts(self, peer):
        """Goes from INIT to RTR (ready to receive) and RTS (ready to send)."""
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

    def segment(self, length):
        return [SGE(self.memory.buf, length, self.memory.lkey)]

    def send(self, length):
        self.pair.post_send(SendWR(wr_id=1, opcode=e.IBV_WR_SEND, sg=self.segment(length), num_sge=1))

    def write(self, length, address, rkey):
        request = SendWR(wr_id=1, opcode=e.IBV_WR_RDMA_WRITE, sg=self.segment(length), num_sge=1)
        request.set_wr_rdma(rkey, address)
        self.pair.post_send(request)

    def wait_sent(self):
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            number, completions = self.completions.poll()
            if number:
                return completions[0]
        raise SystemExit("nothing completed in 30 seconds: is the peer still running?")

    wait_received = wait_sent

    def end(self):
        self.send_line("done")

    def wait_for_the_end(self):
        self.receive_line()

    def send_line(self, line):
        try:
            # Flush at once: the peer waits for the line.
            print(line, file=self.lines, flush=True)
        except ConnectionError:
            raise SystemExit(CLOSED) from None

    def receive_line(self):
        try:
            line = self.lines.readline()
        except ConnectionError:  # The peer closed the connection with unread data.
            line = ""
        if not line:
            raise SystemExit(CLOSED)
        return line.strip()


class ByManager:
    """Connects the two sides with the connection manager, which also moves the queue pair to RTS."""

    def __init__(self, options, access):
        self.options = options
        self.access = access
        # The channel carries the events of the id.
        self.channel = CMEventChannel()
        self.identifier = CMID(creator=self.channel, port_space=ce.RDMA_PS_TCP)

    def accept(self, before, wants_receive):
        # pyverbs needs an id with a device, so it is bound to an address of a device.
        place = AddrInfo(
            src=own_address(self.options),
            src_service=str(self.options.port),
            port_space=ce.RDMA_PS_TCP,
            flags=ce.RAI_PASSIVE,
        )
        self.listener = self.identifier
        self.listener.bind_addr(place)
        self.listener.listen(backlog=1)
        print(f"server  waits for a client on port {self.options.port} of the connection manager", flush=True)
        request = self.expect(ce.RDMA_CM_EVENT_CONNECT_REQUEST)
        check_plan(self.options, private_text(request))
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
        self.identifier.resolve_addr(server, TIMEOUT * 1000)
        self.expect(ce.RDMA_CM_EVENT_ADDR_RESOLVED).ack_cm_event()
        self.identifier.resolve_route(TIMEOUT * 1000)
        self.expect(ce.RDMA_CM_EVENT_ROUTE_RESOLVED).ack_cm_event()
        self.prepare()
        self.identifier.connect(self.parameters(plan(self.options)))
        established = self.expect(ce.RDMA_CM_EVENT_ESTABLISHED)
        line = private_text(established)
        established.ack_cm_event()
        print(f"server  accepts: {line}")
        server = fields(line)
        return int(server["rkey"], 16), int(server["address"], 16), int(server["length"])

    def prepare(self):
        self.identifier.create_qp(queue_pair_attributes(None))
        self.memory = MR(self.identifier.pd, BUFFER_SIZE, self.access)

    def parameters(self, private_data):
        parameters = ConnParam(resources=1, depth=1, rnr_retry=RNR_RETRY, data_len=len(private_data))
        parameters.set_private_data(private_data.encode())
        return parameters

    def expect(self, kind):
        event = CMEvent(self.channel)
        print(f"event   {event.event_str()}")
        if event.event_type != kind:
            raise SystemExit("unexpected event: is the server running with the same options?")
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
        # Answer the disconnect request.
        self.identifier.disconnect()


def own_address(options):
    """The IP address of the GID in use."""
    context = d.Context(name=options.device or first_device(None))
    index = options.gid_index if options.gid_index is not None else ipv4_index(context)
    gid = ipaddress.IPv6Address(context.query_gid(PORT, index).gid)
    return str(gid.ipv4_mapped or gid)


def private_text(event):
    """Private data as text. It has no length on the wire and is padded with zeros."""
    data = event.private_data
    data = data if isinstance(data, bytes) else data.encode()
    return data.split(b"\0")[0].decode()


def queue_pair_attributes(completions):
    capacity = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
    return QPInitAttr(
        qp_type=e.IBV_QPT_RC, scq=completions, rcq=completions, cap=capacity, sq_sig_all=1
    )


def connect_tcp(server, port):
    """Connects to a server. Retries for 10 seconds, because the server may still be starting."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection((server, port))
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"can't connect to {server} ({error}): start the server first")
            time.sleep(0.05)


def first_device(server):
    """The loopback device for a server on this machine, else the first with an IPv4 address."""
    names = [device.name.decode() for device in d.get_device_list()]
    names.sort(key=lambda name: not has_ipv4(name))
    if server is None or server.startswith("127."):
        return next((name for name in names if name.endswith("lo")), names[0])
    return names[0]


def has_ipv4(name):
    with d.Context(name=name) as context:
        return any(":ffff:" in entry.gid_str() for entry in gids(context))


def gids(context):
    return context.query_gid_table(max_entries=context.query_port(PORT).gid_tbl_len)


def ipv4_index(context):
    """The index of the first GID with an IPv4 address, which most networks use."""
    table = gids(context)
    mapped = (entry.gid_index for entry in table if ":ffff:" in entry.gid_str())
    return next(mapped, table[0].gid_index)


if __name__ == "__main__":
    main()
