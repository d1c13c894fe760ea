/* Devices, ports, GIDs, partitions, names. */
#include <arpa/inet.h>
#include "check.h"

static void the_list_has_two_devices_and_an_end(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list != NULL && count == 2 && list[2] == NULL);
	for (int i = 0; i < count; i++)
		tell("  %s is a %s\n", ibv_get_device_name(list[i]),
		     ibv_node_type_str(list[i]->node_type));
	ibv_free_device_list(list);
}

static void a_second_list_has_the_same_devices(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device **again = ibv_get_device_list(NULL);
	CHECK(list != NULL && again != NULL);
	CHECK(again[0] == list[0] && again[1] == list[1]);
	ibv_free_device_list(again);
	ibv_free_device_list(list);
}

static void a_device_outlives_its_list(void)
{
	CHECK(strcmp(ibv_get_device_name(left.context->device), "left") == 0);
	CHECK(ibv_get_device_guid(left.context->device) != 0);
}

static void a_device_can_be_queried(void)
{
	struct ibv_device_attr attr;
	CHECK(ibv_query_device(left.context, &attr) == 0);
	CHECK(attr.node_guid == ibv_get_device_guid(left.context->device));
	CHECK(attr.vendor_id != 0 && attr.phys_port_cnt == 1);
	CHECK(attr.max_qp > 0 && attr.max_cq > 0 && attr.max_mr > 0 && attr.max_pd > 0);
	CHECK(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	CHECK(attr.atomic_cap == IBV_ATOMIC_HCA);
}

static void a_device_can_be_queried_for_extended_attributes(void)
{
	struct ibv_device_attr attr;
	struct ibv_device_attr_ex more;
	CHECK(ibv_query_device(left.context, &attr) == 0);
	CHECK(ibv_query_device_ex(left.context, NULL, &more) == 0);
	CHECK(more.orig_attr.node_guid == attr.node_guid);
	CHECK(more.orig_attr.max_qp == attr.max_qp);
}

static void an_unknown_query_is_rejected(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_query_device_ex_input input = { .comp_mask = 1 };
	RETURNS_ERROR(ibv_query_device_ex(left.context, &input, &attr), EINVAL);
}

static void extended_connections_are_offered(void)
{
	struct ibv_device_attr attr;
	CHECK(ibv_query_device(left.context, &attr) == 0);
	CHECK(attr.device_cap_flags & IBV_DEVICE_XRC);
}

static void device_memory_is_offered(void)
{
	struct ibv_device_attr_ex attr;
	CHECK(ibv_query_device_ex(left.context, NULL, &attr) == 0);
	CHECK(attr.max_dm_size > 0);
}

static void memory_on_demand_is_offered(void)
{
	struct ibv_device_attr_ex attr;
	CHECK(ibv_query_device_ex(left.context, NULL, &attr) == 0);
	CHECK(attr.odp_caps.general_caps & IBV_ODP_SUPPORT);
}

static void a_device_has_a_clock(void)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	RETURNS_ERROR(ibv_query_rt_values_ex(left.context, &values), 0);
	CHECK(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
}

static struct ibv_port_attr first_port(void)
{
	struct ibv_port_attr port;
	CHECK(ibv_query_port(left.context, 1, &port) == 0);
	return port;
}

static void a_port_can_be_queried(void)
{
	struct ibv_port_attr port = first_port();
	CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(port.gid_tbl_len > 200);
	tell("  state %d, physical state %d\n", port.state, port.phys_state);
	tell("  largest MTU %d, partitions %d\n", port.max_mtu, port.pkey_tbl_len);
	tell("  lid %d, subnet manager %d\n", port.lid, port.sm_lid);
}

static void there_is_no_second_port(void)
{
	struct ibv_port_attr port;
	RETURNS_ERROR(ibv_query_port(left.context, 2, &port), EINVAL);
}

/* The symbol, for programs compiled when the structure was shorter. */
static void an_old_program_gets_a_shorter_port_structure(void)
{
	struct {
		char known[48];
		char behind[16];
	} small;
	memset(&small, 0x5a, sizeof(small));
	CHECK((ibv_query_port)(left.context, 1, (void *)&small) == 0);
	for (size_t i = 0; i < sizeof(small.behind); i++)
		CHECK(small.behind[i] == 0x5a);
}

/* An IPv4 address as GIDs have it. */
static void the_own_address_is_a_gid(void)
{
	unsigned char own[16] = { [10] = 0xff, [11] = 0xff };
	CHECK(inet_pton(AF_INET, own_address(), own + 12) == 1);
	int length = first_port().gid_tbl_len, found = 0;
	for (int i = 0; i < length; i++) {
		union ibv_gid gid;
		CHECK(ibv_query_gid(left.context, 1, i, &gid) == 0);
		found += memcmp(&gid, own, sizeof(own)) == 0;
	}
	SAME(found, 1);
}

static void an_empty_gid_is_zero(void)
{
	union ibv_gid gid;
	memset(&gid, 0x5a, sizeof(gid));
	CHECK(ibv_query_gid(left.context, 1, 200, &gid) == 0);
	CHECK(gid.global.interface_id == 0 && gid.global.subnet_prefix == 0);
}

static void there_are_no_gids_outside_of_the_table(void)
{
	union ibv_gid gid;
	SAME(ibv_query_gid(left.context, 1, first_port().gid_tbl_len, &gid), -1);
	SAME(ibv_query_gid(left.context, 1, -1, &gid), -1);
}

static void a_gid_has_a_type_and_a_place(void)
{
	struct ibv_gid_entry entry;
	CHECK(ibv_query_gid_ex(left.context, 1, 0, &entry, 0) == 0);
	CHECK(memcmp(&entry.gid, &left.gid, sizeof(left.gid)) == 0);
	SAME(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	SAME(entry.gid_index, 0);
	SAME(entry.port_num, 1);
	CHECK(entry.ndev_ifindex != 0);
}

static void an_empty_index_has_no_entry(void)
{
	struct ibv_gid_entry entry;
	RETURNS_ERROR(ibv_query_gid_ex(left.context, 1, 200, &entry, 0), ENODATA);
}

static void an_unknown_entry_flag_is_rejected(void)
{
	struct ibv_gid_entry entry;
	RETURNS_ERROR(ibv_query_gid_ex(left.context, 1, 0, &entry, 1), EINVAL);
}

static void the_table_has_all_entries(void)
{
	struct ibv_gid_entry table[8], entry;
	int length = first_port().gid_tbl_len, filled = 0;
	for (int i = 0; i < length; i++)
		filled += ibv_query_gid_ex(left.context, 1, i, &entry, 0) == 0;
	SAME(ibv_query_gid_table(left.context, table, 8, 0), filled);
	CHECK(memcmp(&table[0].gid, &left.gid, sizeof(left.gid)) == 0);
}

static void a_short_table_is_rejected(void)
{
	struct ibv_gid_entry table[1];
	SAME(ibv_query_gid_table(left.context, table, 0, 0), -EINVAL);
}

static void there_is_one_partition(void)
{
	__be16 key = 0;
	CHECK(ibv_query_pkey(left.context, 1, 0, &key) == 0);
	SAME(key, 0xffff);
	SAME(ibv_query_pkey(left.context, 1, 1, &key), -1);
}

static void a_partition_is_found_by_its_key(void)
{
	SAME(ibv_get_pkey_index(left.context, 1, 0xffff), 0);
	SAME(ibv_get_pkey_index(left.context, 1, 0x1234), -1);
}

static void every_constant_has_a_name(void)
{
	for (int i = 0; i <= IBV_WC_TM_RNDV_INCOMPLETE + 1; i++)
		tell("  status %d: %s\n", i, ibv_wc_status_str(i));
	for (int i = 0; i <= IBV_EVENT_WQ_FATAL + 1; i++)
		tell("  event %d: %s\n", i, ibv_event_type_str(i));
	for (int i = 0; i <= IBV_PORT_ACTIVE_DEFER + 1; i++)
		tell("  port state %d: %s\n", i, ibv_port_state_str(i));
	for (int i = IBV_NODE_CA; i <= IBV_NODE_UNSPECIFIED + 1; i++)
		tell("  node %d: %s\n", i, ibv_node_type_str(i));
}

static void speeds_are_converted(void)
{
	for (int rate = IBV_RATE_MAX; rate <= IBV_RATE_1200_GBPS + 1; rate++)
		tell("  rate %d: %d times, %d Mb/s\n", rate, ibv_rate_to_mult(rate),
		     ibv_rate_to_mbps(rate));
	for (int times = 0; times <= 48; times++)
		tell("  %d times: rate %d\n", times, mult_to_ibv_rate(times));
	for (int speed = 0; speed <= 1300000; speed += 12500)
		tell("  %d Mb/s: rate %d\n", speed, mbps_to_ibv_rate(speed));
}

static const struct test_case CASES[] = {
	CASE(the_list_has_two_devices_and_an_end),
	CASE(a_second_list_has_the_same_devices),
	WITH_LEFT(a_device_outlives_its_list),
	WITH_LEFT(a_device_can_be_queried),
	WITH_LEFT(a_device_can_be_queried_for_extended_attributes),
	WITH_LEFT(an_unknown_query_is_rejected),
	WITH_LEFT(extended_connections_are_offered),
	WITH_LEFT(device_memory_is_offered),
	WITH_LEFT(memory_on_demand_is_offered),
	WITH_LEFT(a_device_has_a_clock),
	WITH_LEFT(a_port_can_be_queried),
	WITH_LEFT(there_is_no_second_port),
	WITH_LEFT(an_old_program_gets_a_shorter_port_structure),
	WITH_LEFT(the_own_address_is_a_gid),
	WITH_LEFT(an_empty_gid_is_zero),
	WITH_LEFT(there_are_no_gids_outside_of_the_table),
	WITH_LEFT(a_gid_has_a_type_and_a_place),
	WITH_LEFT(an_empty_index_has_no_entry),
	WITH_LEFT(an_unknown_entry_flag_is_rejected),
	WITH_LEFT(the_table_has_all_entries),
	WITH_LEFT(a_short_table_is_rejected),
	WITH_LEFT(there_is_one_partition),
	WITH_LEFT(a_partition_is_found_by_its_key),
	CASE(every_constant_has_a_name),
	CASE(speeds_are_converted),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
