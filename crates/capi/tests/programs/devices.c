/* Devices, ports, GIDs, partitions, names. */
#include "check.h"

static void look_at_port(struct ibv_context *context)
{
	struct ibv_port_attr port;
	CHECK(ibv_query_port(context, 1, &port) == 0);
	CHECK(port.state == IBV_PORT_ACTIVE);
	CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(port.max_mtu == IBV_MTU_4096);
	CHECK(port.pkey_tbl_len == 1);
	REFUSES(ibv_query_port(context, 2, &port), EINVAL);

	/* The symbol, for programs compiled when the structure was shorter. */
	struct {
		char known[48];
		char behind[16];
	} small;
	memset(&small, 0x5a, sizeof(small));
	CHECK((ibv_query_port)(context, 1, (void *)&small) == 0);
	for (size_t i = 0; i < sizeof(small.behind); i++)
		CHECK(small.behind[i] == 0x5a);
}

static void look_at_gids(struct ibv_context *context)
{
	union ibv_gid gid;
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
	CHECK(gid.raw[10] == 0xff && gid.raw[12] == 127);
	CHECK(ibv_query_gid(context, 1, 200, &gid) == 0);
	CHECK(gid.global.interface_id == 0);
	CHECK(ibv_query_gid(context, 1, 256, &gid) == -1);
	CHECK(ibv_query_gid(context, 1, -1, &gid) == -1);

	struct ibv_gid_entry entry;
	CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 0) == 0);
	CHECK(entry.gid_type == IBV_GID_TYPE_ROCE_V2);
	CHECK(entry.gid_index == 0 && entry.port_num == 1);
	REFUSES(ibv_query_gid_ex(context, 1, 200, &entry, 0), ENODATA);
	REFUSES(ibv_query_gid_ex(context, 1, 0, &entry, 1), EINVAL);

	struct ibv_gid_entry table[8];
	CHECK(ibv_query_gid_table(context, table, 8, 0) == 1);
	CHECK(ibv_query_gid_table(context, table, 0, 0) == -EINVAL);
}

static void look_at_device(struct ibv_context *context)
{
	struct ibv_device_attr attr;
	CHECK(ibv_query_device(context, &attr) == 0);
	CHECK(attr.node_guid == ibv_get_device_guid(context->device));
	CHECK(attr.vendor_id != 0 && attr.phys_port_cnt == 1);
	CHECK(attr.device_cap_flags & IBV_DEVICE_XRC);

	struct ibv_device_attr_ex extended;
	CHECK(ibv_query_device_ex(context, NULL, &extended) == 0);
	CHECK(extended.max_dm_size > 0);
	CHECK(extended.odp_caps.general_caps & IBV_ODP_SUPPORT);
	struct ibv_query_device_ex_input input = { .comp_mask = 1 };
	REFUSES(ibv_query_device_ex(context, &input, &extended), EINVAL);

	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	CHECK(ibv_query_rt_values_ex(context, &values) == 0);
	CHECK(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
}

static void look_at_partitions(struct ibv_context *context)
{
	__be16 key = 0;
	CHECK(ibv_query_pkey(context, 1, 0, &key) == 0);
	CHECK(key == 0xffff);
	CHECK(ibv_query_pkey(context, 1, 1, &key) == -1);
	CHECK(ibv_get_pkey_index(context, 1, key) == 0);
	CHECK(ibv_get_pkey_index(context, 1, 0x1234) == -1);
}

static void look_at_names(void)
{
	CHECK(strcmp(ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR),
		     "Work Request Flushed Error") == 0);
	CHECK(strcmp(ibv_event_type_str(IBV_EVENT_COMM_EST),
		     "communication established") == 0);
	CHECK(strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active") == 0);
	CHECK(strcmp(ibv_wc_status_str(1000), "unknown") == 0);
	CHECK(ibv_rate_to_mbps(IBV_RATE_5_GBPS) == 5000);
	CHECK(mbps_to_ibv_rate(425000) == IBV_RATE_400_GBPS);
	CHECK(ibv_rate_to_mult(IBV_RATE_14_GBPS) == -1);
	CHECK(mult_to_ibv_rate(4) == IBV_RATE_10_GBPS);
}

int main(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list != NULL && count == 2 && list[2] == NULL);
	for (int i = 0; i < count; i++)
		printf("%s\n", ibv_get_device_name(list[i]));
	struct ibv_device **again = ibv_get_device_list(NULL);
	CHECK(again[0] == list[0] && again[1] == list[1]);
	ibv_free_device_list(again);
	ibv_free_device_list(list);

	struct ibv_context *context = open_by_name("left");
	look_at_device(context);
	look_at_port(context);
	look_at_gids(context);
	look_at_partitions(context);
	look_at_names();
	CHECK(ibv_close_device(context) == 0);
	return finish();
}
