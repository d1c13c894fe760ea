"""Asks a device everything that pyverbs can ask, and looks at the answers."""

import os
import sys

import pyverbs.device as d
import pyverbs.enums as e

name = sys.argv[1]
devices = {device.name.decode(): device for device in d.get_device_list()}
assert list(devices) == [name], devices
assert devices[name].guid != 0
assert devices[name].node_type == e.IBV_NODE_CA

with d.Context(name=name) as context:
    attributes = context.query_device()
    assert attributes.max_qp > 0 and attributes.max_sge > 0, attributes
    assert attributes.phys_port_cnt == 1
    extended = context.query_device_ex()
    assert extended.odp_caps.general_caps & e.IBV_ODP_SUPPORT
    port = context.query_port(1)
    assert port.state == e.IBV_PORT_ACTIVE, port
    assert port.link_layer == e.IBV_LINK_LAYER_ETHERNET, port
    assert context.query_pkey(port_num=1, index=0) == 0xFFFF
    table = context.query_gid_table(max_entries=port.gid_tbl_len)
    assert len(table) == 2, table
    assert context.query_gid(1, 0).gid == table[0].gid_str()
    assert context.query_gid_type(1, 0) == e.IBV_GID_TYPE_SYSFS_ROCE_V2

# The same, for those who look into files.
directory = f"/sys/class/infiniband/{name}/ports/1"
with open(f"{directory}/gids/0") as file:
    assert file.read().strip() == table[0].gid_str(), table[0]
with open(f"{directory}/gid_attrs/types/0") as file:
    assert file.read() == "RoCE v2\n"
assert os.listdir(f"/sys/class/infiniband/{name}/device/net")
print("all answers make sense")
