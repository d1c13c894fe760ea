/* Arguments that make no sense get an error number, not a crash. */
#include "check.h"

static void nothing_at_all(void)
{
	REFUSES_POINTER(ibv_open_device(NULL), EINVAL);
	REFUSES_POINTER(ibv_alloc_pd(NULL), EINVAL);
	REFUSES_POINTER(ibv_create_comp_channel(NULL), EINVAL);
	REFUSES_POINTER(ibv_create_cq(NULL, 1, NULL, NULL, 0), EINVAL);
	REFUSES(ibv_close_device(NULL), EINVAL);
	REFUSES(ibv_dealloc_pd(NULL), EINVAL);
	REFUSES(ibv_destroy_qp(NULL), EINVAL);
	ibv_free_device_list(NULL);
}

static void sizes(struct end *end)
{
	REFUSES_POINTER(ibv_create_cq(end->context, 0, NULL, NULL, 0), EINVAL);
	REFUSES_POINTER(ibv_create_cq(end->context, -1, NULL, NULL, 0), EINVAL);
	REFUSES_POINTER(ibv_create_cq(end->context, 1, NULL, NULL, 99), EINVAL);
	CHECK(ibv_resize_cq(end->cq, 128) == 0 && end->cq->cqe >= 128);
	REFUSES(ibv_resize_cq(end->cq, 0), EINVAL);
	struct ibv_qp_init_attr init = { .send_cq = end->cq,
					 .recv_cq = end->cq,
					 .cap = { .max_send_wr = 1 << 30 },
					 .qp_type = IBV_QPT_RC };
	REFUSES_POINTER(ibv_create_qp(end->pd, &init), EINVAL);
	init.cap.max_send_wr = 1;
	init.qp_type = IBV_QPT_RAW_PACKET;
	REFUSES_POINTER(ibv_create_qp(end->pd, &init), EOPNOTSUPP);
	init.qp_type = IBV_QPT_RC;
	init.recv_cq = NULL;
	REFUSES_POINTER(ibv_create_qp(end->pd, &init), EINVAL);
}

static void states(struct end *end)
{
	struct ibv_qp *qp = make_qp(end, IBV_QPT_RC);
	struct ibv_sge sge = { .addr = (uintptr_t)end->memory,
			       .length = 8,
			       .lkey = end->mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr send = { .sg_list = &sge,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND };
	struct ibv_recv_wr *bad_receive = NULL;
	struct ibv_send_wr *bad_send = NULL;
	REFUSES(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
	CHECK(bad_receive == &receive);
	REFUSES(ibv_post_send(qp, &send, &bad_send), EINVAL);
	CHECK(bad_send == &send);

	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	REFUSES(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	attr.qp_state = 99;
	REFUSES(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	REFUSES(ibv_modify_qp(qp, &attr, 1 << 30), EINVAL);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 2 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		   IBV_QP_ACCESS_FLAGS;
	REFUSES(ibv_modify_qp(qp, &attr, mask), EINVAL);
	to_init(qp);
	/* RoCE needs a global route. */
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = 1,
				     .ah_attr = { .port_num = 1, .dlid = 1 } };
	mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	REFUSES(ibv_modify_qp(qp, &attr, mask), EINVAL);

	/* A full queue, and the list up to there is posted. */
	struct ibv_recv_wr list[17];
	for (int i = 0; i < 17; i++) {
		list[i] = receive;
		list[i].next = i < 16 ? &list[i + 1] : NULL;
	}
	REFUSES(ibv_post_recv(qp, list, &bad_receive), ENOMEM);
	CHECK(bad_receive == &list[16]);
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
	CHECK(attr.qp_state == IBV_QPS_INIT && attr.port_num == 1);
	CHECK(init.qp_type == IBV_QPT_RC && init.cap.max_recv_wr == 16);
	CHECK(init.send_cq == end->cq);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void addresses(struct end *end)
{
	struct ibv_ah_attr attr = { .port_num = 1, .dlid = 1 };
	REFUSES_POINTER(ibv_create_ah(end->pd, &attr), EINVAL);
	attr.is_global = 1;
	REFUSES_POINTER(ibv_create_ah(end->pd, &attr), EINVAL);
	attr.grh.dgid = end->gid;
	attr.grh.sgid_index = 200;
	REFUSES_POINTER(ibv_create_ah(end->pd, &attr), EINVAL);
	attr.grh.sgid_index = 0;
	attr.port_num = 2;
	REFUSES_POINTER(ibv_create_ah(end->pd, &attr), EINVAL);
}

static void what_software_has_not(struct end *end)
{
	struct ibv_qp *qp = make_qp(end, IBV_QPT_UD);
	struct ibv_flow_attr flow = { .size = sizeof(flow), .port = 1 };
	REFUSES_POINTER(ibv_create_flow(qp, &flow), EOPNOTSUPP);
	struct ibv_counters_init_attr counters = { 0 };
	REFUSES_POINTER(ibv_create_counters(end->context, &counters), EOPNOTSUPP);
	struct ibv_wq_init_attr wq = { .pd = end->pd, .cq = end->cq };
	REFUSES_POINTER(ibv_create_wq(end->context, &wq), EOPNOTSUPP);
	REFUSES_POINTER(ibv_reg_dmabuf_mr(end->pd, 0, 4096, 0, -1, 0),
			EOPNOTSUPP);
	struct ibv_qp_rate_limit_attr limit = { .rate_limit = 1 };
	REFUSES(ibv_modify_qp_rate_limit(qp, &limit), EOPNOTSUPP);
	union ibv_gid group = { .raw = { 0xff, 0x0e } }, unicast = end->gid;
	REFUSES(ibv_attach_mcast(qp, &unicast, 0), EINVAL);
	REFUSES(ibv_detach_mcast(qp, &group, 0), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

int main(void)
{
	static struct end end;
	nothing_at_all();
	open_end(&end, "left");
	sizes(&end);
	states(&end);
	addresses(&end);
	what_software_has_not(&end);
	close_end(&end);
	return finish();
}
