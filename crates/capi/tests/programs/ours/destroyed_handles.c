/* Objects that a program destroys twice, in the wrong order, or uses under a number that is not theirs. */
#include <rdma/rdma_cma.h>
#include "../check.h"

/* No handle of ours has this number. */
#define NO_SUCH_HANDLE 0x7ffffff0

/* Destroys it under a wrong number, then under its own, then again. */
#define DESTROYED_ONCE(object, destroy)                                                            \
	do {                                                                                       \
		uint32_t own_ = (object)->handle;                                                  \
		(object)->handle = NO_SUCH_HANDLE;                                                         \
		RETURNS_ERROR(destroy(object), ENOENT);                                                  \
		(object)->handle = own_;                                                           \
		RETURNS_ERROR(destroy(object), 0);                                                       \
		RETURNS_ERROR(destroy(object), EINVAL);                                                  \
	} while (0)

/* The same for what has no number that a program sees. */
#define TWICE(object, destroy)                                                                     \
	do {                                                                                       \
		RETURNS_ERROR(destroy(object), 0);                                                       \
		RETURNS_ERROR(destroy(object), EINVAL);                                                  \
	} while (0)

/* Makes something of an object under a wrong number, which a kernel would not find. */
#define NOT_FOUND(object, call)                                                                    \
	do {                                                                                       \
		uint32_t own_ = (object)->handle;                                                  \
		(object)->handle = NO_SUCH_HANDLE;                                                         \
		RETURNS_NULL(call, ENOENT);                                                          \
		(object)->handle = own_;                                                           \
	} while (0)

static void a_domain(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(left.context);
	DESTROYED_ONCE(pd, ibv_dealloc_pd);
	RETURNS_NULL(ibv_reg_mr(pd, left.memory, 16, 0), EINVAL);
}

static void a_domain_of_another_device(void)
{
	struct ibv_context *other = open_by_name("left");
	struct ibv_pd *pd = ibv_alloc_pd(left.context);
	pd->context = other;
	RETURNS_ERROR(ibv_dealloc_pd(pd), ENOENT);
	pd->context = left.context;
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(other) == 0);
}

static void a_domain_under_a_wrong_number(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(left.context);
	struct ibv_qp_init_attr qp = { .send_cq = left.cq,
				       .recv_cq = left.cq,
				       .cap = { .max_send_wr = 1, .max_send_sge = 1 },
				       .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_ah_attr ah = { .is_global = 1,
				  .port_num = 1,
				  .grh = { .dgid = left.gid, .hop_limit = 64 } };
	struct ibv_alloc_dm_attr memory = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(left.context, &memory);
	CHECK(dm != NULL);
	NOT_FOUND(pd, ibv_reg_mr(pd, left.memory, 16, 0));
	NOT_FOUND(pd, ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED));
	NOT_FOUND(pd, ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	NOT_FOUND(pd, ibv_create_ah(pd, &ah));
	NOT_FOUND(pd, ibv_create_srq(pd, &srq));
	NOT_FOUND(pd, ibv_create_qp(pd, &qp));
	CHECK(ibv_free_dm(dm) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

static void a_region(void)
{
	struct ibv_mr *mr = ibv_reg_mr(left.pd, left.memory, 16, 0);
	DESTROYED_ONCE(mr, ibv_dereg_mr);
	mr = ibv_reg_mr(left.pd, left.memory, 16, 0);
	mr->handle++;
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) != 0 && errno == ENOENT);
	mr->handle--;
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void a_window(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(left.pd, IBV_MW_TYPE_1);
	DESTROYED_ONCE(mw, ibv_dealloc_mw);
}

static void a_completion_queue(void)
{
	struct ibv_cq *cq = ibv_create_cq(left.context, 4, NULL, NULL, 0);
	struct ibv_wc wc;
	struct ibv_qp_init_attr sends = { .send_cq = cq,
					  .recv_cq = left.cq,
					  .cap = { .max_send_wr = 1, .max_send_sge = 1 },
					  .qp_type = IBV_QPT_RC };
	struct ibv_qp_init_attr receives = sends;
	receives.send_cq = left.cq;
	receives.recv_cq = cq;
	NOT_FOUND(cq, ibv_create_qp(left.pd, &sends));
	NOT_FOUND(cq, ibv_create_qp(left.pd, &receives));
	cq->handle++;
	RETURNS_ERROR(ibv_resize_cq(cq, 8), ENOENT);
	RETURNS_ERROR(ibv_req_notify_cq(cq, 0), ENOENT);
	cq->handle--;
	RETURNS_ERROR(ibv_req_notify_cq(cq, 0), 0);
	DESTROYED_ONCE(cq, ibv_destroy_cq);
	CHECK(ibv_poll_cq(cq, 1, &wc) < 0);
	RETURNS_ERROR(ibv_req_notify_cq(cq, 0), EINVAL);
}

static void a_queue_pair(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp_init_attr init;
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL), *bad;
	struct ibv_recv_wr receive = { 0 }, *bad_receive;
	qp->handle++;
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, IBV_QP_STATE), ENOENT);
	RETURNS_ERROR(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), ENOENT);
	qp->handle--;
	DESTROYED_ONCE(qp, ibv_destroy_qp);
	RETURNS_ERROR(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	RETURNS_ERROR(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), EINVAL);
	RETURNS_ERROR(ibv_post_send(qp, &wr, &bad), EINVAL);
	RETURNS_ERROR(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
}

static struct ibv_srq *make_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(left.pd, &init);
	CHECK(srq != NULL);
	return srq;
}

static void a_shared_receive_queue(void)
{
	struct ibv_srq *srq = make_srq();
	struct ibv_srq_attr attr = { .max_wr = 8 };
	srq->handle++;
	RETURNS_ERROR(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), ENOENT);
	RETURNS_ERROR(ibv_query_srq(srq, &attr), ENOENT);
	srq->handle--;
	struct ibv_qp_init_attr init = { .send_cq = left.cq,
					 .recv_cq = left.cq,
					 .srq = srq,
					 .cap = { .max_send_wr = 1, .max_send_sge = 1 },
					 .qp_type = IBV_QPT_RC };
	NOT_FOUND(srq, ibv_create_qp(left.pd, &init));
	DESTROYED_ONCE(srq, ibv_destroy_srq);
	RETURNS_ERROR(ibv_query_srq(srq, &attr), EINVAL);
	RETURNS_NULL(ibv_create_qp(left.pd, &init), EINVAL);
}

static struct ibv_ah *make_ah(void)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = left.gid, .hop_limit = 64 } };
	struct ibv_ah *ah = ibv_create_ah(left.pd, &attr);
	CHECK(ah != NULL);
	return ah;
}

static void an_address_handle(void)
{
	struct ibv_ah *ah = make_ah();
	DESTROYED_ONCE(ah, ibv_destroy_ah);
}

static void a_datagram_to_a_destroyed_address(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_UD);
	to_init(qp);
	to_rts(qp, qp->qp_num, left.gid);
	struct ibv_ah *ah = make_ah();
	CHECK(ibv_destroy_ah(ah) == 0);
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL), *bad;
	wr.wr.ud.ah = ah;
	RETURNS_ERROR(ibv_post_send(qp, &wr, &bad), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static struct ibv_xrcd *open_xrcd(void)
{
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1,
					   .oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(left.context, &init);
	CHECK(xrcd != NULL);
	return xrcd;
}

static void an_xrc_domain(void)
{
	struct ibv_xrcd *xrcd = open_xrcd();
	TWICE(xrcd, ibv_close_xrcd);
}

static void a_channel(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(left.context);
	TWICE(channel, ibv_destroy_comp_channel);
	struct ibv_cq *cq;
	void *context;
	FAILS(ibv_get_cq_event(channel, &cq, &context), EINVAL);
}

static void device_memory(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(left.context, &attr);
	TWICE(dm, ibv_free_dm);
}

static void a_device(void)
{
	struct ibv_context *context = open_by_name("left");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	TWICE(context, ibv_close_device);
	RETURNS_NULL(ibv_alloc_pd(context), EINVAL);
	RETURNS_NULL(ibv_create_cq(context, 1, NULL, NULL, 0), EINVAL);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

static void an_id_and_its_channel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	CHECK(channel && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	FAILS(rdma_destroy_id(id), EINVAL);
	FAILS(rdma_listen(id, 1), EINVAL);
	rdma_destroy_event_channel(channel);
	rdma_destroy_event_channel(channel);
	FAILS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), EINVAL);
}

/* What others stand on stays, as long as they do. */
static void an_object_in_use_cannot_be_destroyed(void)
{
	struct ibv_pd *pd = left.pd;
	struct ibv_srq *srq = make_srq();
	struct ibv_qp_init_attr init = { .send_cq = left.cq,
					 .recv_cq = left.cq,
					 .srq = srq,
					 .cap = { .max_send_wr = 1, .max_send_sge = 1 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp != NULL);
	RETURNS_ERROR(ibv_destroy_cq(left.cq), EBUSY);
	RETURNS_ERROR(ibv_destroy_srq(srq), EBUSY);
	RETURNS_ERROR(ibv_destroy_comp_channel(left.channel), EBUSY);
	CHECK(ibv_dereg_mr(left.mr) == 0);
	RETURNS_ERROR(ibv_dealloc_pd(pd), EBUSY);
	CHECK(ibv_destroy_qp(qp) == 0);
	RETURNS_ERROR(ibv_dealloc_pd(pd), EBUSY);
	CHECK(ibv_destroy_srq(srq) == 0);
	struct ibv_ah *ah = make_ah();
	RETURNS_ERROR(ibv_dealloc_pd(pd), EBUSY);
	CHECK(ibv_destroy_ah(ah) == 0);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	RETURNS_ERROR(ibv_dealloc_pd(pd), EBUSY);
	CHECK(ibv_dealloc_mw(mw) == 0);
	left.mr = ibv_reg_mr(pd, left.memory, 16, 0);
	CHECK(left.mr != NULL);
}

static void an_xrc_domain_in_use_cannot_be_closed(void)
{
	struct ibv_xrcd *xrcd = open_xrcd();
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = 4, .max_sge = 1 },
					     .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
							  IBV_SRQ_INIT_ATTR_XRCD |
							  IBV_SRQ_INIT_ATTR_CQ |
							  IBV_SRQ_INIT_ATTR_PD,
					     .srq_type = IBV_SRQT_XRC,
					     .pd = left.pd,
					     .xrcd = xrcd,
					     .cq = left.cq };
	struct ibv_srq *srq = ibv_create_srq_ex(left.context, &init);
	CHECK(srq != NULL);
	RETURNS_ERROR(ibv_close_xrcd(xrcd), EBUSY);
	CHECK(ibv_destroy_srq(srq) == 0);
	CHECK(ibv_close_xrcd(xrcd) == 0);
}

static struct ibv_qp *open_target(struct ibv_xrcd *xrcd, uint32_t number)
{
	struct ibv_qp_open_attr attr = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
						      IBV_QP_OPEN_ATTR_TYPE,
					 .qp_num = number,
					 .xrcd = xrcd,
					 .qp_type = IBV_QPT_XRC_RECV };
	return ibv_open_qp(left.context, &attr);
}

static void an_xrc_target_lives_as_long_as_one_of_its_handles(void)
{
	struct ibv_xrcd_init_attr domain = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							  IBV_XRCD_INIT_ATTR_OFLAGS,
					     .fd = -1,
					     .oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(left.context, &domain);
	CHECK(xrcd != NULL);
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV,
					    .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					    .xrcd = xrcd };
	struct ibv_qp *created = ibv_create_qp_ex(left.context, &init);
	CHECK(created != NULL);
	uint32_t number = created->qp_num;
	struct ibv_qp *opened = open_target(xrcd, number), *again = open_target(xrcd, number);
	CHECK(opened != NULL && again != NULL && opened->qp_num == number);
	TWICE(created, ibv_destroy_qp);
	TWICE(again, ibv_destroy_qp);
	RETURNS_ERROR(ibv_close_xrcd(xrcd), EBUSY);
	to_init(opened);
	RETURNS_ERROR(ibv_destroy_qp(opened), 0);
	RETURNS_NULL(open_target(xrcd, number), EINVAL);
	CHECK(ibv_close_xrcd(xrcd) == 0);
}

/* Their numbers may be those of objects of the device. */
static void objects_of_another_device(void)
{
	struct ibv_qp_init_attr init = { .send_cq = right.cq,
					 .recv_cq = left.cq,
					 .cap = { 1, 1, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	RETURNS_NULL(ibv_create_qp(left.pd, &init), EINVAL);
	init.send_cq = left.cq;
	init.recv_cq = right.cq;
	RETURNS_NULL(ibv_create_qp(left.pd, &init), EINVAL);
	struct ibv_srq_init_attr shared = { .attr = { 4, 1, 0 } };
	init.recv_cq = left.cq;
	init.srq = ibv_create_srq(right.pd, &shared);
	CHECK(init.srq != NULL);
	RETURNS_NULL(ibv_create_qp(left.pd, &init), EINVAL);
	CHECK(ibv_destroy_srq(init.srq) == 0);
}

/* A domain that was not imported is not ended by that. */
static void only_imported_objects_can_be_unimported(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(left.context);
	ibv_unimport_pd(pd);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

static void a_domain_ends_with_an_imported_handle(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(left.context);
	CHECK(pd != NULL);
	struct ibv_pd *imported = ibv_import_pd(left.context, pd->handle);
	CHECK(imported != NULL);
	ibv_unimport_pd(imported);
	imported = ibv_import_pd(left.context, pd->handle);
	CHECK(imported != NULL);
	TWICE(imported, ibv_dealloc_pd);
	RETURNS_NULL(ibv_import_pd(left.context, pd->handle), ENOENT);
	RETURNS_ERROR(ibv_dealloc_pd(pd), EINVAL);
}

static void device_memory_with_an_imported_handle(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(left.context, &attr);
	CHECK(dm != NULL);
	struct ibv_dm *imported = ibv_import_dm(left.context, dm->handle);
	CHECK(imported != NULL);
	struct ibv_mr *mr = ibv_reg_dm_mr(left.pd, imported, 0, 64, IBV_ACCESS_ZERO_BASED);
	CHECK(mr != NULL);
	RETURNS_ERROR(ibv_free_dm(dm), EBUSY);
	CHECK(ibv_dereg_mr(mr) == 0);
	TWICE(dm, ibv_free_dm);
	ibv_unimport_dm(imported);
}

static const struct test_case CASES[] = {
	WITH_LEFT(a_domain),
	WITH_LEFT(a_domain_of_another_device),
	WITH_LEFT(a_domain_under_a_wrong_number),
	WITH_LEFT(a_region),
	WITH_LEFT(a_window),
	WITH_LEFT(a_completion_queue),
	WITH_LEFT(a_queue_pair),
	WITH_LEFT(a_shared_receive_queue),
	WITH_LEFT(an_address_handle),
	WITH_LEFT(an_xrc_domain),
	WITH_LEFT(a_channel),
	WITH_LEFT(device_memory),
	CASE(a_device),
	CASE(an_id_and_its_channel),
	WITH_LEFT(a_datagram_to_a_destroyed_address),
	WITH_LEFT(an_object_in_use_cannot_be_destroyed),
	WITH_LEFT(an_xrc_domain_in_use_cannot_be_closed),
	WITH_LEFT(an_xrc_target_lives_as_long_as_one_of_its_handles),
	WITH_BOTH(objects_of_another_device),
	WITH_LEFT(only_imported_objects_can_be_unimported),
	WITH_LEFT(a_domain_ends_with_an_imported_handle),
	WITH_LEFT(device_memory_with_an_imported_handle),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
