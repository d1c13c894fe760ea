"""InfiniStore: puts sixteen blocks into the server's memory and gets them back."""

import asyncio
import sys

import infinistore
import numpy as np

from meeting import pattern

BLOCK = 64 << 10
BLOCKS = 16

address, device = sys.argv[1:]
connection = infinistore.InfinityConnection(
    infinistore.ClientConfig(
        host_addr=address,
        service_port=22345,
        connection_type=infinistore.TYPE_RDMA,
        dev_name=device,
        ib_port=1,
        link_type=infinistore.LINK_ETHERNET,
        log_level="info",
    )
)
connection.connect()
source = np.frombuffer(pattern(BLOCK * BLOCKS, 7), dtype=np.uint8).copy()
copy = np.zeros_like(source)
for memory in (source, copy):
    connection.register_mr(memory.ctypes.data, memory.nbytes)
keys = [(f"key{number}", number * BLOCK) for number in range(BLOCKS)]


async def there_and_back():
    await connection.rdma_write_cache_async(keys, BLOCK, source.ctypes.data)
    await connection.rdma_read_cache_async(keys, BLOCK, copy.ctypes.data)


asyncio.run(there_and_back())
assert (source == copy).all()
assert connection.check_exist("key3")
assert not connection.check_exist("another")
connection.close()
print("the data is right")
