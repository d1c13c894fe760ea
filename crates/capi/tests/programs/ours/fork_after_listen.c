/* A server that listens first and calls daemon() then. The child has no device of its parent's; it must not wait for ever. */
#include "../connection.h"

static void wait_at_channel(void)
{
	struct rdma_cm_event *event;
	struct pollfd waits = { channel->fd, POLLIN, 0 };
	CHECK(poll(&waits, 1, -1) == 1);
	CHECK(waits.revents & POLLIN);
	set_nonblocking(channel->fd);
	FAILS(rdma_get_cm_event(channel, &event), EIO);
	FAILS(rdma_get_cm_event(channel, &event), EIO);
}

static void a_child_that_polls_learns_of_it(void)
{
	in_child(wait_at_channel);
}

static void poll_completions(void)
{
	struct ibv_cq *cq;
	void *context;
	struct pollfd waits = { left.channel->fd, POLLIN, 0 };
	CHECK(poll(&waits, 1, -1) == 1);
	FAILS(ibv_get_cq_event(left.channel, &cq, &context), EIO);
}

static void a_child_that_polls_for_completions_learns_of_it(void)
{
	in_child(poll_completions);
}

static const struct test_case CASES[] = {
	WITH_LISTENER(a_child_that_polls_learns_of_it),
	WITH_LEFT(a_child_that_polls_for_completions_learns_of_it),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
