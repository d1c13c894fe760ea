"""InfiniStore's server without its web page. `python -m infinistore.server` needs the right to change its OOM score."""

import asyncio
import sys

import infinistore
import uvloop

address, device = sys.argv[1:]
config = infinistore.ServerConfig(
    host=address,
    service_port=22345,
    manage_port=18080,
    dev_name=device,
    ib_port=1,
    link_type=infinistore.LINK_ETHERNET,
    prealloc_size=1,
    minimal_allocate_size=64,
    auto_increase=False,
    log_level="info",
    evict_interval=5,
    evict_min_threshold=0.6,
    evict_max_threshold=0.8,
    enable_periodic_evict=False,
)
loop = uvloop.new_event_loop()
asyncio.set_event_loop(loop)
infinistore.register_server(loop, config)
print("ready", flush=True)
loop.run_forever()
