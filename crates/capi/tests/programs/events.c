/* Completion channels, asynchronous events, and descriptors that can be polled. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include "check.h"

static int is_readable(int descriptor, int milliseconds)
{
	struct pollfd one = { .fd = descriptor, .events = POLLIN };
	return poll(&one, 1, milliseconds) == 1;
}

static void set_nonblocking(int descriptor)
{
	int flags = fcntl(descriptor, F_GETFL);
	CHECK(!(flags & O_NONBLOCK));
	CHECK(fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0);
}

static void set_blocking(int descriptor)
{
	int flags = fcntl(descriptor, F_GETFL);
	CHECK(fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) == 0);
}

static void post_receive(struct end *end, uint64_t id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)end->memory,
			       .length = 64,
			       .lkey = end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	CHECK(ibv_post_recv(end->qp, &wr, &bad) == 0);
}

static void send_inline(struct end *end, unsigned int flags)
{
	char text[] = "event";
	struct ibv_sge sge = { .addr = (uintptr_t)text, .length = sizeof(text) };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_INLINE | flags };
	struct ibv_send_wr *bad;
	CHECK(ibv_post_send(end->qp, &wr, &bad) == 0);
}

static void wait_for_completions(struct end *a, struct end *b)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	set_nonblocking(b->channel->fd);
	CHECK(ibv_get_cq_event(b->channel, &cq, &context) == -1);
	CHECK(errno == EAGAIN);
	post_receive(b, 1);
	CHECK(ibv_req_notify_cq(b->cq, 0) == 0);
	CHECK(!is_readable(b->channel->fd, 0));
	send_inline(a, 0);
	CHECK(is_readable(b->channel->fd, 5000));
	CHECK(ibv_get_cq_event(b->channel, &cq, &context) == 0);
	CHECK(cq == b->cq && context == b);
	CHECK(!is_readable(b->channel->fd, 0));
	CHECK(wait_for(b->cq).wr_id == 1);
	ibv_ack_cq_events(cq, 1);

	/* One event for one request, and only for what was asked for. */
	set_blocking(b->channel->fd);
	post_receive(b, 2);
	post_receive(b, 3);
	CHECK(ibv_req_notify_cq(b->cq, 1) == 0);
	send_inline(a, 0);
	CHECK(!is_readable(b->channel->fd, 100));
	send_inline(a, IBV_SEND_SOLICITED);
	CHECK(ibv_get_cq_event(b->channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
	CHECK(wait_for(b->cq).wr_id == 2);
	CHECK(wait_for(b->cq).wr_id == 3);
	REFUSES(ibv_destroy_comp_channel(b->channel), EBUSY);
}

static void *destroy_queue(void *cq)
{
	CHECK(ibv_destroy_cq(cq) == 0);
	return NULL;
}

/* Nobody may destroy what an event is still about. */
static void acknowledge_late(struct end *a, struct end *b)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(b->context);
	CHECK(channel != NULL);
	struct ibv_cq *cq = ibv_create_cq(b->context, 8, NULL, channel, 0);
	CHECK(cq != NULL);
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { .max_recv_wr = 1,
						  .max_recv_sge = 1 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(b->pd, &init);
	CHECK(qp != NULL);
	REFUSES(ibv_destroy_cq(cq), EBUSY);
	to_init(qp);
	struct ibv_sge sge = { .addr = (uintptr_t)b->memory,
			       .length = 8,
			       .lkey = b->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	struct ibv_qp_attr broken = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(qp, &broken, IBV_QP_STATE) == 0);
	struct ibv_cq *rang;
	void *context;
	CHECK(ibv_get_cq_event(channel, &rang, &context) == 0 && rang == cq);
	struct ibv_wc wc = wait_for(cq);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
	CHECK(ibv_destroy_qp(qp) == 0);
	pthread_t destroyer;
	CHECK(pthread_create(&destroyer, NULL, destroy_queue, cq) == 0);
	usleep(50000);
	CHECK(pthread_tryjoin_np(destroyer, NULL) == EBUSY);
	ibv_ack_cq_events(cq, 1);
	CHECK(pthread_join(destroyer, NULL) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	(void)a;
}

/* A wrong key: the one side gets a completion, the other an event. */
static void make_trouble(struct end *a, struct end *b)
{
	struct ibv_async_event event;
	set_nonblocking(b->context->async_fd);
	CHECK(ibv_get_async_event(b->context, &event) == -1);
	CHECK(errno == EAGAIN);
	struct ibv_sge sge = { .addr = (uintptr_t)a->memory,
			       .length = 8,
			       .lkey = a->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)b->memory,
			     .rkey = b->mr->rkey ^ 0x100 },
	};
	struct ibv_send_wr *bad;
	CHECK(ibv_post_send(a->qp, &wr, &bad) == 0);
	CHECK(wait_for(a->cq).status == IBV_WC_REM_ACCESS_ERR);
	CHECK(is_readable(b->context->async_fd, 5000));
	CHECK(ibv_get_async_event(b->context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR);
	CHECK(event.element.qp == b->qp);
	ibv_ack_async_event(&event);
	CHECK(b->qp->events_completed == 1);
}

/* What is gone has no events: the descriptor says so too. */
static void forget_trouble(struct end *b)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(b->pd, &init);
	struct ibv_qp_init_attr attr = { .send_cq = b->cq,
					 .recv_cq = b->cq,
					 .srq = srq,
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(b->pd, &attr);
	CHECK(srq != NULL && qp != NULL);
	struct ibv_qp_attr broken = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(qp, &broken, IBV_QP_STATE) == 0);
	CHECK(is_readable(b->context->async_fd, 5000));
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(!is_readable(b->context->async_fd, 0));
	CHECK(ibv_destroy_srq(srq) == 0);
}

int main(void)
{
	static struct end a, b;
	open_end(&a, "left");
	open_end(&b, "right");
	connect_ends(&a, &b);
	wait_for_completions(&a, &b);
	acknowledge_late(&a, &b);
	make_trouble(&a, &b);
	forget_trouble(&b);
	close_end(&a);
	close_end(&b);
	return finish();
}
