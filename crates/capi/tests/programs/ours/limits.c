/* Lists and lengths beyond every limit. */
#include <sys/resource.h>
#include "../check.h"

#define PAGE 4096

/* A page with nothing behind it. */
static char *lonely_page(void)
{
	char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	CHECK(mprotect(page + PAGE, PAGE, PROT_NONE) == 0);
	return page;
}

/* It is refused before somebody looks at it: there is no such memory. */
static void long_inline_data_is_not_read(void)
{
	struct ibv_sge sge = { .addr = (uintptr_t)lonely_page(), .length = UINT32_MAX };
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad = NULL;
	wr.send_flags |= IBV_SEND_INLINE;
	REFUSES(ibv_post_send(left.qp, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
}

static void inline_data_that_is_long_together_is_not_read(void)
{
	struct ibv_sge sges[3] = { { .addr = (uintptr_t)lonely_page(), .length = 60 },
				   { .addr = (uintptr_t)lonely_page() + PAGE, .length = 60 },
				   { .addr = (uintptr_t)lonely_page() + PAGE, .length = 0 } };
	struct ibv_send_wr wr = request(IBV_WR_SEND, sges), *bad = NULL;
	wr.num_sge = 3;
	wr.send_flags |= IBV_SEND_INLINE;
	REFUSES(ibv_post_send(left.qp, &wr, &bad), EINVAL);
}

static struct ibv_qp_ex *extended(void)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = left.cq,
					    .recv_cq = left.cq,
					    .cap = { .max_send_wr = 4,
						     .max_send_sge = 1,
						     .max_inline_data = 64 },
					    .qp_type = IBV_QPT_RC,
					    .comp_mask = IBV_QP_INIT_ATTR_PD |
							 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					    .pd = left.pd,
					    .send_ops_flags = IBV_QP_EX_WITH_SEND };
	struct ibv_qp *qp = ibv_create_qp_ex(left.context, &init);
	CHECK(qp != NULL);
	to_init(qp);
	to_rts(qp, qp->qp_num, left.gid);
	return ibv_qp_to_qp_ex(qp);
}

static void long_inline_data_is_not_read_in_the_new_way(void)
{
	struct ibv_qp_ex *qp = extended();
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, lonely_page(), SIZE_MAX);
	REFUSES(ibv_wr_complete(qp), ENOSPC);
	struct ibv_data_buf parts[2] = { { .addr = lonely_page(), .length = 65 },
					 { .addr = lonely_page() + PAGE, .length = SIZE_MAX } };
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data_list(qp, SIZE_MAX, parts);
	REFUSES(ibv_wr_complete(qp), ENOSPC);
	CHECK(ibv_destroy_qp(&qp->qp_base) == 0);
}

static void inline_data_up_to_the_limit_is_sent(void)
{
	char *data = lonely_page() + PAGE - 64;
	struct ibv_sge sge = { .addr = (uintptr_t)data, .length = 64 }, into = part(&right, 0, 64);
	memset(data, 'x', 64);
	post_receive(right.qp, 1, &into);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge);
	wr.send_flags |= IBV_SEND_INLINE;
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	CHECK(memcmp(right.memory, data, 64) == 0);
}

/* More requests than the queue ever holds are refused, however many follow. */
static void a_draft_without_end(void)
{
	struct ibv_qp_ex *qp = extended();
	ibv_wr_start(qp);
	for (int i = 0; i < 100000; i++)
		ibv_wr_send(qp);
	REFUSES(ibv_wr_complete(qp), ENOMEM);
	ibv_wr_start(qp);
	for (int i = 0; i < 5; i++)
		ibv_wr_send(qp);
	REFUSES(ibv_wr_complete(qp), ENOMEM);
	CHECK(ibv_destroy_qp(&qp->qp_base) == 0);
}

/* A list that runs in a circle. */
static void post_circles(void)
{
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad = NULL;
	wr.next = &wr;
	REFUSES(ibv_post_send(left.qp, &wr, &bad), ENOMEM);
	CHECK(bad == &wr);
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive = NULL;
	receive.next = &receive;
	REFUSES(ibv_post_recv(left.qp, &receive, &bad_receive), ENOMEM);
	CHECK(bad_receive == &receive);
}

static void a_list_without_end(void)
{
	post_circles();
}

static void a_list_without_end_on_a_broken_queue_pair(void)
{
	to_error(left.qp);
	post_circles();
}

static void a_list_without_end_on_a_shared_queue(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(left.pd, &init);
	CHECK(srq != NULL);
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	wr.next = &wr;
	REFUSES(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
	CHECK(ibv_destroy_srq(srq) == 0);
}

/* What is as large as the device allows, in a process that may have little more memory. */
static void large_objects_without_memory(void)
{
	struct rlimit little = { .rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY };
	CHECK(setrlimit(RLIMIT_AS, &little) == 0);
	struct ibv_alloc_dm_attr attr = { .length = 1 << 26 };
	REFUSES_POINTER(ibv_alloc_dm(left.context, &attr), ENOMEM);
	little.rlim_cur = RLIM_INFINITY;
	CHECK(setrlimit(RLIMIT_AS, &little) == 0);
	struct ibv_dm *dm = ibv_alloc_dm(left.context, &attr);
	CHECK(dm != NULL && ibv_free_dm(dm) == 0);
}

static const struct test_case CASES[] = {
	WITH_JOINED(long_inline_data_is_not_read),
	WITH_JOINED(inline_data_that_is_long_together_is_not_read),
	WITH_LEFT(long_inline_data_is_not_read_in_the_new_way),
	WITH_JOINED(inline_data_up_to_the_limit_is_sent),
	WITH_LEFT(a_draft_without_end),
	WITH_JOINED(a_list_without_end),
	WITH_JOINED(a_list_without_end_on_a_broken_queue_pair),
	WITH_LEFT(a_list_without_end_on_a_shared_queue),
	WITH_LEFT(large_objects_without_memory),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
