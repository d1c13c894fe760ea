/* A child has no device of its parent's: its calls fail and never hang, and it can open its own. */
#include <sys/wait.h>
#include "check.h"

static void in_child(struct end *inherited)
{
	alarm(20);
	CHECK(ibv_alloc_pd(inherited->context) == NULL);
	CHECK(ibv_create_comp_channel(inherited->context) == NULL);
	CHECK(ibv_create_cq(inherited->context, 1, NULL, NULL, 0) == NULL);
	CHECK(ibv_reg_mr(inherited->pd, inherited->memory, 16, 0) == NULL);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(inherited->cq, 1, &wc) <= 0);
	CHECK(ibv_req_notify_cq(inherited->cq, 0) != 0);
	struct ibv_cq *cq;
	void *context;
	CHECK(ibv_get_cq_event(inherited->channel, &cq, &context) == -1);
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(inherited->context, &event) == -1);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	CHECK(ibv_post_send(inherited->qp, &wr, &bad) != 0);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(inherited->qp, &attr, IBV_QP_STATE) != 0);

	static struct end own, other;
	open_end(&own, "left");
	open_end(&other, "right");
	connect_ends(&own, &other);
	struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE,
				     .send_flags = IBV_SEND_SIGNALED };
	CHECK(ibv_post_send(own.qp, &write, &bad) == 0);
	CHECK(wait_for(own.cq).status == IBV_WC_SUCCESS);
	close_end(&own);
	close_end(&other);
	_exit(0);
}

int main(void)
{
	static struct end a, b;
	CHECK(ibv_fork_init() == 0);
	CHECK(ibv_is_fork_initialized() != IBV_FORK_DISABLED);
	open_end(&a, "left");
	open_end(&b, "right");
	connect_ends(&a, &b);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		in_child(&a);
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);

	/* The parent's device is as it was. */
	struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE,
				     .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	CHECK(ibv_post_send(a.qp, &write, &bad) == 0);
	CHECK(wait_for(a.cq).status == IBV_WC_SUCCESS);
	close_end(&a);
	close_end(&b);
	return finish();
}
