"""Two queue pairs of one process: SEND, WRITE and READ over RC, and a datagram over UD."""

import sys

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

SIZE = 20_000
KEY = 0x11111111
GRH = 40
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ

context = d.Context(name=sys.argv[1])
index = int(sys.argv[2])
domain = PD(context)
route = GlobalRoute(dgid=context.query_gid(1, index), sgid_index=index)


def address():
    return AHAttr(port_num=1, is_global=1, gr=route)


class Side:
    def __init__(self, kind):
        self.queue = CQ(context, 16)
        self.memory = MR(domain, SIZE, ACCESS)
        capacity = QPCap(max_send_wr=8, max_recv_wr=8)
        wanted = QPInitAttr(qp_type=kind, scq=self.queue, rcq=self.queue, cap=capacity)
        start = QPAttr(port_num=1)
        start.qkey = KEY
        start.qp_access_flags = ACCESS
        self.pair = QP(domain, wanted, start)

    def connect(self, other):
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = ACCESS
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.dest_qp_num = other.pair.qp_num
        attributes.rq_psn = attributes.sq_psn = 1
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 4
        attributes.min_rnr_timer = 12
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 14, 7, 7
        attributes.ah_attr = address()
        self.pair.to_rts(attributes)

    def piece(self, length):
        return [SGE(self.memory.buf, length, self.memory.lkey)]

    def receive(self, length):
        self.pair.post_recv(RecvWR(sg=self.piece(length), num_sge=1))

    def post(self, length, opcode, remote=None, handle=None):
        request = SendWR(sg=self.piece(length), num_sge=1, opcode=opcode)
        if remote:
            request.set_wr_rdma(remote.memory.rkey, remote.memory.buf)
        if handle:
            request.set_wr_ud(handle, remote_pair, KEY)
        self.pair.post_send(request)

    def wait(self):
        for _ in range(10_000_000):
            number, completions = self.queue.poll()
            if number:
                assert completions[0].status == e.IBV_WC_SUCCESS, completions[0]
                return
        raise TimeoutError("no completion")


def text(letter, length=SIZE):
    return letter * length


here, there = Side(e.IBV_QPT_RC), Side(e.IBV_QPT_RC)
here.connect(there)
there.connect(here)

there.receive(SIZE)
here.memory.write(text("s"), SIZE)
here.post(SIZE, e.IBV_WR_SEND)
here.wait()
there.wait()
assert there.memory.read(SIZE, 0).decode() == text("s")

here.memory.write(text("w"), SIZE)
here.post(SIZE, e.IBV_WR_RDMA_WRITE, remote=there)
here.wait()
assert there.memory.read(SIZE, 0).decode() == text("w")

there.memory.write(text("r"), SIZE)
here.post(SIZE, e.IBV_WR_RDMA_READ, remote=there)
here.wait()
assert here.memory.read(SIZE, 0).decode() == text("r")

here, there = Side(e.IBV_QPT_UD), Side(e.IBV_QPT_UD)
remote_pair = there.pair.qp_num
there.receive(512 + GRH)
here.memory.write(text("u", 512), 512)
here.post(512, e.IBV_WR_SEND, handle=AH(domain, attr=address()))
here.wait()
there.wait()
assert there.memory.read(512, GRH).decode() == text("u", 512)
print("all bytes are right")
