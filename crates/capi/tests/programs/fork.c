/* A child has no device of its parent's: its calls fail and never hang, and it can open its own. */
#include "check.h"

static void write_nothing(void)
{
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, NULL);
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
}

static void forking_can_be_prepared(void)
{
	CHECK(ibv_fork_init() == 0);
	CHECK(ibv_is_fork_initialized() != IBV_FORK_DISABLED);
}

static void allocate_domain(void)
{
	CHECK(ibv_alloc_pd(left.context) == NULL);
}

static void a_child_gets_no_domain(void)
{
	in_child(allocate_domain);
}

static void make_channel(void)
{
	CHECK(ibv_create_comp_channel(left.context) == NULL);
}

static void a_child_gets_no_channel(void)
{
	in_child(make_channel);
}

static void make_queue(void)
{
	CHECK(ibv_create_cq(left.context, 1, NULL, NULL, 0) == NULL);
}

static void a_child_gets_no_queue(void)
{
	in_child(make_queue);
}

static void register_memory(void)
{
	CHECK(ibv_reg_mr(left.pd, left.memory, 16, 0) == NULL);
}

static void a_child_registers_no_memory(void)
{
	in_child(register_memory);
}

static void poll_queue(void)
{
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(left.cq, 1, &wc) <= 0);
}

static void a_child_polls_nothing(void)
{
	in_child(poll_queue);
}

static void ask_for_notification(void)
{
	CHECK(ibv_req_notify_cq(left.cq, 0) != 0);
}

static void a_child_is_not_notified(void)
{
	in_child(ask_for_notification);
}

/* Without an event, a channel of the kernel returns EAGAIN or blocks. */
static void wait_for_completion(void)
{
	struct ibv_cq *cq;
	void *context;
	int flags = fcntl(left.channel->fd, F_GETFL);
	set_nonblocking(left.channel->fd);
	CHECK(ibv_get_cq_event(left.channel, &cq, &context) == -1 && errno != EAGAIN);
	CHECK(fcntl(left.channel->fd, F_SETFL, flags) == 0);
	CHECK(ibv_get_cq_event(left.channel, &cq, &context) == -1);
}

static void a_child_does_not_wait_for_completions(void)
{
	in_child(wait_for_completion);
}

static void wait_for_event(void)
{
	struct ibv_async_event event;
	int flags = fcntl(left.context->async_fd, F_GETFL);
	set_nonblocking(left.context->async_fd);
	CHECK(ibv_get_async_event(left.context, &event) == -1 && errno != EAGAIN);
	CHECK(fcntl(left.context->async_fd, F_SETFL, flags) == 0);
	CHECK(ibv_get_async_event(left.context, &event) == -1);
}

static void a_child_does_not_wait_for_events(void)
{
	in_child(wait_for_event);
}

static void post_send(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	CHECK(ibv_post_send(left.qp, &wr, &bad) != 0);
}

static void a_child_sends_nothing(void)
{
	in_child(post_send);
}

static void modify_queue_pair(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(left.qp, &attr, IBV_QP_STATE) != 0);
}

static void a_child_modifies_no_queue_pair(void)
{
	in_child(modify_queue_pair);
}

static void use_own_devices(void)
{
	memset(&left, 0, sizeof(left));
	memset(&right, 0, sizeof(right));
	open_and_join();
	write_nothing();
	close_both();
}

static void a_child_opens_its_own_devices(void)
{
	in_child(use_own_devices);
}

static void a_child_does_not_change_the_parents_devices(void)
{
	in_child(use_own_devices);
	write_nothing();
}

static const struct test_case CASES[] = {
	CASE(forking_can_be_prepared),
	WITH_LEFT(a_child_gets_no_domain),
	WITH_LEFT(a_child_gets_no_channel),
	WITH_LEFT(a_child_gets_no_queue),
	WITH_LEFT(a_child_registers_no_memory),
	WITH_LEFT(a_child_polls_nothing),
	WITH_LEFT(a_child_is_not_notified),
	WITH_LEFT(a_child_does_not_wait_for_completions),
	WITH_LEFT(a_child_does_not_wait_for_events),
	WITH_JOINED(a_child_sends_nothing),
	WITH_JOINED(a_child_modifies_no_queue_pair),
	WITH_JOINED(a_child_opens_its_own_devices),
	WITH_JOINED(a_child_does_not_change_the_parents_devices),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
