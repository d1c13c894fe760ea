/* Lists and lengths beyond every limit. */
#include <arpa/inet.h>
#include <rdma/rsocket.h>
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

/* It is rejected before it is read: there is no memory at that address. */
static void long_inline_data_is_not_read(void)
{
	struct ibv_sge sge = { .addr = (uintptr_t)lonely_page(), .length = UINT32_MAX };
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad = NULL;
	wr.send_flags |= IBV_SEND_INLINE;
	RETURNS_ERROR(ibv_post_send(left.qp, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
}

static void segments_with_too_much_inline_data_are_not_read(void)
{
	struct ibv_sge sges[3] = { { .addr = (uintptr_t)lonely_page(), .length = 60 },
				   { .addr = (uintptr_t)lonely_page() + PAGE, .length = 60 },
				   { .addr = (uintptr_t)lonely_page() + PAGE, .length = 0 } };
	struct ibv_send_wr wr = request(IBV_WR_SEND, sges), *bad = NULL;
	wr.num_sge = 3;
	wr.send_flags |= IBV_SEND_INLINE;
	RETURNS_ERROR(ibv_post_send(left.qp, &wr, &bad), EINVAL);
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

static void long_inline_data_of_ibv_wr_is_not_read(void)
{
	struct ibv_qp_ex *qp = extended();
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, lonely_page(), SIZE_MAX);
	RETURNS_ERROR(ibv_wr_complete(qp), ENOSPC);
	struct ibv_data_buf parts[2] = { { .addr = lonely_page(), .length = 65 },
					 { .addr = lonely_page() + PAGE, .length = SIZE_MAX } };
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data_list(qp, SIZE_MAX, parts);
	RETURNS_ERROR(ibv_wr_complete(qp), ENOSPC);
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

/* More requests than the queue ever holds are rejected, however many follow. */
static void a_batch_of_ibv_wr_requests_without_end(void)
{
	struct ibv_qp_ex *qp = extended();
	ibv_wr_start(qp);
	for (int i = 0; i < 100000; i++)
		ibv_wr_send(qp);
	RETURNS_ERROR(ibv_wr_complete(qp), ENOMEM);
	ibv_wr_start(qp);
	for (int i = 0; i < 5; i++)
		ibv_wr_send(qp);
	RETURNS_ERROR(ibv_wr_complete(qp), ENOMEM);
	CHECK(ibv_destroy_qp(&qp->qp_base) == 0);
}

/* A list that runs in a circle. */
static void post_circles(void)
{
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad = NULL;
	wr.next = &wr;
	RETURNS_ERROR(ibv_post_send(left.qp, &wr, &bad), ENOMEM);
	CHECK(bad == &wr);
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive = NULL;
	receive.next = &receive;
	RETURNS_ERROR(ibv_post_recv(left.qp, &receive, &bad_receive), ENOMEM);
	CHECK(bad_receive == &receive);
}

static void a_circular_list_of_requests(void)
{
	post_circles();
}

static void a_circular_list_on_a_queue_pair_in_error(void)
{
	to_error(left.qp);
	post_circles();
}

static void a_circular_list_on_a_shared_receive_queue(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(left.pd, &init);
	CHECK(srq != NULL);
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	wr.next = &wr;
	RETURNS_ERROR(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
	CHECK(ibv_destroy_srq(srq) == 0);
}

/* What is as large as the device allows, in a process that may have little more memory. */
static void large_objects_without_memory(void)
{
	struct rlimit little = { .rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY };
	CHECK(setrlimit(RLIMIT_AS, &little) == 0);
	struct ibv_alloc_dm_attr attr = { .length = 1 << 26 };
	RETURNS_NULL(ibv_alloc_dm(left.context, &attr), ENOMEM);
	little.rlim_cur = RLIM_INFINITY;
	CHECK(setrlimit(RLIMIT_AS, &little) == 0);
	struct ibv_dm *dm = ibv_alloc_dm(left.context, &attr);
	CHECK(dm != NULL && ibv_free_dm(dm) == 0);
}

/* Lets the process have so many more bytes of address space than it has now. */
static void limit_memory(size_t bytes)
{
	size_t pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file != NULL && fscanf(file, "%zu", &pages) == 1);
	fclose(file);
	struct rlimit limit = { .rlim_cur = pages * PAGE + bytes, .rlim_max = RLIM_INFINITY };
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void unlimit_memory(void)
{
	struct rlimit none = { .rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY };
	CHECK(setrlimit(RLIMIT_AS, &none) == 0);
}

#define LITTLE (4 << 20)
#define LONGEST_QUEUE (1 << 20)

static struct ibv_qp *longest_qp(void)
{
	struct ibv_qp_init_attr init = { .send_cq = left.cq,
					 .recv_cq = left.cq,
					 .cap = { .max_send_wr = LONGEST_QUEUE,
						  .max_recv_wr = LONGEST_QUEUE,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(left.pd, &init);
	CHECK(qp != NULL);
	to_init(qp);
	return qp;
}

static void many_receives_without_memory(void)
{
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	struct ibv_qp *qp = longest_qp();
	limit_memory(LITTLE);
	int posted = 0, result;
	while ((result = ibv_post_recv(qp, &wr, &bad)) == 0)
		CHECK(++posted < LONGEST_QUEUE);
	SAME(result, ENOMEM);
	CHECK(bad == &wr && posted > 0);
	unlimit_memory();
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void many_shared_receives_without_memory(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = LONGEST_QUEUE, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(left.pd, &init);
	CHECK(srq != NULL);
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1, .next = NULL }, *bad = NULL;
	wr.next = &wr;
	limit_memory(LITTLE);
	RETURNS_ERROR(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
	unlimit_memory();
	wr.next = NULL;
	CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
}

/* In the state SQD nothing is sent, but requests are taken. */
static void many_sends_without_memory(void)
{
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_qp *qp = longest_qp();
	to_rts(qp, qp->qp_num, left.gid);
	struct ibv_qp_attr drain = { .qp_state = IBV_QPS_SQD };
	CHECK(ibv_modify_qp(qp, &drain, IBV_QP_STATE) == 0);
	limit_memory(LITTLE);
	int posted = 0, result;
	while ((result = ibv_post_send(qp, &wr, &bad)) == 0)
		CHECK(++posted < LONGEST_QUEUE);
	SAME(result, ENOMEM);
	CHECK(bad == &wr && posted > 0);
	unlimit_memory();
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void large_completion_queues_without_memory(void)
{
	limit_memory(LITTLE);
	struct ibv_cq *cq = ibv_create_cq(left.context, 1 << 22, NULL, NULL, 0);
	CHECK(cq ? ibv_destroy_cq(cq) == 0 : errno == ENOMEM);
	unlimit_memory();
}

static void large_sockets_without_memory(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	CHECK(inet_pton(AF_INET, own_address(), &address.sin_addr) == 1);
	int listener = rsocket(AF_INET, SOCK_STREAM, 0), client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(rbind(listener, (struct sockaddr *)&address, length) == 0 && rlisten(listener, 1) == 0);
	CHECK(rgetsockname(listener, (struct sockaddr *)&address, &length) == 0);
	int large = 1 << 28;
	CHECK(rsetsockopt(client, SOL_SOCKET, SO_SNDBUF, &large, sizeof(large)) == 0);
	limit_memory(16 << 20);
	FAILS(rconnect(client, (struct sockaddr *)&address, length), ENOMEM);
	unlimit_memory();
	CHECK(rclose(client) == 0 && rclose(listener) == 0);
}

/* A datagram has 2048 bytes at most, however much room the program says that it has. */
static void long_receives_without_memory(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	CHECK(inet_pton(AF_INET, own_address(), &address.sin_addr) == 1);
	int number = rsocket(AF_INET, SOCK_DGRAM, 0);
	CHECK(number >= 0 && rbind(number, (struct sockaddr *)&address, length) == 0);
	CHECK(rgetsockname(number, (struct sockaddr *)&address, &length) == 0);
	CHECK(rconnect(number, (struct sockaddr *)&address, length) == 0);
	char data[2048];
	limit_memory(16 << 20);
	SAME(rsend(number, "hello", 5, 0), 5);
	SAME(rrecv(number, data, 1 << 30, 0), 5);
	unlimit_memory();
	CHECK(memcmp(data, "hello", 5) == 0 && rclose(number) == 0);
}

static const struct test_case CASES[] = {
	WITH_JOINED(long_inline_data_is_not_read),
	WITH_JOINED(segments_with_too_much_inline_data_are_not_read),
	WITH_LEFT(long_inline_data_of_ibv_wr_is_not_read),
	WITH_JOINED(inline_data_up_to_the_limit_is_sent),
	WITH_LEFT(a_batch_of_ibv_wr_requests_without_end),
	WITH_JOINED(a_circular_list_of_requests),
	WITH_JOINED(a_circular_list_on_a_queue_pair_in_error),
	WITH_LEFT(a_circular_list_on_a_shared_receive_queue),
	WITH_LEFT(large_objects_without_memory),
	WITH_BOTH(many_receives_without_memory),
	WITH_LEFT(many_shared_receives_without_memory),
	WITH_BOTH(many_sends_without_memory),
	WITH_LEFT(large_completion_queues_without_memory),
	WITH_LEFT(large_sockets_without_memory),
	CASE(long_receives_without_memory),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
