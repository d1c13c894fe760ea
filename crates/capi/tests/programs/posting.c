/* The same work, posted in the old way and in the new, polled in the old way and in the new. */
#include <arpa/inet.h>
#include "check.h"

static struct ibv_qp *make_extended_qp(struct end *end, struct ibv_cq *cq)
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
		.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(end->context, &init);
	CHECK(qp != NULL && ibv_qp_to_qp_ex(qp) != NULL);
	return qp;
}

static struct ibv_cq_ex *make_extended_cq(struct end *end)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 16,
		.wc_flags = IBV_WC_STANDARD_FLAGS |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(end->context, &init);
	CHECK(cq != NULL);
	struct ibv_poll_cq_attr attr = { 0 };
	CHECK(ibv_start_poll(cq, &attr) == ENOENT);
	return cq;
}

static void start_polling(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int result;
	while ((result = ibv_start_poll(cq, &attr)) == ENOENT)
		;
	CHECK(result == 0);
}

static void receive(struct end *end, struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge[2] = {
		{ .addr = (uintptr_t)end->memory, .length = 4, .lkey = end->mr->lkey },
		{ .addr = (uintptr_t)end->memory + 100,
		  .length = 60,
		  .lkey = end->mr->lkey },
	};
	/* Some programs have them in packed structures. */
	_Alignas(8) char odd[1 + sizeof sge];
	memcpy(odd + 1, sge, sizeof sge);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = (void *)(odd + 1), .num_sge = 2 };
	struct ibv_recv_wr *bad;
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static void send_both_ways(struct end *a, struct end *b, struct ibv_cq_ex *cq)
{
	receive(b, b->qp, 1);
	char text[] = "inline";
	struct ibv_sge sge = { .addr = (uintptr_t)text, .length = 7 };
	struct ibv_send_wr old = { .wr_id = 10,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND_WITH_IMM,
				   .send_flags = IBV_SEND_INLINE |
						 IBV_SEND_SIGNALED,
				   .imm_data = htonl(0xcafe) };
	struct ibv_send_wr *bad;
	CHECK(ibv_post_send(a->qp, &old, &bad) == 0);
	struct ibv_wc wc = wait_for(b->cq);
	CHECK(wc.wr_id == 1 && wc.opcode == IBV_WC_RECV && wc.byte_len == 7);
	CHECK(wc.wc_flags == IBV_WC_WITH_IMM && ntohl(wc.imm_data) == 0xcafe);
	CHECK(memcmp(b->memory, "inli", 4) == 0);
	CHECK(memcmp(b->memory + 100, "ne", 3) == 0);
	start_polling(cq);
	CHECK(cq->wr_id == 10 && cq->status == IBV_WC_SUCCESS);
	CHECK(ibv_wc_read_opcode(cq) == IBV_WC_SEND);
	CHECK(ibv_wc_read_qp_num(cq) == a->qp->qp_num);
	CHECK(ibv_wc_read_completion_ts(cq) > 0);
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);

	receive(b, b->qp, 2);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a->qp);
	ibv_wr_start(qp);
	qp->wr_id = 11;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qp, htonl(0xbeef));
	struct ibv_data_buf parts[2] = { { .addr = "new", .length = 3 },
					 { .addr = "way", .length = 4 } };
	ibv_wr_set_inline_data_list(qp, 2, parts);
	CHECK(ibv_wr_complete(qp) == 0);
	wc = wait_for(b->cq);
	CHECK(wc.wr_id == 2 && ntohl(wc.imm_data) == 0xbeef && wc.byte_len == 7);
	CHECK(memcmp(b->memory, "neww", 4) == 0);
	start_polling(cq);
	CHECK(cq->wr_id == 11);
	ibv_end_poll(cq);
}

static void several_at_once(struct end *a, struct end *b, struct ibv_cq_ex *cq)
{
	uint64_t *word = (uint64_t *)(b->memory + 512);
	*word = 40;
	memcpy(a->memory, "twelve bytes", 12);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a->qp);
	ibv_wr_start(qp);
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, b->mr->rkey, (uintptr_t)b->memory + 1024);
	ibv_wr_set_sge(qp, a->mr->lkey, (uintptr_t)a->memory, 12);
	qp->wr_id = 20;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_fetch_add(qp, b->mr->rkey, (uintptr_t)word, 2);
	ibv_wr_set_sge(qp, a->mr->lkey, (uintptr_t)a->memory + 64, 8);
	qp->wr_id = 21;
	ibv_wr_rdma_read(qp, b->mr->rkey, (uintptr_t)b->memory + 1024);
	ibv_wr_set_sge(qp, a->mr->lkey, (uintptr_t)a->memory + 128, 12);
	CHECK(ibv_wr_complete(qp) == 0);
	for (uint64_t id = 20; id <= 21; id++) {
		start_polling(cq);
		CHECK(cq->wr_id == id && cq->status == IBV_WC_SUCCESS);
		ibv_end_poll(cq);
	}
	CHECK(*word == 42 && *(uint64_t *)(a->memory + 64) == 40);
	CHECK(memcmp(a->memory + 128, "twelve bytes", 12) == 0);

	/* All or nothing: the second is refused, so the first is not done. */
	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, b->mr->rkey, (uintptr_t)b->memory + 1024);
	ibv_wr_set_inline_data(qp, "not to be seen", 14);
	ibv_wr_rdma_write(qp, b->mr->rkey, (uintptr_t)b->memory + 1024);
	char much[100] = { 0 };
	ibv_wr_set_inline_data(qp, much, sizeof(much));
	CHECK(ibv_wr_complete(qp) == EINVAL);
	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, b->mr->rkey, (uintptr_t)b->memory + 1024);
	ibv_wr_abort(qp);
	CHECK(memcmp(b->memory + 1024, "twelve bytes", 12) == 0);
}

/* Newer headers have it behind the rest of the structure. */
typedef void flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address,
		   size_t length, uint8_t type, uint8_t level);
enum { FLUSH_AT = 352, WITH_FLUSH = 1 << 11, MAY_FLUSH = 1 << 8, VISIBLE = 1 };

static struct ibv_qp *make_flushing_qp(struct end *end)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = { .max_send_wr = 8, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->pd,
		.send_ops_flags = WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE,
	};
	return ibv_create_qp_ex(end->context, &init);
}

static void flush_writes(struct end *a, struct end *b)
{
	struct ibv_qp *from = make_flushing_qp(a);
	/* Other libraries may not have it. */
	if (from == NULL && !is_ours(a->context))
		return;
	CHECK(from != NULL);
	struct ibv_mr *mr = ibv_reg_mr(b->pd, b->memory, 4096,
				       EVERYTHING | MAY_FLUSH);
	CHECK(mr != NULL);
	struct ibv_qp *to = make_qp(b, IBV_QPT_RC);
	to_init(from);
	to_init(to);
	struct ibv_qp_attr more = { .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						       MAY_FLUSH };
	CHECK(ibv_modify_qp(to, &more, IBV_QP_ACCESS_FLAGS) == 0);
	to_rts(from, to->qp_num, b->gid);
	to_rts(to, from->qp_num, a->gid);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(from);
	flush *wr_flush = *(flush **)((char *)qp + FLUSH_AT);
	ibv_wr_start(qp);
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)b->memory + 3072);
	ibv_wr_set_sge(qp, a->mr->lkey, (uintptr_t)a->memory, 12);
	qp->wr_id = 50;
	qp->wr_flags = IBV_SEND_SIGNALED;
	wr_flush(qp, mr->rkey, (uintptr_t)b->memory + 3072, 12, VISIBLE, 0);
	CHECK(ibv_wr_complete(qp) == 0);
	struct ibv_wc wc = wait_for(a->cq);
	CHECK(wc.wr_id == 50 && wc.status == IBV_WC_SUCCESS);
	CHECK(memcmp(b->memory + 3072, "twelve bytes", 12) == 0);
	ibv_wr_start(qp);
	wr_flush(qp, mr->rkey, (uintptr_t)b->memory, 12, VISIBLE, 2);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void datagrams(struct end *a, struct end *b)
{
	struct ibv_qp *from = make_qp(a, IBV_QPT_UD), *to = make_qp(b, IBV_QPT_UD);
	to_init(from);
	to_init(to);
	to_rts(from, 0, b->gid);
	to_rts(to, 0, a->gid);
	struct ibv_ah_attr path = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = b->gid, .hop_limit = 64 } };
	struct ibv_ah *ah = ibv_create_ah(a->pd, &path);
	CHECK(ah != NULL);
	REFUSES(ibv_dealloc_pd(a->pd), EBUSY);
	struct ibv_sge sge = { .addr = (uintptr_t)b->memory + 2048,
			       .length = 100,
			       .lkey = b->mr->lkey };
	struct ibv_recv_wr receive = { .wr_id = 30, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad_receive;
	CHECK(ibv_post_recv(to, &receive, &bad_receive) == 0);
	struct ibv_sge data = { .addr = (uintptr_t)a->memory,
				.length = 12,
				.lkey = a->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &data,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .wr.ud = { .ah = ah,
					     .remote_qpn = to->qp_num,
					     .remote_qkey = 0x1111 } };
	struct ibv_send_wr *bad;
	CHECK(ibv_post_send(from, &wr, &bad) == 0);
	struct ibv_wc wc = wait_for(b->cq);
	CHECK(wc.wr_id == 30 && wc.byte_len == 52 && wc.wc_flags == IBV_WC_GRH);
	CHECK(wc.src_qp == from->qp_num && wc.qp_num == to->qp_num);
	CHECK(memcmp(b->memory + 2048 + 40, "twelve bytes", 12) == 0);
	struct ibv_ah *back = ibv_create_ah_from_wc(
		b->pd, &wc, (struct ibv_grh *)(b->memory + 2048), 1);
	CHECK(back != NULL);
	struct ibv_ah_attr answer;
	CHECK(ibv_init_ah_from_wc(b->context, 1, &wc,
				  (struct ibv_grh *)(b->memory + 2048),
				  &answer) == 0);
	CHECK(memcmp(&answer.grh.dgid, &a->gid, 16) == 0);
	CHECK(ibv_destroy_ah(back) == 0 && ibv_destroy_ah(ah) == 0);
	CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
}

static void shared_receives(struct end *a, struct end *b)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(b->pd, &init);
	CHECK(srq != NULL);
	struct ibv_srq_attr attr = { .max_wr = 16, .srq_limit = 1 };
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == 0);
	CHECK(ibv_query_srq(srq, &attr) == 0);
	CHECK(attr.max_wr == 16 && attr.srq_limit == 1);
	uint32_t number;
	REFUSES(ibv_get_srq_num(srq, &number), EOPNOTSUPP);
	struct ibv_sge sge = { .addr = (uintptr_t)b->memory,
			       .length = 64,
			       .lkey = b->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 40, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	struct ibv_qp_init_attr qp_init = { .send_cq = b->cq,
					    .recv_cq = b->cq,
					    .srq = srq,
					    .cap = { .max_send_wr = 1,
						     .max_send_sge = 1 },
					    .qp_type = IBV_QPT_RC };
	struct ibv_qp *to = ibv_create_qp(b->pd, &qp_init);
	CHECK(to != NULL);
	REFUSES(ibv_destroy_srq(srq), EBUSY);
	struct ibv_qp *from = make_qp(a, IBV_QPT_RC);
	to_init(from);
	to_init(to);
	to_rts(from, to->qp_num, b->gid);
	to_rts(to, from->qp_num, a->gid);
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad_send;
	CHECK(ibv_post_send(from, &send, &bad_send) == 0);
	CHECK(wait_for(a->cq).status == IBV_WC_SUCCESS);
	CHECK(wait_for(b->cq).wr_id == 40);
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(b->context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
	CHECK(event.element.srq == srq);
	ibv_ack_async_event(&event);
	CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
}

int main(void)
{
	static struct end a, b;
	open_end(&a, "left");
	open_end(&b, "right");
	struct ibv_cq_ex *cq = make_extended_cq(&a);
	a.qp = make_extended_qp(&a, ibv_cq_ex_to_cq(cq));
	b.qp = make_qp(&b, IBV_QPT_RC);
	CHECK(ibv_qp_to_qp_ex(b.qp) == NULL);
	to_init(a.qp);
	to_init(b.qp);
	to_rts(a.qp, b.qp->qp_num, b.gid);
	to_rts(b.qp, a.qp->qp_num, a.gid);
	send_both_ways(&a, &b, cq);
	several_at_once(&a, &b, cq);
	flush_writes(&a, &b);
	datagrams(&a, &b);
	shared_receives(&a, &b);
	CHECK(ibv_destroy_qp(a.qp) == 0);
	a.qp = NULL;
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	close_end(&a);
	close_end(&b);
	return finish();
}
