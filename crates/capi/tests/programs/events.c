/* Completion channels, asynchronous events, and descriptors that can be polled. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <rdma/rdma_cma.h>
#include "check.h"

static void receive_at_right(uint64_t id)
{
	struct ibv_sge sge = part(&right, 0, 64);
	post_receive(right.qp, id, &sge);
}

static void send_from_left(unsigned int flags)
{
	char text[] = "event";
	struct ibv_sge sge = { .addr = (uintptr_t)text, .length = sizeof(text) };
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge);
	wr.send_flags = IBV_SEND_INLINE | flags;
	post(left.qp, &wr);
}

static struct ibv_cq *next_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	CHECK(ibv_get_cq_event(channel, &cq, &context) == 0);
	CHECK(context == cq->cq_context);
	return cq;
}

static void a_channel_without_events_would_block(void)
{
	struct ibv_cq *cq;
	void *context;
	set_nonblocking(left.channel->fd);
	FAILS(ibv_get_cq_event(left.channel, &cq, &context), EAGAIN);
}

static void a_device_without_events_would_block(void)
{
	struct ibv_async_event event;
	set_nonblocking(left.context->async_fd);
	FAILS(ibv_get_async_event(left.context, &event), EAGAIN);
}

static void an_armed_queue_notifies_once(void)
{
	receive_at_right(1);
	CHECK(ibv_req_notify_cq(right.cq, 0) == 0);
	CHECK(!is_readable(right.channel->fd, 0));
	send_from_left(0);
	CHECK(is_readable(right.channel->fd, EVENT_TIMEOUT));
	CHECK(next_event(right.channel) == right.cq);
	CHECK(!is_readable(right.channel->fd, 0));
	CHECK(wait_for(right.cq).wr_id == 1);
	ibv_ack_cq_events(right.cq, 1);
}

/* A program that takes one event for each time its descriptor is readable must find one. */
static void a_descriptor_is_not_readable_for_packets_alone(void)
{
	set_nonblocking(right.channel->fd);
	for (uint64_t id = 0; id < 8; id++)
		receive_at_right(id);
	for (int sent = 0; sent < 8; sent++) {
		send_from_left(0);
		CHECK(!is_readable(right.channel->fd, 10));
	}
	for (uint64_t id = 0; id < 8; id++)
		CHECK(wait_for(right.cq).wr_id == id);
}

/* How many events there were. */
static int drain(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *context;
	int events = 0;
	while (ibv_get_cq_event(channel, &cq, &context) == 0) {
		ibv_ack_cq_events(cq, 1);
		events++;
	}
	CHECK(errno == EAGAIN);
	return events;
}

/* A program that looks before its first event may still take one event for each time its descriptor is readable. */
static void a_look_at_an_empty_channel_changes_nothing(void)
{
	set_nonblocking(right.channel->fd);
	CHECK(drain(right.channel) == 0);
	receive_at_right(0);
	send_from_left(0);
	CHECK(!is_readable(right.channel->fd, 10));
	CHECK(wait_for(right.cq).wr_id == 0);
}

/* Waits for one completion at a descriptor that may be readable for nothing. */
static void await_by_draining(struct ibv_comp_channel *channel, struct ibv_cq *cq)
{
	struct ibv_wc wc;
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	while (ibv_poll_cq(cq, 1, &wc) == 0) {
		int events = 0;
		while (events == 0) {
			CHECK(is_readable(channel->fd, EVENT_TIMEOUT));
			events = drain(channel);
		}
		SAME(events, 1);
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
	}
	CHECK(wc.status == IBV_WC_SUCCESS);
}

static void a_program_that_drains_its_channel_misses_nothing(void)
{
	set_nonblocking(right.channel->fd);
	CHECK(drain(right.channel) == 0);
	for (int round = 0; round < 500; round++) {
		receive_at_right(round);
		if (round % 2)
			send_from_left(IBV_SEND_SIGNALED);
		CHECK(ibv_req_notify_cq(right.cq, 0) == 0);
		if (round % 2 == 0)
			send_from_left(IBV_SEND_SIGNALED);
		await_by_draining(right.channel, right.cq);
		drain(right.channel);
		CHECK(wait_for(left.cq).status == IBV_WC_SUCCESS);
	}
}

static void write_from_left(void)
{
	char text[] = "write";
	struct ibv_sge sge = { .addr = (uintptr_t)text, .length = sizeof(text) };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)right.memory + 128;
	wr.wr.rdma.rkey = right.mr->rkey;
	post(left.qp, &wr);
}

/* A program that takes one event for each time its descriptor is readable must find one, also for packets
 * without a completion. It may be an extra one. */
static void take_one_event(void)
{
	CHECK(next_event(right.channel) == right.cq);
	ibv_ack_cq_events(right.cq, 1);
	CHECK(ibv_req_notify_cq(right.cq, 0) == 0);
}

static void a_readable_descriptor_has_an_event(void)
{
	struct ibv_wc wc;
	set_nonblocking(right.channel->fd);
	CHECK(ibv_req_notify_cq(right.cq, 0) == 0);
	for (int round = 0; round < 300; round++) {
		receive_at_right(round);
		write_from_left();
		if (round % 4 == 0 && is_readable(right.channel->fd, 1))
			take_one_event();
		send_from_left(IBV_SEND_SIGNALED);
		while (ibv_poll_cq(right.cq, 1, &wc) == 0) {
			CHECK(is_readable(right.channel->fd, EVENT_TIMEOUT));
			take_one_event();
		}
		SAME(wc.status, IBV_WC_SUCCESS);
		SAME(wc.wr_id, round);
		for (int done = 0; done < 2; done++)
			SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
	}
}

static void a_channel_whose_descriptor_is_closed_fails(void)
{
	struct ibv_cq *cq;
	void *context;
	CHECK(close(right.channel->fd) == 0);
	FAILS(ibv_get_cq_event(right.channel, &cq, &context), EBADF);
	/* Destroying the channel closes it again. */
	CHECK(dup2(STDERR_FILENO, right.channel->fd) == right.channel->fd);
}

/* An event loop that registers for both directions would spin. */
static void check_never_writable(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN | POLLOUT };
	CHECK(poll(&poll_fd, 1, 0) == 0);
}

static void event_descriptors_are_never_writable(void)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	CHECK(events);
	check_never_writable(events->fd);
	check_never_writable(left.channel->fd);
	check_never_writable(left.context->async_fd);
	rdma_destroy_event_channel(events);
}

/* libuv, asio and tokio wait for edges: each event is one, also while others wait to be taken. */
static void each_event_is_an_edge(void)
{
	int loop = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLET };
	CHECK(epoll_ctl(loop, EPOLL_CTL_ADD, right.channel->fd, &event) == 0);
	CHECK(epoll_wait(loop, &event, 1, 0) == 0);
	for (uint64_t round = 1; round <= 3; round++) {
		receive_at_right(round);
		CHECK(ibv_req_notify_cq(right.cq, 0) == 0);
		send_from_left(0);
		CHECK(epoll_wait(loop, &event, 1, EVENT_TIMEOUT) == 1);
		CHECK(event.events == EPOLLIN);
		CHECK(epoll_wait(loop, &event, 1, 0) == 0);
		CHECK(wait_for(right.cq).wr_id == round);
	}
	for (int taken = 0; taken < 3; taken++)
		CHECK(next_event(right.channel) == right.cq);
	CHECK(!is_readable(right.channel->fd, 0));
	ibv_ack_cq_events(right.cq, 3);
	close(loop);
}

static void a_duplicated_descriptor_is_readable_too(void)
{
	int copy = dup(right.channel->fd);
	receive_at_right(1);
	CHECK(ibv_req_notify_cq(right.cq, 0) == 0);
	CHECK(!is_readable(copy, 0));
	send_from_left(0);
	CHECK(is_readable(copy, EVENT_TIMEOUT));
	CHECK(next_event(right.channel) == right.cq);
	CHECK(!is_readable(copy, 0));
	ibv_ack_cq_events(right.cq, 1);
	close(copy);
}

static void solicited_arming_notifies_for_solicited_completions_only(void)
{
	receive_at_right(2);
	receive_at_right(3);
	CHECK(ibv_req_notify_cq(right.cq, 1) == 0);
	send_from_left(0);
	CHECK(!is_readable(right.channel->fd, 100));
	send_from_left(IBV_SEND_SOLICITED);
	CHECK(next_event(right.channel) == right.cq);
	ibv_ack_cq_events(right.cq, 1);
	CHECK(wait_for(right.cq).wr_id == 2);
	CHECK(wait_for(right.cq).wr_id == 3);
}

static void a_channel_in_use_cannot_be_destroyed(void)
{
	RETURNS_ERROR(ibv_destroy_comp_channel(left.channel), EBUSY);
}

/* A queue with a channel of its own, and a queue pair on it. */
static struct ibv_qp *qp_with_channel(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(left.context);
	CHECK(channel != NULL);
	struct ibv_cq *cq = ibv_create_cq(left.context, 8, NULL, channel, 0);
	CHECK(cq != NULL);
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { .max_recv_wr = 1, .max_recv_sge = 1 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(left.pd, &init);
	CHECK(qp != NULL);
	return qp;
}

static void a_completion_queue_in_use_cannot_be_destroyed(void)
{
	struct ibv_qp *qp = qp_with_channel();
	struct ibv_cq *cq = qp->recv_cq;
	struct ibv_comp_channel *channel = cq->channel;
	RETURNS_ERROR(ibv_destroy_cq(cq), EBUSY);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
}

static void a_queue_pair_in_error_flushes_its_receives(void)
{
	struct ibv_qp *qp = qp_with_channel();
	struct ibv_cq *cq = qp->recv_cq;
	struct ibv_comp_channel *channel = cq->channel;
	struct ibv_sge sge = part(&left, 0, 8);
	to_init(qp);
	post_receive(qp, 4, &sge);
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	to_error(qp);
	CHECK(next_event(channel) == cq);
	struct ibv_wc wc = wait_for(cq);
	SAME(wc.status, IBV_WC_WR_FLUSH_ERR);
	SAME(wc.wr_id, 4);
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
}

static void *destroy_queue(void *cq)
{
	CHECK(ibv_destroy_cq(cq) == 0);
	return NULL;
}

/* An object with an unacknowledged event can't be destroyed. */
static void destroying_a_queue_waits_for_acknowledgements(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(right.context);
	struct ibv_cq *cq = ibv_create_cq(right.context, 8, NULL, channel, 0);
	CHECK(channel != NULL && cq != NULL);
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { .max_recv_wr = 1, .max_recv_sge = 1 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *from = make_qp(&left, IBV_QPT_RC), *to = ibv_create_qp(right.pd, &init);
	CHECK(to != NULL);
	join(from, to);
	struct ibv_sge sge = part(&right, 0, 8);
	for (int event = 0; event < 2; event++) {
		post_receive(to, 5, &sge);
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
		post(from, &wr);
		CHECK(next_event(channel) == cq);
		SAME(wait_for(cq).status, IBV_WC_SUCCESS);
	}
	CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
	/* One of two. */
	ibv_ack_cq_events(cq, 1);
	SAME(cq->comp_events_completed, 1);
	pthread_t destroyer;
	CHECK(pthread_create(&destroyer, NULL, destroy_queue, cq) == 0);
	usleep(50000);
	CHECK(pthread_tryjoin_np(destroyer, NULL) == EBUSY);
	ibv_ack_cq_events(cq, 1);
	CHECK(pthread_join(destroyer, NULL) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
}

static void the_first_message_establishes_communication(void)
{
	struct ibv_qp *from = make_qp(&left, IBV_QPT_RC), *to = make_qp(&right, IBV_QPT_RC);
	to_init(from);
	to_init(to);
	to_rts(from, to->qp_num, right.gid);
	to_rtr(to, from->qp_num, left.gid);
	struct ibv_sge sge = part(&right, 0, 8);
	post_receive(to, 6, &sge);
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
	post(from, &wr);
	SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
	CHECK(is_readable(right.context->async_fd, EVENT_TIMEOUT));
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(right.context, &event) == 0);
	SAME(event.event_type, IBV_EVENT_COMM_EST);
	CHECK(event.element.qp == to);
	ibv_ack_async_event(&event);
	CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
}

static void a_wrong_key_fails_the_request(void)
{
	SAME(write_through(right.mr->rkey ^ 0x100, right.memory), IBV_WC_REM_ACCESS_ERR);
}

static void a_wrong_key_is_an_event_at_the_responder(void)
{
	write_through(right.mr->rkey ^ 0x100, right.memory);
	CHECK(is_readable(right.context->async_fd, EVENT_TIMEOUT));
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(right.context, &event) == 0);
	SAME(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
	CHECK(event.element.qp == right.qp);
	ibv_ack_async_event(&event);
	SAME(right.qp->events_completed, 1);
}

static struct ibv_srq *shared_receives(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(left.pd, &init);
	CHECK(srq != NULL);
	return srq;
}

static struct ibv_qp *qp_that_shares(struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = left.cq,
					 .recv_cq = left.cq,
					 .srq = srq,
					 .cap = { .max_send_wr = 1, .max_send_sge = 1 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(left.pd, &init);
	CHECK(qp != NULL);
	to_init(qp);
	to_rtr(qp, qp->qp_num, left.gid);
	return qp;
}

static void a_queue_pair_with_shared_receives_gets_a_last_wqe_event(void)
{
	struct ibv_srq *srq = shared_receives();
	struct ibv_qp *qp = qp_that_shares(srq);
	to_error(qp);
	CHECK(is_readable(left.context->async_fd, EVENT_TIMEOUT));
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(left.context, &event) == 0);
	SAME(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK(event.element.qp == qp);
	ibv_ack_async_event(&event);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0);
}

/* The descriptor says so too. */
static void a_destroyed_object_has_no_events(void)
{
	struct ibv_srq *srq = shared_receives();
	struct ibv_qp *qp = qp_that_shares(srq);
	to_error(qp);
	CHECK(is_readable(left.context->async_fd, EVENT_TIMEOUT));
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(!is_readable(left.context->async_fd, 0));
	CHECK(ibv_destroy_srq(srq) == 0);
}

static void *wait_for_completions(void *channel)
{
	struct ibv_cq *cq;
	void *context;
	ibv_get_cq_event(channel, &cq, &context);
	return NULL;
}

static void *wait_for_trouble(void *context)
{
	struct ibv_async_event event;
	ibv_get_async_event(context, &event);
	return NULL;
}

static pthread_t let_wait(void *(*wait)(void *), void *object)
{
	pthread_t thread;
	CHECK(object != NULL);
	CHECK(pthread_create(&thread, NULL, wait, object) == 0);
	usleep(100000);
	return thread;
}

/* What it waits at is gone: it looks again, and neither crashes nor hangs. */
static void end_wait(pthread_t thread)
{
	reuse_freed_memory();
	usleep(600000);
	CHECK(pthread_cancel(thread) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void a_channel_can_be_destroyed_while_a_thread_waits(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(left.context);
	pthread_t thread = let_wait(wait_for_completions, channel);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	end_wait(thread);
}

static void a_device_can_be_closed_while_a_thread_waits(void)
{
	struct ibv_context *context = ibv_open_device(left.context->device);
	pthread_t thread = let_wait(wait_for_trouble, context);
	CHECK(ibv_close_device(context) == 0);
	end_wait(thread);
}

static const struct test_case CASES[] = {
	WITH_LEFT(a_channel_without_events_would_block),
	WITH_LEFT(a_device_without_events_would_block),
	WITH_JOINED(an_armed_queue_notifies_once),
	WITH_JOINED(a_descriptor_is_not_readable_for_packets_alone),
	WITH_JOINED(a_look_at_an_empty_channel_changes_nothing),
	WITH_JOINED(a_program_that_drains_its_channel_misses_nothing),
	WITH_JOINED(a_readable_descriptor_has_an_event),
	WITH_JOINED(a_channel_whose_descriptor_is_closed_fails),
	WITH_LEFT(event_descriptors_are_never_writable),
	WITH_JOINED(each_event_is_an_edge),
	WITH_JOINED(a_duplicated_descriptor_is_readable_too),
	WITH_JOINED(solicited_arming_notifies_for_solicited_completions_only),
	WITH_LEFT(a_channel_in_use_cannot_be_destroyed),
	WITH_LEFT(a_completion_queue_in_use_cannot_be_destroyed),
	WITH_LEFT(a_queue_pair_in_error_flushes_its_receives),
	WITH_BOTH(destroying_a_queue_waits_for_acknowledgements),
	WITH_BOTH(the_first_message_establishes_communication),
	WITH_JOINED(a_wrong_key_fails_the_request),
	WITH_JOINED(a_wrong_key_is_an_event_at_the_responder),
	WITH_LEFT(a_queue_pair_with_shared_receives_gets_a_last_wqe_event),
	WITH_LEFT(a_destroyed_object_has_no_events),
	WITH_LEFT(a_channel_can_be_destroyed_while_a_thread_waits),
	WITH_LEFT(a_device_can_be_closed_while_a_thread_waits),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
