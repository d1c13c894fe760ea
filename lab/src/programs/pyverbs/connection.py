"""A connection by the connection manager, with a message each way."""

import sys

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.qp import QPCap, QPInitAttr

PORT = "7471"
SIZE = 100

role, server_address = sys.argv[1:]
capacity = QPCap(max_send_wr=4, max_recv_wr=4)
wanted = QPInitAttr(qp_type=e.IBV_QPT_RC, cap=capacity)

if role == "server":
    place = AddrInfo(
        src=server_address,
        src_service=PORT,
        port_space=ce.RDMA_PS_TCP,
        flags=ce.RAI_PASSIVE,
    )
    listener = CMID(creator=place, qp_init_attr=wanted)
    listener.listen()
    identifier = listener.get_request()
else:
    place = AddrInfo(dst=server_address, dst_service=PORT, port_space=ce.RDMA_PS_TCP)
    identifier = CMID(creator=place, qp_init_attr=wanted)

incoming = identifier.reg_msgs(SIZE)
outgoing = identifier.reg_msgs(SIZE)
identifier.post_recv(incoming)
if role == "server":
    identifier.accept()
else:
    identifier.connect()


def send(letter):
    outgoing.write(letter * SIZE, SIZE)
    identifier.post_send(outgoing)
    assert identifier.get_send_comp().status == e.IBV_WC_SUCCESS


def receive(letter):
    assert identifier.get_recv_comp().status == e.IBV_WC_SUCCESS
    assert incoming.read(SIZE, 0).decode() == letter * SIZE


if role == "client":
    send("q")
    receive("a")
    identifier.disconnect()
else:
    receive("q")
    send("a")
print("all bytes are right")
