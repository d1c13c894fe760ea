/* The limits that a device announces: what is as large works, and what is larger by one is rejected.
 * How many objects there may be is walked in the engine's tests, with smaller numbers. */
#include "../check.h"

static struct ibv_device_attr announced(void)
{
	struct ibv_device_attr attr;
	CHECK(ibv_query_device(left.context, &attr) == 0);
	return attr;
}

static void completion_queues_of_max_cqe(void)
{
	int most = announced().max_cqe;
	struct ibv_cq *cq = ibv_create_cq(left.context, most, NULL, NULL, 0);
	CHECK(cq != NULL && cq->cqe >= most);
	RETURNS_ERROR(ibv_resize_cq(cq, most + 1), EINVAL);
	CHECK(ibv_destroy_cq(cq) == 0);
	RETURNS_NULL(ibv_create_cq(left.context, most + 1, NULL, NULL, 0), EINVAL);
}

static struct ibv_qp *with(struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = {
		.send_cq = left.cq, .recv_cq = left.cq, .cap = cap, .qp_type = IBV_QPT_RC,
	};
	return ibv_create_qp(left.pd, &init);
}

static void queue_pairs_of_max_qp_wr_and_max_sge(void)
{
	struct ibv_device_attr attr = announced();
	struct ibv_qp_cap most = { .max_send_wr = attr.max_qp_wr,
				   .max_recv_wr = attr.max_qp_wr,
				   .max_send_sge = attr.max_sge,
				   .max_recv_sge = attr.max_sge };
	struct ibv_qp *qp = with(most);
	CHECK(qp != NULL && ibv_destroy_qp(qp) == 0);
	struct ibv_qp_cap cap = most;
	cap.max_send_wr++;
	RETURNS_NULL(with(cap), EINVAL);
	cap = most;
	cap.max_recv_wr++;
	RETURNS_NULL(with(cap), EINVAL);
	cap = most;
	cap.max_send_sge++;
	RETURNS_NULL(with(cap), EINVAL);
	cap = most;
	cap.max_recv_sge++;
	RETURNS_NULL(with(cap), EINVAL);
}

static struct ibv_srq *shared(uint32_t requests, uint32_t segments)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = requests, .max_sge = segments } };
	return ibv_create_srq(left.pd, &init);
}

static void shared_queues_of_max_srq_wr_and_max_srq_sge(void)
{
	struct ibv_device_attr attr = announced();
	struct ibv_srq *srq = shared(attr.max_srq_wr, attr.max_srq_sge);
	CHECK(srq != NULL);
	struct ibv_srq_attr larger = { .max_wr = attr.max_srq_wr + 1 };
	RETURNS_ERROR(ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR), EINVAL);
	CHECK(ibv_destroy_srq(srq) == 0);
	RETURNS_NULL(shared(attr.max_srq_wr + 1, attr.max_srq_sge), EINVAL);
	RETURNS_NULL(shared(attr.max_srq_wr, attr.max_srq_sge + 1), EINVAL);
}

static int prepare_for_reads(struct ibv_qp *qp, uint8_t reads)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = reads,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = left.gid, .hop_limit = 64 } },
	};
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static int allow_reads(struct ibv_qp *qp, uint8_t reads)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = reads };
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void reads_up_to_max_qp_rd_atom(void)
{
	struct ibv_device_attr attr = announced();
	left.qp = make_qp(&left, IBV_QPT_RC);
	to_init(left.qp);
	RETURNS_ERROR(prepare_for_reads(left.qp, attr.max_qp_rd_atom + 1), EINVAL);
	RETURNS_ERROR(prepare_for_reads(left.qp, attr.max_qp_rd_atom), 0);
	RETURNS_ERROR(allow_reads(left.qp, attr.max_qp_init_rd_atom + 1), EINVAL);
	RETURNS_ERROR(allow_reads(left.qp, attr.max_qp_init_rd_atom), 0);
	CHECK(attr.max_res_rd_atom / attr.max_qp >= attr.max_qp_rd_atom);
}

static void device_memory_of_max_dm_size(void)
{
	struct ibv_device_attr_ex attr;
	CHECK(ibv_query_device_ex(left.context, NULL, &attr) == 0);
	struct ibv_alloc_dm_attr size = { .length = attr.max_dm_size };
	struct ibv_dm *dm = ibv_alloc_dm(left.context, &size);
	CHECK(dm != NULL && ibv_free_dm(dm) == 0);
	size.length++;
	RETURNS_NULL(ibv_alloc_dm(left.context, &size), ENOMEM);
}

/* An address handle is the program's own memory; the device only counts it. */
static void max_ah_address_handles(void)
{
	int most = announced().max_ah;
	struct ibv_ah **handles = calloc(most, sizeof(*handles));
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = left.gid, .hop_limit = 64 } };
	CHECK(handles != NULL);
	for (int i = 0; i < most; i++) {
		handles[i] = ibv_create_ah(left.pd, &attr);
		CHECK(handles[i] != NULL);
	}
	RETURNS_NULL(ibv_create_ah(left.pd, &attr), ENOMEM);
	CHECK(ibv_destroy_ah(handles[0]) == 0);
	handles[0] = ibv_create_ah(left.pd, &attr);
	CHECK(handles[0] != NULL);
	for (int i = 0; i < most; i++)
		CHECK(ibv_destroy_ah(handles[i]) == 0);
	free(handles);
}

static void opening_a_device_leaves_errno_alone(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	errno = 0;
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context != NULL && errno == 0);
	CHECK(ibv_close_device(context) == 0);
	ibv_free_device_list(list);
}

static const struct test_case CASES[] = {
	WITH_LEFT(completion_queues_of_max_cqe),
	WITH_LEFT(queue_pairs_of_max_qp_wr_and_max_sge),
	WITH_LEFT(shared_queues_of_max_srq_wr_and_max_srq_sge),
	WITH_LEFT(reads_up_to_max_qp_rd_atom),
	WITH_LEFT(device_memory_of_max_dm_size),
	WITH_LEFT(max_ah_address_handles),
	WITH_LEFT(opening_a_device_leaves_errno_alone),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
