/* Arguments that make no sense get an error number, not a crash. */
#include "check.h"

static void no_device_to_open(void)
{
	RETURNS_NULL(ibv_open_device(NULL), EINVAL);
}

static void no_device_to_close(void)
{
	RETURNS_ERROR(ibv_close_device(NULL), EINVAL);
}

static void no_device_for_a_domain(void)
{
	RETURNS_NULL(ibv_alloc_pd(NULL), EINVAL);
}

static void no_device_for_a_channel(void)
{
	RETURNS_NULL(ibv_create_comp_channel(NULL), EINVAL);
}

static void no_device_for_a_queue(void)
{
	RETURNS_NULL(ibv_create_cq(NULL, 1, NULL, NULL, 0), EINVAL);
}

static void no_domain_to_free(void)
{
	RETURNS_ERROR(ibv_dealloc_pd(NULL), EINVAL);
}

static void no_queue_pair_to_destroy(void)
{
	RETURNS_ERROR(ibv_destroy_qp(NULL), EINVAL);
}

static void no_list_to_free(void)
{
	ibv_free_device_list(NULL);
}

static void memory_that_is_not_mapped(void)
{
	void *nothing = (void *)0x1000;

	RETURNS_NULL(ibv_reg_mr(left.pd, nothing, 64, IBV_ACCESS_LOCAL_WRITE), EFAULT);
}

static void a_completion_queue_without_entries(void)
{
	RETURNS_NULL(ibv_create_cq(left.context, 0, NULL, NULL, 0), EINVAL);
}

static void a_completion_queue_of_negative_length(void)
{
	RETURNS_NULL(ibv_create_cq(left.context, -1, NULL, NULL, 0), EINVAL);
}

static void an_unknown_completion_vector(void)
{
	RETURNS_NULL(ibv_create_cq(left.context, 1, NULL, NULL, 99), EINVAL);
}

static void a_completion_queue_grows(void)
{
	CHECK(ibv_resize_cq(left.cq, 128) == 0 && left.cq->cqe >= 128);
}

static void a_completion_queue_cannot_be_resized_to_zero(void)
{
	RETURNS_ERROR(ibv_resize_cq(left.cq, 0), EINVAL);
}

static struct ibv_qp_init_attr smallest(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){ .send_cq = left.cq,
					  .recv_cq = left.cq,
					  .cap = { .max_send_wr = 1, .max_send_sge = 1 },
					  .qp_type = type };
}

static void a_queue_pair_that_is_too_long(void)
{
	struct ibv_qp_init_attr init = smallest(IBV_QPT_RC);
	init.cap.max_send_wr = 1 << 30;
	RETURNS_NULL(ibv_create_qp(left.pd, &init), EINVAL);
}

static void a_queue_pair_for_raw_packets(void)
{
	struct ibv_qp_init_attr init = smallest(IBV_QPT_RAW_PACKET);
	RETURNS_NULL(ibv_create_qp(left.pd, &init), EOPNOTSUPP);
}

static void a_queue_pair_without_a_completion_queue(void)
{
	struct ibv_qp_init_attr init = smallest(IBV_QPT_RC);
	init.recv_cq = NULL;
	RETURNS_NULL(ibv_create_qp(left.pd, &init), EINVAL);
}

static void a_receive_posted_in_reset(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	RETURNS_ERROR(ibv_post_recv(qp, &wr, &bad), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void a_send_posted_before_rts(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad;
	RETURNS_ERROR(ibv_post_send(qp, &wr, &bad), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void an_early_request_is_the_bad_one(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad = NULL;
	CHECK(ibv_post_send(qp, &wr, &bad) != 0 && bad == &wr);
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive = NULL;
	CHECK(ibv_post_recv(qp, &receive, &bad_receive) != 0 && bad_receive == &receive);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void a_transition_that_does_not_exist(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void an_unknown_state(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = 99 };
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void an_unknown_attribute(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_qp_attr attr = { 0 };
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, 1 << 30), EOPNOTSUPP);
	CHECK(ibv_destroy_qp(qp) == 0);
}

/* The device does not say that it can. */
static void changed_queue_lengths(void)
{
	struct ibv_device_attr device;
	CHECK(ibv_query_device(left.context, &device) == 0);
	CHECK(!(device.device_cap_flags & IBV_DEVICE_RESIZE_MAX_WR));
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_qp_attr attr = { .cap = { .max_send_wr = 2 * QUEUE_LENGTH } };
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, IBV_QP_CAP), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

/* The specification has a way there from every state; Linux has none from this one. */
static void err_from_reset_is_rejected(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void an_unknown_port(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 2 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, mask), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static int go_there(struct ibv_qp *qp, struct ibv_ah_attr path)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = 1,
				    .ah_attr = path };
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask);
}

static struct ibv_ah_attr path_to_itself(void)
{
	return (struct ibv_ah_attr){ .is_global = 1,
				     .port_num = 1,
				     .grh = { .dgid = left.gid, .hop_limit = 64 } };
}

/* No packet has room for such numbers; the kernel accepts them anyway. */
static void numbers_that_are_too_large_for_packets(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = 7 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, mask), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = 1,
				     .ah_attr = path_to_itself(),
				     .min_rnr_timer = 44 };
	mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, mask), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 14,
				     .retry_cnt = 8,
				     .rnr_retry = 255 };
	mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, mask), 0);
	CHECK(ibv_destroy_qp(qp) == 0);
}

/* RoCE needs one. */
static void a_path_without_a_global_route(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	to_init(qp);
	struct ibv_ah_attr path = { .port_num = 1, .dlid = 1 };
	RETURNS_ERROR(go_there(qp, path), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void a_path_from_an_empty_index(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	to_init(qp);
	struct ibv_ah_attr path = path_to_itself();
	path.grh.sgid_index = 200;
	RETURNS_ERROR(go_there(qp, path), ENODATA);
	CHECK(ibv_destroy_qp(qp) == 0);
}

/* Linux has alternate paths for InfiniBand only. */
static void an_alternate_path_is_rejected(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	to_init(qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = 1,
				    .ah_attr = path_to_itself(),
				    .alt_ah_attr = path_to_itself(),
				    .alt_port_num = 1,
				    .alt_timeout = 17 };
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, mask | IBV_QP_ALT_PATH), EINVAL);
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, mask), 0);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void a_receive_for_a_full_queue(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	to_init(qp);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init) == 0);
	int room = init.cap.max_recv_wr;
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_recv_wr list[room + 1], *bad = NULL;
	for (int i = 0; i <= room; i++)
		list[i] = (struct ibv_recv_wr){ .sg_list = &sge,
						.num_sge = 1,
						.next = i < room ? &list[i + 1] : NULL };
	RETURNS_ERROR(ibv_post_recv(qp, list, &bad), ENOMEM);
	CHECK(bad == &list[room]);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void a_queue_pair_can_be_queried(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	to_init(qp);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
	CHECK(attr.qp_state == IBV_QPS_INIT && attr.port_num == 1);
	CHECK(init.qp_type == IBV_QPT_RC && init.send_cq == left.cq);
	CHECK(init.cap.max_send_wr >= QUEUE_LENGTH && init.cap.max_recv_wr >= QUEUE_LENGTH);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void a_queue_pair_gets_the_length_it_asks_for(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init) == 0);
	SAME(init.cap.max_send_wr, QUEUE_LENGTH);
	SAME(init.cap.max_recv_wr, QUEUE_LENGTH);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void an_address_without_a_global_route(void)
{
	struct ibv_ah_attr attr = { .port_num = 1, .dlid = 1 };
	RETURNS_NULL(ibv_create_ah(left.pd, &attr), EINVAL);
}

static void an_unspecified_address(void)
{
	struct ibv_ah_attr attr = path_to_itself();
	memset(&attr.grh.dgid, 0, sizeof(attr.grh.dgid));
	RETURNS_NULL(ibv_create_ah(left.pd, &attr), EINVAL);
}

static void an_address_from_an_empty_index(void)
{
	struct ibv_ah_attr attr = path_to_itself();
	attr.grh.sgid_index = 200;
	RETURNS_NULL(ibv_create_ah(left.pd, &attr), ENODATA);
}

static void an_address_of_an_unknown_port(void)
{
	struct ibv_ah_attr attr = path_to_itself();
	attr.port_num = 2;
	RETURNS_NULL(ibv_create_ah(left.pd, &attr), EINVAL);
}

static void flows_are_not_offered(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_UD);
	struct ibv_flow_attr flow = { .size = sizeof(flow), .port = 1 };
	RETURNS_NULL(ibv_create_flow(qp, &flow), EOPNOTSUPP);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void counters_are_not_offered(void)
{
	struct ibv_counters_init_attr counters = { 0 };
	RETURNS_NULL(ibv_create_counters(left.context, &counters), EOPNOTSUPP);
}

static void work_queues_are_not_offered(void)
{
	struct ibv_wq_init_attr wq = { .pd = left.pd, .cq = left.cq };
	RETURNS_NULL(ibv_create_wq(left.context, &wq), EOPNOTSUPP);
}

static void rate_limits_are_not_offered(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_UD);
	struct ibv_qp_rate_limit_attr limit = { .rate_limit = 1 };
	RETURNS_ERROR(ibv_modify_qp_rate_limit(qp, &limit), EOPNOTSUPP);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void a_group_that_is_no_multicast_address(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_UD);
	union ibv_gid unicast = left.gid;
	RETURNS_ERROR(ibv_attach_mcast(qp, &unicast, 0), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void a_group_that_was_not_joined(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_UD);
	union ibv_gid group = { .raw = { 0xff, 0x0e } };
	RETURNS_ERROR(ibv_detach_mcast(qp, &group, 0), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void a_member_of_a_group_that_is_to_be_destroyed(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_UD);
	to_init(qp);
	union ibv_gid group = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, [13] = 1, [15] = 9 } };
	CHECK(ibv_attach_mcast(qp, &group, 0) == 0);
	RETURNS_ERROR(ibv_destroy_qp(qp), EBUSY);
	CHECK(ibv_detach_mcast(qp, &group, 0) == 0);
	RETURNS_ERROR(ibv_detach_mcast(qp, &group, 0), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static const struct test_case CASES[] = {
	CASE(no_device_to_open),
	CASE(no_device_to_close),
	CASE(no_device_for_a_domain),
	CASE(no_device_for_a_channel),
	CASE(no_device_for_a_queue),
	CASE(no_domain_to_free),
	CASE(no_queue_pair_to_destroy),
	CASE(no_list_to_free),
	WITH_LEFT(a_completion_queue_without_entries),
	WITH_LEFT(a_completion_queue_of_negative_length),
	WITH_LEFT(an_unknown_completion_vector),
	WITH_LEFT(memory_that_is_not_mapped),
	WITH_LEFT(a_completion_queue_grows),
	WITH_LEFT(a_completion_queue_cannot_be_resized_to_zero),
	WITH_LEFT(a_queue_pair_that_is_too_long),
	WITH_LEFT(a_queue_pair_for_raw_packets),
	WITH_LEFT(a_queue_pair_without_a_completion_queue),
	WITH_LEFT(a_receive_posted_in_reset),
	WITH_LEFT(a_send_posted_before_rts),
	WITH_LEFT(an_early_request_is_the_bad_one),
	WITH_LEFT(a_transition_that_does_not_exist),
	WITH_LEFT(an_unknown_state),
	WITH_LEFT(an_unknown_attribute),
	WITH_LEFT(changed_queue_lengths),
	WITH_LEFT(err_from_reset_is_rejected),
	WITH_LEFT(an_unknown_port),
	WITH_LEFT(a_path_without_a_global_route),
	WITH_LEFT(numbers_that_are_too_large_for_packets),
	WITH_LEFT(a_path_from_an_empty_index),
	WITH_LEFT(an_alternate_path_is_rejected),
	WITH_LEFT(a_receive_for_a_full_queue),
	WITH_LEFT(a_queue_pair_can_be_queried),
	WITH_LEFT(a_queue_pair_gets_the_length_it_asks_for),
	WITH_LEFT(an_address_without_a_global_route),
	WITH_LEFT(an_unspecified_address),
	WITH_LEFT(an_address_from_an_empty_index),
	WITH_LEFT(an_address_of_an_unknown_port),
	WITH_LEFT(flows_are_not_offered),
	WITH_LEFT(counters_are_not_offered),
	WITH_LEFT(work_queues_are_not_offered),
	WITH_LEFT(rate_limits_are_not_offered),
	WITH_LEFT(a_group_that_is_no_multicast_address),
	WITH_LEFT(a_group_that_was_not_joined),
	WITH_LEFT(a_member_of_a_group_that_is_to_be_destroyed),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
