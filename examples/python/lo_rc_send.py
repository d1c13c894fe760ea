#!/usr/bin/env python3
"""Two queue pairs in one process, and one SEND between them.

The smallest complete RDMA program: it has one of each object that RDMA needs.

    roci run --pcap lo_rc_send.pcapng -- python3 examples/python/lo_rc_send.py

It uses only pyverbs, so it also runs on RDMA hardware and on the kernel's Soft-RoCE.
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
BUFFER_SIZE = 64
PORT = 1  # RoCE devices have one port, and port numbers begin at 1


class Side:
    """One side of the connection."""

    def __init__(self, name, context, domain, first_psn):
        self.name = name
        self.first_psn = first_psn
        # Where the device reports the results of work requests.
        self.completions = CQ(context, 16)
        # Memory that the device may access. LOCAL_WRITE: it may store received messages here.
        self.memory = MR(domain, BUFFER_SIZE, e.IBV_ACCESS_LOCAL_WRITE)
        capacity = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        wanted = QPInitAttr(
            qp_type=e.IBV_QPT_RC,
            scq=self.completions,
            rcq=self.completions,
            cap=capacity,
            sq_sig_all=1,
        )
        # With these attributes, pyverbs moves the new queue pair from RESET to INIT.
        self.pair = QP(domain, wanted, QPAttr(port_num=PORT))
        print(f"{name:<12} queue pair {self.pair.qp_num:#x}, first sequence number {first_psn:#x}")

    def connect(self, peer, route):
        """Goes from INIT to RTR (ready to receive) and RTS (ready to send)."""
        attributes = QPAttr(port_num=PORT)
        # For RTR: the peer and its first sequence number.
        attributes.dest_qp_num = peer.pair.qp_num
        attributes.rq_psn = peer.first_psn
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.ah_attr = AHAttr(port_num=PORT, is_global=1, gr=route)
        attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer = 12
        # For RTS: our first sequence number, timeout and retry counts.
        attributes.sq_psn = self.first_psn
        attributes.max_rd_atomic = 1
        attributes.timeout = 16
        attributes.retry_cnt = 7
        attributes.rnr_retry = 7
        self.pair.to_rts(attributes)

    def segment(self, length):
        return [SGE(self.memory.buf, length, self.memory.lkey)]

    def wait(self):
        """Polls until a request has completed."""
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
    parser.add_argument("--gid-index", type=int, help="GID index [default: the first with an IPv4 address]")
    options = parser.parse_args()

    name = options.device or d.get_device_list()[0].name.decode()
    context = d.Context(name=name)
    index = options.gid_index if options.gid_index is not None else ipv4_index(context)
    gid = context.query_gid(PORT, index)
    print(f"device       {name}, GID index {index} = {gid}")

    # A queue pair can only access memory in its own protection domain.
    domain = PD(context)
    left = Side("left", context, domain, first_psn=0x123456)
    right = Side("right", context, domain, first_psn=0xABCDEF)

    # Post the receive before the send. A message without a posted receive is rejected (RNR).
    right.pair.post_recv(RecvWR(wr_id=2, sg=right.segment(BUFFER_SIZE), num_sge=1))
    print(f"right        posts a receive of up to {BUFFER_SIZE} bytes, work request 2")
    route = GlobalRoute(dgid=gid, sgid_index=index, hop_limit=64)
    left.connect(right, route)
    right.connect(left, route)
    print("both         INIT -> RTR -> RTS: connected")

    left.memory.write(MESSAGE, len(MESSAGE))
    left.pair.post_send(SendWR(wr_id=1, opcode=e.IBV_WR_SEND, sg=left.segment(len(MESSAGE)), num_sge=1))
    print(f"left         posts a SEND of {len(MESSAGE)} bytes, work request 1")

    # The receiver's completion: the message is in its buffer.
    received = right.wait()
    text = right.memory.read(received.byte_len, 0).decode()
    print(f'right        work request {received.wr_id} completed: {received.byte_len} bytes, "{text}"')

    # The sender's completion: the receiver has acknowledged it, so the buffer can be reused.
    sent = left.wait()
    print(f"left         work request {sent.wr_id} completed: the peer has acknowledged it")
    assert text == MESSAGE


def ipv4_index(context):
    """The index of the first GID with an IPv4 address, which most networks use."""
    table = context.query_gid_table(max_entries=context.query_port(PORT).gid_tbl_len)
    mapped = (entry.gid_index for entry in table if ":ffff:" in entry.gid_str())
    return next(mapped, table[0].gid_index)


if __name__ == "__main__":
    main()
