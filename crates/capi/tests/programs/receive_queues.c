/* Receives that are shared, and those of datagrams. */
#include "check.h"

/* The path from one end's device to the other's. */
static struct ibv_ah *path(struct end *from, struct end *to)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = to->gid, .hop_limit = 64 } };
	struct ibv_ah *ah = ibv_create_ah(from->pd, &attr);
	CHECK(ah != NULL);
	return ah;
}

/* Datagrams arrive here, behind 40 bytes for their route. */
#define ROUTE ((struct ibv_grh *)(right.memory + 2048))

static void receive_datagram(void)
{
	struct ibv_sge sge = part(&right, 2048, 100);
	post_receive(right.qp, 30, &sge);
}

/* Sends 12 bytes from `left`. */
static void send_datagram(uint32_t key, const char *text)
{
	memcpy(left.memory, text, 12);
	struct ibv_sge sge = part(&left, 0, 12);
	struct ibv_ah *ah = path(&left, &right);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = right.qp->qp_num;
	wr.wr.ud.remote_qkey = key;
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	CHECK(ibv_destroy_ah(ah) == 0);
}

static void open_for_datagrams(void)
{
	open_both();
	left.qp = make_qp(&left, IBV_QPT_UD);
	right.qp = make_qp(&right, IBV_QPT_UD);
	join(left.qp, right.qp);
	receive_datagram();
}

static void a_datagram_arrives_with_its_grh(void)
{
	send_datagram(QUEUE_KEY, "twelve bytes");
	struct ibv_wc wc = wait_for(right.cq);
	CHECK(wc.wr_id == 30 && wc.byte_len == 52 && wc.wc_flags == IBV_WC_GRH);
	CHECK(wc.src_qp == left.qp->qp_num && wc.qp_num == right.qp->qp_num);
	CHECK(memcmp(ROUTE + 1, "twelve bytes", 12) == 0);
}

static void a_datagram_with_a_wrong_key_is_dropped(void)
{
	send_datagram(QUEUE_KEY + 1, "not for you!");
	send_datagram(QUEUE_KEY, "but this is.");
	SAME(wait_for(right.cq).status, IBV_WC_SUCCESS);
	CHECK(memcmp(ROUTE + 1, "but this is.", 12) == 0);
}

static void a_port_counts_wrong_keys(void)
{
	struct ibv_port_attr before, after;
	CHECK(ibv_query_port(right.context, 1, &before) == 0);
	send_datagram(QUEUE_KEY + 1, "not for you!");
	send_datagram(QUEUE_KEY, "but this is.");
	SAME(wait_for(right.cq).status, IBV_WC_SUCCESS);
	CHECK(ibv_query_port(right.context, 1, &after) == 0);
	SAME(after.qkey_viol_cntr, before.qkey_viol_cntr + 1);
	SAME(after.bad_pkey_cntr, before.bad_pkey_cntr);
}

static void a_datagram_can_be_answered(void)
{
	send_datagram(QUEUE_KEY, "who are you?");
	struct ibv_wc wc = wait_for(right.cq);
	struct ibv_ah_attr answer;
	CHECK(ibv_init_ah_from_wc(right.context, 1, &wc, ROUTE, &answer) == 0);
	CHECK(memcmp(&answer.grh.dgid, &left.gid, 16) == 0);
	struct ibv_ah *back = ibv_create_ah_from_wc(right.pd, &wc, ROUTE, 1);
	CHECK(back != NULL);
	CHECK(ibv_destroy_ah(back) == 0);
}

static void an_answer_takes_the_way_of_its_datagram(void)
{
	send_datagram(QUEUE_KEY, "how far away");
	struct ibv_wc wc = wait_for(right.cq);
	struct ibv_ah_attr answer;
	CHECK(ibv_init_ah_from_wc(right.context, 1, &wc, ROUTE, &answer) == 0);
	const uint8_t *header = (const uint8_t *)ROUTE;
	SAME(answer.grh.hop_limit, header[0] >> 4 == 6 ? header[7] : header[28]);
	CHECK(answer.is_global == 1 && answer.port_num == 1 && answer.sl == wc.sl);
}

static void a_completion_without_a_header_has_no_global_route(void)
{
	struct ibv_wc wc = { .sl = 3, .slid = 5, .dlid_path_bits = 1 };
	struct ibv_ah_attr answer;
	memset(right.memory, 0, sizeof(right.memory));
	CHECK(ibv_init_ah_from_wc(right.context, 1, &wc, ROUTE, &answer) == 0);
	CHECK(answer.sl == 3 && answer.dlid == 5 && answer.src_path_bits == 1);
	CHECK(answer.is_global == 0 && answer.port_num == 1);
	RETURNS_NULL(ibv_create_ah_from_wc(right.pd, &wc, ROUTE, 1), EINVAL);
	wc.wc_flags = IBV_WC_GRH;
	FAILS(ibv_init_ah_from_wc(right.context, 1, &wc, ROUTE, &answer), EPROTONOSUPPORT);
}

static void a_domain_with_an_address_handle_cannot_be_freed(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(left.context), *usual = left.pd;
	CHECK(pd != NULL);
	left.pd = pd;
	struct ibv_ah *ah = path(&left, &right);
	left.pd = usual;
	RETURNS_ERROR(ibv_dealloc_pd(pd), EBUSY);
	CHECK(ibv_destroy_ah(ah) == 0 && ibv_dealloc_pd(pd) == 0);
}

static struct ibv_srq *shared_receives(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(right.pd, &init);
	CHECK(srq != NULL);
	return srq;
}

static void a_shared_receive_queue_can_grow(void)
{
	struct ibv_srq *srq = shared_receives();
	struct ibv_srq_attr attr = { .max_wr = 16, .srq_limit = 1 };
	RETURNS_ERROR(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
	CHECK(ibv_query_srq(srq, &attr) == 0);
	CHECK(attr.max_wr >= 16 && attr.srq_limit == 1);
	CHECK(ibv_destroy_srq(srq) == 0);
}

static void a_rejected_change_of_a_shared_receive_queue_changes_nothing(void)
{
	struct ibv_srq *srq = shared_receives();
	struct ibv_srq_attr before, attr = { .max_wr = 16, .srq_limit = 1 << 19 };
	CHECK(ibv_query_srq(srq, &before) == 0);
	RETURNS_ERROR(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EINVAL);
	CHECK(ibv_query_srq(srq, &attr) == 0);
	SAME(attr.max_wr, before.max_wr);
	SAME(attr.srq_limit, 0);
	CHECK(ibv_destroy_srq(srq) == 0);
}

static void a_shared_receive_queue_says_how_many_segments_it_has(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8 } };
	struct ibv_srq *srq = ibv_create_srq(right.pd, &init);
	struct ibv_srq_attr attr;
	CHECK(srq != NULL && ibv_query_srq(srq, &attr) == 0);
	CHECK(init.attr.max_sge >= 1 && init.attr.max_sge == attr.max_sge);
	CHECK(ibv_destroy_srq(srq) == 0);
}

static void only_extended_shared_receive_queues_have_a_number(void)
{
	struct ibv_srq *srq = shared_receives();
	uint32_t number;
	RETURNS_ERROR(ibv_get_srq_num(srq, &number), EOPNOTSUPP);
	CHECK(ibv_destroy_srq(srq) == 0);
}

/* A queue pair at `right` that takes from them, joined with one at `left`. */
static void join_with(struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = right.cq,
					 .recv_cq = right.cq,
					 .srq = srq,
					 .cap = { .max_send_wr = 1, .max_send_sge = 1 },
					 .qp_type = IBV_QPT_RC };
	right.qp = ibv_create_qp(right.pd, &init);
	CHECK(right.qp != NULL);
	left.qp = make_qp(&left, IBV_QPT_RC);
	join(left.qp, right.qp);
}

static void post_shared(struct ibv_srq *srq, uint64_t id)
{
	struct ibv_sge sge = part(&right, 0, 64);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
}

static void leave(struct ibv_srq *srq)
{
	CHECK(ibv_destroy_qp(right.qp) == 0);
	right.qp = NULL;
	CHECK(ibv_destroy_srq(srq) == 0);
}

static void a_queue_pair_takes_shared_receives(void)
{
	struct ibv_srq *srq = shared_receives();
	join_with(srq);
	post_shared(srq, 40);
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	SAME(wait_for(right.cq).wr_id, 40);
	leave(srq);
}

static void the_length_of_a_receive_queue_that_there_is_not_is_ignored(void)
{
	struct ibv_srq *srq = shared_receives();
	struct ibv_qp_init_attr init = { .send_cq = right.cq,
					 .recv_cq = right.cq,
					 .srq = srq,
					 .cap = { .max_send_wr = 1,
						  .max_send_sge = 1,
						  .max_recv_wr = UINT32_MAX,
						  .max_recv_sge = UINT32_MAX },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(right.pd, &init);
	CHECK(qp != NULL);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
}

/* The program may use its structures again as soon as the call returns. */
static void a_posted_receive_does_not_change_with_the_structures_of_its_call(void)
{
	struct ibv_srq *srq = shared_receives();
	join_with(srq);
	struct ibv_sge sge[2] = { part(&right, 0, 8), part(&right, 512, 8) };
	struct ibv_recv_wr wr = { .wr_id = 41, .sg_list = sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	memset(right.memory, 0, 1024);
	sge[0] = part(&right, 512, 4000);
	wr.wr_id = 99;
	wr.num_sge = 1 << 20;
	memcpy(left.memory, "in place", 8);
	struct ibv_sge text = part(&left, 0, 8);
	struct ibv_send_wr send = request(IBV_WR_SEND, &text);
	SAME(fate_of(&left, &send), IBV_WC_SUCCESS);
	SAME(wait_for(right.cq).wr_id, 41);
	CHECK(memcmp(right.memory, "in place", 8) == 0 && right.memory[512] == 0);
	leave(srq);
}

static void a_shared_receive_queue_in_use_cannot_be_destroyed(void)
{
	struct ibv_srq *srq = shared_receives();
	join_with(srq);
	RETURNS_ERROR(ibv_destroy_srq(srq), EBUSY);
	leave(srq);
}

static void let_them_be_few(struct ibv_srq *srq)
{
	post_shared(srq, 41);
	struct ibv_srq_attr attr = { .srq_limit = 1 };
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
}

static void a_shared_receive_queue_below_its_limit_is_an_event(void)
{
	struct ibv_srq *srq = shared_receives();
	join_with(srq);
	let_them_be_few(srq);
	struct ibv_async_event event;
	CHECK(is_readable(right.context->async_fd, EVENT_TIMEOUT));
	CHECK(ibv_get_async_event(right.context, &event) == 0);
	SAME(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	CHECK(event.element.srq == srq);
	ibv_ack_async_event(&event);
	leave(srq);
}

#define WITH_DATAGRAMS(function) { #function, function, open_for_datagrams, close_both }

/* The descriptor says so too. */
static void a_destroyed_shared_receive_queue_has_no_events(void)
{
	struct ibv_srq *srq = shared_receives();
	join_with(srq);
	let_them_be_few(srq);
	CHECK(is_readable(right.context->async_fd, EVENT_TIMEOUT));
	leave(srq);
	CHECK(!is_readable(right.context->async_fd, 0));
}

static const struct test_case CASES[] = {
	WITH_DATAGRAMS(a_datagram_arrives_with_its_grh),
	WITH_DATAGRAMS(a_datagram_with_a_wrong_key_is_dropped),
	WITH_DATAGRAMS(a_port_counts_wrong_keys),
	WITH_DATAGRAMS(a_datagram_can_be_answered),
	WITH_DATAGRAMS(an_answer_takes_the_way_of_its_datagram),
	WITH_BOTH(a_completion_without_a_header_has_no_global_route),
	WITH_BOTH(a_domain_with_an_address_handle_cannot_be_freed),
	WITH_BOTH(a_shared_receive_queue_can_grow),
	WITH_BOTH(a_rejected_change_of_a_shared_receive_queue_changes_nothing),
	WITH_BOTH(a_shared_receive_queue_says_how_many_segments_it_has),
	WITH_BOTH(only_extended_shared_receive_queues_have_a_number),
	WITH_BOTH(a_queue_pair_takes_shared_receives),
	WITH_BOTH(the_length_of_a_receive_queue_that_there_is_not_is_ignored),
	WITH_BOTH(a_posted_receive_does_not_change_with_the_structures_of_its_call),
	WITH_BOTH(a_shared_receive_queue_in_use_cannot_be_destroyed),
	WITH_BOTH(a_shared_receive_queue_below_its_limit_is_an_event),
	WITH_BOTH(a_destroyed_shared_receive_queue_has_no_events),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
