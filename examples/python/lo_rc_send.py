#!/usr/bin/env python3
"""Two queue pairs in one process, and one SEND between them.

The smallest whole RDMA program: every object that there has to be, once.

    roci run --pcap lo_rc_send.pcapng -- python3 examples/python/lo_rc_send.py

It uses pyverbs and nothing else, so it runs on RDMA hardware and on the kernel's Soft-RoCE too.
"""

import argparse

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

MESSAGE = "hello, queue pair"
ROOM = 64
PORT = 1  # RoCE devices have one port, and ports count from 1


class Side:
    """What one end of a conversation consists of."""

    def __init__(self, name, context, domain, first_psn):
        self.name = name
        self.first_psn = first_psn
        # Where the device tells what became of our requests.
        self.completions = CQ(context, 16)
        # Memory that the device may use. LOCAL_WRITE: also for messages that arrive.
        self.memory = MR(domain, ROOM, e.IBV_ACCESS_LOCAL_WRITE)
        capacity = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        wanted = QPInitAttr(
            qp_type=e.IBV_QPT_RC,
            scq=self.completions,
            rcq=self.completions,
            cap=capacity,
            sq_sig_all=1,
        )
        # Given attributes, pyverbs takes the new queue pair from RESET to INIT by itself.
        self.pair = QP(domain, wanted, QPAttr(port_num=PORT))
        print(f"{name:<12} queue pair {self.pair.qp_num:#x}, first sequence number {first_psn:#x}")

    def connect(self, peer, route):
        """INIT, then RTR (ready to receive), then RTS (ready to send)."""
        attributes = QPAttr(port_num=PORT)
        # For RTR: who is the peer, and what will it send first?
        attributes.dest_qp_num = peer.pair.qp_num
        attributes.rq_psn = peer.first_psn
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.ah_attr = AHAttr(port_num=PORT, is_global=1, gr=route)
        attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer = 12
        # For RTS: what do we send first, and how patient are we?
        attributes.sq_psn = self.first_psn
        attributes.max_rd_atomic = 1
        attributes.timeout = 16
        attributes.retry_cnt = 7
        attributes.rnr_retry = 7
        self.pair.to_rts(attributes)

    def piece(self, length):
        return [SGE(self.memory.buf, length, self.memory.lkey)]

    def wait(self):
        """Polls until something has completed."""
        while True:
            number, completions = self.completions.poll()
            if number:
                break
        completion = completions[0]
        if completion.status != e.IBV_WC_SUCCESS:
            raise SystemExit(f"{self.name}: request {completion.wr_id} failed: {completion}")
        return completion


def main():
    parser = argparse.ArgumentParser(description="SEND a message from one queue pair to another")
    parser.add_argument("--device", help="the device [default: the first]")
    parser.add_argument("--gid-index", type=int, help="which entry of the GID table [default: an IPv4 one]")
    options = parser.parse_args()

    name = options.device or d.get_device_list()[0].name.decode()
    context = d.Context(name=name)
    index = options.gid_index if options.gid_index is not None else ipv4_index(context)
    gid = context.query_gid(PORT, index)
    print(f"device       {name}, GID index {index} = {gid}")

    # The protection domain is a fence: a queue pair can only touch memory of its own domain.
    domain = PD(context)
    left = Side("left", context, domain, first_psn=0x123456)
    right = Side("right", context, domain, first_psn=0xABCDEF)

    # A receive first, and only then a send: a message that finds none is turned away (RNR).
    right.pair.post_recv(RecvWR(wr_id=2, sg=right.piece(ROOM), num_sge=1))
    print(f"right        has room for a message of up to {ROOM} bytes")
    route = GlobalRoute(dgid=gid, sgid_index=index, hop_limit=64)
    left.connect(right, route)
    right.connect(left, route)
    print("both         INIT -> RTR -> RTS: connected")

    left.memory.write(MESSAGE, len(MESSAGE))
    left.pair.post_send(SendWR(wr_id=1, opcode=e.IBV_WR_SEND, sg=left.piece(len(MESSAGE)), num_sge=1))
    print(f"left         posts a SEND of {len(MESSAGE)} bytes, work request 1")

    # The receiver's completion: the message is in its memory.
    received = right.wait()
    text = right.memory.read(received.byte_len, 0).decode()
    print(f'right        work request {received.wr_id} completed: {received.byte_len} bytes, "{text}"')

    # The sender's completion: the receiver has acknowledged it, so the memory is ours again.
    sent = left.wait()
    print(f"left         work request {sent.wr_id} completed: the other end has acknowledged it")
    assert text == MESSAGE


def ipv4_index(context):
    """The first GID that stands for an IPv4 address: that is what most networks carry."""
    table = context.query_gid_table(max_entries=context.query_port(PORT).gid_tbl_len)
    mapped = (entry.gid_index for entry in table if ":ffff:" in entry.gid_str())
    return next(mapped, table[0].gid_index)


if __name__ == "__main__":
    main()
