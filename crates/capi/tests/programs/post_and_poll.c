/* Work, posted in the old way and in the new, polled in the old way and in the new. */
#include <arpa/inet.h>
#include "check.h"

static struct ibv_qp *make_extended_qp(struct end *end, struct ibv_cq *cq, uint64_t operations)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = 16,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = 64 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->pd,
		.send_ops_flags = operations,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(end->context, &init);
	CHECK(qp != NULL && ibv_qp_to_qp_ex(qp) != NULL);
	return qp;
}

/* Posting at `left` in the new way. */
static struct ibv_qp_ex *open_extended(void)
{
	left.qp = make_extended_qp(&left, left.cq,
				   IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
					   IBV_QP_EX_WITH_RDMA_READ |
					   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
	right.qp = make_qp(&right, IBV_QPT_RC);
	join(left.qp, right.qp);
	return ibv_qp_to_qp_ex(left.qp);
}

/* Into two places: 4 bytes at the beginning, the rest 100 bytes further. */
static void receive_in_two(uint64_t id)
{
	struct ibv_sge sge[2] = { part(&right, 0, 4), part(&right, 100, 60) };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = sge, .num_sge = 2 }, *bad;
	CHECK(ibv_post_recv(right.qp, &wr, &bad) == 0);
}

static void post_send_sends_inline_data(void)
{
	receive_in_two(1);
	char text[] = "inline";
	struct ibv_sge sge = { .addr = (uintptr_t)text, .length = 7 };
	struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, &sge);
	wr.wr_id = 10;
	wr.send_flags |= IBV_SEND_INLINE;
	wr.imm_data = htonl(0xcafe);
	post(left.qp, &wr);
	struct ibv_wc sent = wait_for(left.cq), wc = wait_for(right.cq);
	CHECK(sent.wr_id == 10 && sent.opcode == IBV_WC_SEND && sent.qp_num == left.qp->qp_num);
	CHECK(wc.wr_id == 1 && wc.opcode == IBV_WC_RECV && wc.byte_len == 7);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
	SAME(ntohl(wc.imm_data), 0xcafe);
	CHECK(memcmp(right.memory, "inli", 4) == 0);
	CHECK(memcmp(right.memory + 100, "ne", 3) == 0);
}

/* In contrast to a datagram. */
static void an_rc_completion_has_no_grh(void)
{
	receive_in_two(3);
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
	post(left.qp, &wr);
	SAME(wait_for(right.cq).wc_flags, 0);
}

/* Some programs have segments in packed structures. */
static void segments_may_be_unaligned(void)
{
	struct ibv_sge sge = part(&right, 0, 64);
	_Alignas(8) char odd[1 + sizeof(sge)];
	memcpy(odd + 1, &sge, sizeof(sge));
	post_receive(right.qp, 2, (void *)(odd + 1));
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	SAME(wait_for(right.cq).wr_id, 2);
}

static void a_read_returns_what_a_write_stored(void)
{
	memcpy(left.memory, "twelve bytes", 12);
	struct ibv_sge from = part(&left, 0, 12), to = part(&left, 128, 12);
	struct ibv_send_wr write = request(IBV_WR_RDMA_WRITE, &from);
	struct ibv_send_wr read = request(IBV_WR_RDMA_READ, &to);
	write.next = &read;
	write.send_flags = 0;
	post(left.qp, &write);
	struct ibv_wc wc = wait_for(left.cq);
	SAME(wc.status, IBV_WC_SUCCESS);
	SAME(wc.opcode, IBV_WC_RDMA_READ);
	CHECK(memcmp(left.memory + 128, "twelve bytes", 12) == 0);
}

static void atomics_return_the_previous_value(void)
{
	uint64_t *word = (uint64_t *)right.memory, *old = (uint64_t *)left.memory;
	*word = 40;
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_send_wr add = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
	add.wr.atomic.compare_add = 2;
	SAME(fate_of(&left, &add), IBV_WC_SUCCESS);
	CHECK(*old == 40 && *word == 42);
	struct ibv_send_wr swap = request(IBV_WR_ATOMIC_CMP_AND_SWP, &sge);
	swap.wr.atomic.compare_add = 42;
	swap.wr.atomic.swap = 7;
	SAME(fate_of(&left, &swap), IBV_WC_SUCCESS);
	CHECK(*old == 42 && *word == 7);
}

static void more_inline_data_than_agreed_is_rejected(void)
{
	char much[8192] = { 0 };
	struct ibv_sge sge = { .addr = (uintptr_t)much, .length = sizeof(much) };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad = NULL;
	wr.send_flags |= IBV_SEND_INLINE;
	RETURNS_ERROR(ibv_post_send(left.qp, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
}

static void more_segments_than_agreed_are_rejected(void)
{
	struct ibv_sge sge[32];
	for (int i = 0; i < 32; i++)
		sge[i] = part(&left, i, 1);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge), *bad = NULL;
	wr.num_sge = 32;
	RETURNS_ERROR(ibv_post_send(left.qp, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
}

static void a_wrong_local_key_breaks_the_queue_pair(void)
{
	struct ibv_sge sge = part(&left, 0, 8);
	sge.lkey ^= 0x100;
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	SAME(fate_of(&left, &wr), IBV_WC_LOC_PROT_ERR);
	struct ibv_send_wr next = request(IBV_WR_RDMA_WRITE, NULL);
	SAME(fate_of(&left, &next), IBV_WC_WR_FLUSH_ERR);
}

static void a_queue_pair_without_send_ops_flags_has_no_ibv_wr_calls(void)
{
	CHECK(ibv_qp_to_qp_ex(left.qp) == NULL);
}

static struct ibv_qp_attr attributes_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &init) == 0);
	return attr;
}

static void a_query_returns_the_numbers_of_the_next_packets(void)
{
	SAME(attributes_of(left.qp).sq_psn, 100);
	SAME(write_through(right.mr->rkey, right.memory), IBV_WC_SUCCESS);
	SAME(attributes_of(left.qp).sq_psn, 101);
	SAME(attributes_of(left.qp).rq_psn, 100);
	SAME(attributes_of(right.qp).rq_psn, 101);
}

static struct ibv_qp *try_operations(enum ibv_qp_type type, uint64_t operations)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = left.cq,
					    .recv_cq = left.cq,
					    .cap = { 4, 4, 1, 1, 0 },
					    .qp_type = type,
					    .comp_mask = IBV_QP_INIT_ATTR_PD |
							 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					    .pd = left.pd,
					    .send_ops_flags = operations };
	return ibv_create_qp_ex(left.context, &init);
}

static void each_type_has_its_own_ibv_wr_calls(void)
{
	uint64_t datagrams = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	RETURNS_NULL(try_operations(IBV_QPT_UD, datagrams | IBV_QP_EX_WITH_RDMA_WRITE), EOPNOTSUPP);
	RETURNS_NULL(try_operations(IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ), EOPNOTSUPP);
	RETURNS_NULL(try_operations(IBV_QPT_UC, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP), EOPNOTSUPP);
	RETURNS_NULL(try_operations(IBV_QPT_RC, IBV_QP_EX_WITH_TSO), EOPNOTSUPP);
	struct ibv_qp *ud = try_operations(IBV_QPT_UD, datagrams);
	struct ibv_qp *uc = try_operations(IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_WRITE |
							       IBV_QP_EX_WITH_BIND_MW);
	CHECK(ud != NULL && ibv_destroy_qp(ud) == 0);
	CHECK(uc != NULL && ibv_destroy_qp(uc) == 0);
}

static void ibv_wr_sends(void)
{
	struct ibv_qp_ex *qp = open_extended();
	receive_in_two(2);
	memcpy(left.memory, "newway", 7);
	ibv_wr_start(qp);
	qp->wr_id = 11;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qp, htonl(0xbeef));
	ibv_wr_set_sge(qp, left.mr->lkey, (uintptr_t)left.memory, 7);
	CHECK(ibv_wr_complete(qp) == 0);
	struct ibv_wc sent = wait_for(left.cq), wc = wait_for(right.cq);
	CHECK(sent.wr_id == 11 && sent.status == IBV_WC_SUCCESS);
	CHECK(wc.wr_id == 2 && wc.byte_len == 7);
	SAME(ntohl(wc.imm_data), 0xbeef);
	CHECK(memcmp(right.memory, "neww", 4) == 0);
}

static void ibv_wr_sends_inline_data(void)
{
	struct ibv_qp_ex *qp = open_extended();
	struct ibv_data_buf parts[2] = { { .addr = "new", .length = 3 },
					 { .addr = "way", .length = 4 } };
	receive_in_two(4);
	ibv_wr_start(qp);
	ibv_wr_send_imm(qp, 0);
	ibv_wr_set_inline_data_list(qp, 2, parts);
	CHECK(ibv_wr_complete(qp) == 0);
	SAME(wait_for(right.cq).byte_len, 7);
	CHECK(memcmp(right.memory, "neww", 4) == 0);

	receive_in_two(5);
	ibv_wr_start(qp);
	ibv_wr_send_imm(qp, 0);
	ibv_wr_set_inline_data(qp, "in one", 7);
	CHECK(ibv_wr_complete(qp) == 0);
	SAME(wait_for(right.cq).byte_len, 7);
	CHECK(memcmp(right.memory, "in o", 4) == 0);
}

static void ibv_wr_complete_posts_several_requests(void)
{
	struct ibv_qp_ex *qp = open_extended();
	uint64_t *word = (uint64_t *)(right.memory + 512);
	*word = 40;
	memcpy(left.memory, "twelve bytes", 12);
	ibv_wr_start(qp);
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, right.mr->rkey, (uintptr_t)right.memory + 1024);
	ibv_wr_set_sge(qp, left.mr->lkey, (uintptr_t)left.memory, 12);
	qp->wr_id = 20;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_fetch_add(qp, right.mr->rkey, (uintptr_t)word, 2);
	ibv_wr_set_sge(qp, left.mr->lkey, (uintptr_t)left.memory + 64, 8);
	qp->wr_id = 21;
	ibv_wr_rdma_read(qp, right.mr->rkey, (uintptr_t)right.memory + 1024);
	ibv_wr_set_sge(qp, left.mr->lkey, (uintptr_t)left.memory + 128, 12);
	CHECK(ibv_wr_complete(qp) == 0);
	for (uint64_t id = 20; id <= 21; id++) {
		struct ibv_wc wc = wait_for(left.cq);
		CHECK(wc.wr_id == id && wc.status == IBV_WC_SUCCESS);
	}
	CHECK(*word == 42 && *(uint64_t *)(left.memory + 64) == 40);
	CHECK(memcmp(left.memory + 128, "twelve bytes", 12) == 0);
}

/* The second is rejected, so the first is not done. */
static void ibv_wr_complete_posts_all_or_nothing(void)
{
	struct ibv_qp_ex *qp = open_extended();
	char much[8192] = { 0 };
	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, right.mr->rkey, (uintptr_t)right.memory);
	ibv_wr_set_inline_data(qp, "not to be seen", 14);
	ibv_wr_rdma_write(qp, right.mr->rkey, (uintptr_t)right.memory);
	ibv_wr_set_inline_data(qp, much, sizeof(much));
	CHECK(ibv_wr_complete(qp) != 0);
	struct ibv_send_wr last = request(IBV_WR_RDMA_WRITE, NULL);
	SAME(fate_of(&left, &last), IBV_WC_SUCCESS);
	CHECK(right.memory[0] == 0);
}

static void ibv_wr_complete_returns_the_error(void)
{
	struct ibv_qp_ex *qp = open_extended();
	char much[8192] = { 0 };
	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, right.mr->rkey, (uintptr_t)right.memory);
	ibv_wr_set_inline_data(qp, much, sizeof(much));
	RETURNS_ERROR(ibv_wr_complete(qp), ENOSPC);
}

static void ibv_wr_abort_posts_nothing(void)
{
	struct ibv_qp_ex *qp = open_extended();
	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, right.mr->rkey, (uintptr_t)right.memory);
	ibv_wr_set_inline_data(qp, "not to be seen", 14);
	ibv_wr_abort(qp);
	struct ibv_send_wr last = request(IBV_WR_RDMA_WRITE, NULL);
	SAME(fate_of(&left, &last), IBV_WC_SUCCESS);
	CHECK(right.memory[0] == 0);
}

static struct ibv_cq_ex *make_extended_cq(uint64_t flags)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = flags };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(left.context, &init);
	CHECK(cq != NULL);
	return cq;
}

static void start_polling(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int result;
	while ((result = ibv_start_poll(cq, &attr)) == ENOENT)
		;
	SAME(result, 0);
}

static void start_poll_of_an_empty_queue_returns_enoent(void)
{
	struct ibv_cq_ex *cq = make_extended_cq(IBV_WC_STANDARD_FLAGS);
	struct ibv_poll_cq_attr attr = { 0 };
	SAME(ibv_start_poll(cq, &attr), ENOENT);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

/* Sends something from a queue pair whose completions go to `cq`, and begins to poll. */
static struct ibv_qp *poll_a_write(struct ibv_cq_ex *cq)
{
	struct ibv_qp *from = make_extended_qp(&left, ibv_cq_ex_to_cq(cq), IBV_QP_EX_WITH_RDMA_WRITE);
	right.qp = make_qp(&right, IBV_QPT_RC);
	join(from, right.qp);
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.wr_id = 30;
	post(from, &wr);
	start_polling(cq);
	return from;
}

static void start_poll_returns_completions(void)
{
	struct ibv_cq_ex *cq = make_extended_cq(IBV_WC_STANDARD_FLAGS);
	struct ibv_qp *from = poll_a_write(cq);
	CHECK(cq->wr_id == 30 && cq->status == IBV_WC_SUCCESS);
	SAME(ibv_wc_read_opcode(cq), IBV_WC_RDMA_WRITE);
	SAME(ibv_wc_read_qp_num(cq), from->qp_num);
	SAME(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

static void completions_have_a_timestamp(void)
{
	struct ibv_cq_ex *cq = make_extended_cq(IBV_WC_STANDARD_FLAGS |
						IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
	struct ibv_qp *from = poll_a_write(cq);
	CHECK(ibv_wc_read_completion_ts(cq) > 0);
	ibv_end_poll(cq);
	CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

/* Newer headers have it behind the rest of the structure, which has a mutex. Its size depends on the processor. */
typedef void flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address,
		   size_t length, uint8_t type, uint8_t level);
enum { FLUSH_AT = 312 + sizeof(pthread_mutex_t), WITH_FLUSH = 1 << 11, MAY_FLUSH = 1 << 8, VISIBLE = 1 };

static void a_flush_completes_after_its_write(void)
{
	left.qp = make_extended_qp(&left, left.cq, WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE);
	right.qp = make_qp(&right, IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(right.pd, right.memory, 4096, EVERYTHING | MAY_FLUSH);
	CHECK(mr != NULL);
	join(left.qp, right.qp);
	struct ibv_qp_attr more = { .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | MAY_FLUSH };
	CHECK(ibv_modify_qp(right.qp, &more, IBV_QP_ACCESS_FLAGS) == 0);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(left.qp);
	flush *wr_flush = *(flush **)((char *)qp + FLUSH_AT);
	ibv_wr_start(qp);
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)right.memory);
	ibv_wr_set_inline_data(qp, "twelve bytes", 12);
	qp->wr_id = 50;
	qp->wr_flags = IBV_SEND_SIGNALED;
	wr_flush(qp, mr->rkey, (uintptr_t)right.memory, 12, VISIBLE, 0);
	CHECK(ibv_wr_complete(qp) == 0);
	struct ibv_wc wc = wait_for(left.cq);
	CHECK(wc.wr_id == 50 && wc.status == IBV_WC_SUCCESS);
	CHECK(memcmp(right.memory, "twelve bytes", 12) == 0);
	ibv_wr_start(qp);
	wr_flush(qp, mr->rkey, (uintptr_t)right.memory, 12, VISIBLE, 2);
	SAME(ibv_wr_complete(qp), EINVAL);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static const struct test_case CASES[] = {
	WITH_JOINED(post_send_sends_inline_data),
	WITH_JOINED(an_rc_completion_has_no_grh),
	WITH_JOINED(segments_may_be_unaligned),
	WITH_JOINED(a_read_returns_what_a_write_stored),
	WITH_JOINED(atomics_return_the_previous_value),
	WITH_JOINED(more_inline_data_than_agreed_is_rejected),
	WITH_JOINED(more_segments_than_agreed_are_rejected),
	WITH_JOINED(a_wrong_local_key_breaks_the_queue_pair),
	WITH_JOINED(a_queue_pair_without_send_ops_flags_has_no_ibv_wr_calls),
	WITH_JOINED(a_query_returns_the_numbers_of_the_next_packets),
	WITH_LEFT(each_type_has_its_own_ibv_wr_calls),
	WITH_BOTH(ibv_wr_sends),
	WITH_BOTH(ibv_wr_sends_inline_data),
	WITH_BOTH(ibv_wr_complete_posts_several_requests),
	WITH_BOTH(ibv_wr_complete_posts_all_or_nothing),
	WITH_BOTH(ibv_wr_complete_returns_the_error),
	WITH_BOTH(ibv_wr_abort_posts_nothing),
	WITH_LEFT(start_poll_of_an_empty_queue_returns_enoent),
	WITH_BOTH(start_poll_returns_completions),
	WITH_BOTH(completions_have_a_timestamp),
	WITH_BOTH(a_flush_completes_after_its_write),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
