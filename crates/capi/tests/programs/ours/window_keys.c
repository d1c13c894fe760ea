/* The key of a type 2 window: a bind that is posted changes it. The library of rxe leaves that to the program. */
#include "../check.h"

static struct ibv_mw *mw;

static void open_window(void)
{
	open_and_join();
	mw = ibv_alloc_mw(right.pd, IBV_MW_TYPE_2);
	CHECK(mw != NULL);
}

static void close_window(void)
{
	CHECK(ibv_dealloc_mw(mw) == 0);
	close_both();
}

static struct ibv_mw_bind_info window_on_right(void)
{
	return (struct ibv_mw_bind_info){ .mr = right.mr,
					  .addr = (uintptr_t)right.memory,
					  .length = 64,
					  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
}

static struct ibv_send_wr bind_request(uint32_t key)
{
	return (struct ibv_send_wr){ .opcode = IBV_WR_BIND_MW,
				     .send_flags = IBV_SEND_SIGNALED,
				     .bind_mw = { .mw = mw,
						  .rkey = key,
						  .bind_info = window_on_right() } };
}

static void invalidate(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV,
				  .send_flags = IBV_SEND_SIGNALED,
				  .invalidate_rkey = mw->rkey };
	SAME(fate_of(&right, &wr), IBV_WC_SUCCESS);
}

static enum ibv_wc_status write_through_window(void)
{
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.rkey = mw->rkey;
	return fate_of(&left, &wr);
}

static void a_bind_changes_the_key_of_its_window(void)
{
	for (int i = 0; i < 3; i++) {
		uint32_t key = ibv_inc_rkey(mw->rkey);
		struct ibv_send_wr wr = bind_request(key);
		SAME(fate_of(&right, &wr), IBV_WC_SUCCESS);
		CHECK(mw->rkey == key);
		SAME(write_through_window(), IBV_WC_SUCCESS);
		invalidate();
	}
}

static void a_bind_that_is_not_posted_leaves_the_key(void)
{
	uint32_t key = mw->rkey;
	struct ibv_send_wr wr = bind_request(ibv_inc_rkey(key)), *bad;
	struct ibv_qp *unconnected = make_qp(&right, IBV_QPT_RC);
	CHECK(ibv_post_send(unconnected, &wr, &bad) != 0);
	CHECK(mw->rkey == key);
	CHECK(ibv_destroy_qp(unconnected) == 0);
}

static struct ibv_qp_ex *open_extended(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = right.cq,
		.recv_cq = right.cq,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = right.pd,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
	};
	CHECK(ibv_destroy_qp(left.qp) == 0 && ibv_destroy_qp(right.qp) == 0);
	left.qp = make_qp(&left, IBV_QPT_RC);
	right.qp = ibv_create_qp_ex(right.context, &init);
	CHECK(right.qp != NULL);
	join(left.qp, right.qp);
	return ibv_qp_to_qp_ex(right.qp);
}

static void the_key_changes_when_the_requests_are_posted(void)
{
	struct ibv_qp_ex *qp = open_extended();
	struct ibv_mw_bind_info info = window_on_right();
	uint32_t key = ibv_inc_rkey(mw->rkey);
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(qp, mw, key, &info);
	CHECK(mw->rkey != key);
	ibv_wr_abort(qp);
	CHECK(mw->rkey != key);
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, mw, key, &info);
	CHECK(ibv_wr_complete(qp) == 0);
	CHECK(mw->rkey == key);
	SAME(wait_for(right.cq).status, IBV_WC_SUCCESS);
	SAME(write_through_window(), IBV_WC_SUCCESS);
	invalidate();
}

static const struct test_case CASES[] = {
	{ "a_bind_changes_the_key_of_its_window", a_bind_changes_the_key_of_its_window, open_window,
	  close_window },
	{ "a_bind_that_is_not_posted_leaves_the_key", a_bind_that_is_not_posted_leaves_the_key,
	  open_window, close_window },
	{ "the_key_changes_when_the_requests_are_posted", the_key_changes_when_the_requests_are_posted,
	  open_window, close_window },
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
