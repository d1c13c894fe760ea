/* What the programs here have in common: two devices, queue pairs between them, the usual requests. */
#ifndef CHECK_H
#define CHECK_H

#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include "cases.h"

#define EVERYTHING                                                             \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |                    \
	 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |                   \
	 IBV_ACCESS_MW_BIND)

/* The Q_Key of datagrams between the two queue pairs. */
#define QUEUE_KEY 0x1111

/* How long to wait for what is on its way, in milliseconds. A loaded machine is slow. */
#define EVENT_TIMEOUT 20000

/* The code of the timeout after which packets are sent again: 67 ms. */
#define ACK_TIMEOUT 14

/* The depth of each send and receive queue. */
#define QUEUE_LENGTH 16

/* The address of the device `left`; on another library's device it is another one. */
static inline const char *own_address(void)
{
	const char *given = getenv("LEFT_ADDRESS");
	return given ? given : "127.0.0.31";
}

/* More descriptors than any program here opens. */
#define MAX_DESCRIPTORS 256

static inline int open_descriptors(void)
{
	int count = 0;
	for (int i = 0; i < MAX_DESCRIPTORS; i++)
		count += fcntl(i, F_GETFD) >= 0;
	return count;
}

/* The lowest count of several: a thread of the library may have a file open briefly. */
static inline int count_descriptors(void)
{
	int fewest = open_descriptors();
	for (int i = 0; i < 5; i++) {
		usleep(200);
		int count = open_descriptors();
		fewest = count < fewest ? count : fewest;
	}
	return fewest;
}

/* Checks that no descriptor is left open. What a thread of the library has open for a moment can stay open for long when that
 * thread has to wait for a processor. */
static inline void check_that_none_is_left_open(int before)
{
	int now = count_descriptors();
	for (int i = 0; now > before && i < 5000; i++)
		now = count_descriptors();
	if (now > before)
		COMPLAIN("%d descriptors are left open", now - before);
}

/* Skips a case in which another library sometimes hangs, and prints that it is skipped. */
static inline void leave_out_with_others(void)
{
	if (getenv("OTHER_LIBRARY"))
		COMPLAIN("left out");
}

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	union ibv_gid gid;
	char memory[8192] __attribute__((aligned(8)));
};

/* Each case has its own process, and so its own pair. */
static struct end left, right;

static inline struct ibv_context *open_by_name(const char *name)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list != NULL);
	struct ibv_context *context = NULL;
	for (int i = 0; i < count; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	CHECK(context != NULL);
	return context;
}

static inline void open_end_with(struct end *end, const char *name, int access)
{
	end->context = open_by_name(name);
	end->pd = ibv_alloc_pd(end->context);
	CHECK(end->pd != NULL);
	end->channel = ibv_create_comp_channel(end->context);
	CHECK(end->channel != NULL);
	end->cq = ibv_create_cq(end->context, 64, end, end->channel, 0);
	CHECK(end->cq != NULL);
	end->mr = ibv_reg_mr(end->pd, end->memory, sizeof(end->memory), access);
	CHECK(end->mr != NULL);
	CHECK(ibv_query_gid(end->context, 1, 0, &end->gid) == 0);
}

static inline void open_end(struct end *end, const char *name)
{
	open_end_with(end, name, EVERYTHING);
}

static inline struct ibv_qp *make_qp(struct end *end, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = { .max_send_wr = QUEUE_LENGTH,
			 .max_recv_wr = QUEUE_LENGTH,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = 64 },
		.qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(end->pd, &init);
	CHECK(qp != NULL);
	CHECK(init.cap.max_send_wr >= QUEUE_LENGTH && init.cap.max_inline_data >= 64);
	return qp;
}

static inline void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qkey = QUEUE_KEY,
				    .qp_access_flags = EVERYTHING &
						       ~IBV_ACCESS_MW_BIND };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
	CHECK(qp->state == IBV_QPS_INIT);
}

static inline void to_rtr(struct ibv_qp *qp, uint32_t peer, union ibv_gid gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = 100,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = gid, .hop_limit = 64 } },
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
		   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (qp->qp_type == IBV_QPT_UD)
		mask = IBV_QP_STATE;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
}

static inline void to_rts(struct ibv_qp *qp, uint32_t peer, union ibv_gid gid)
{
	to_rtr(qp, peer, gid);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .sq_psn = 100,
				    .timeout = ACK_TIMEOUT,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 4 };
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
}

static inline void to_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
}

/* Joins the queue pair of `left` with that of `right`. */
static inline void join(struct ibv_qp *of_left, struct ibv_qp *of_right)
{
	to_init(of_left);
	to_init(of_right);
	to_rts(of_left, of_right->qp_num, right.gid);
	to_rts(of_right, of_left->qp_num, left.gid);
}

static inline void close_end(struct end *end)
{
	if (end->qp)
		CHECK(ibv_destroy_qp(end->qp) == 0);
	CHECK(ibv_dereg_mr(end->mr) == 0);
	CHECK(ibv_destroy_cq(end->cq) == 0);
	CHECK(ibv_destroy_comp_channel(end->channel) == 0);
	CHECK(ibv_dealloc_pd(end->pd) == 0);
	CHECK(ibv_close_device(end->context) == 0);
}

static inline void open_left(void)
{
	open_end(&left, "left");
}

static inline void close_left(void)
{
	close_end(&left);
}

static inline void open_both(void)
{
	open_end(&left, "left");
	open_end(&right, "right");
}

static inline void open_and_join(void)
{
	open_both();
	left.qp = make_qp(&left, IBV_QPT_RC);
	right.qp = make_qp(&right, IBV_QPT_RC);
	join(left.qp, right.qp);
}

static inline void close_both(void)
{
	close_end(&left);
	close_end(&right);
}

/* A case with one device, with two, or with two and a reliable connection between them. */
#define WITH_LEFT(function) { #function, function, open_left, close_left }
#define WITH_BOTH(function) { #function, function, open_both, close_both }
#define WITH_JOINED(function) { #function, function, open_and_join, close_both }

/* A part of an end's memory. */
static inline struct ibv_sge part(struct end *end, size_t offset, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)end->memory + offset,
				 .length = length,
				 .lkey = end->mr->lkey };
}

/* A request that says how it went. A one-sided one is about the beginning of `right`'s memory. */
static inline struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = { .sg_list = sge,
				  .num_sge = sge != NULL,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED };
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)right.memory;
		wr.wr.atomic.rkey = right.mr->rkey;
	} else if (opcode != IBV_WR_SEND && opcode != IBV_WR_SEND_WITH_IMM) {
		wr.wr.rdma.remote_addr = (uintptr_t)right.memory;
		wr.wr.rdma.rkey = right.mr->rkey;
	}
	return wr;
}

static inline void post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	CHECK(ibv_post_send(qp, wr, &bad) == 0);
}

static inline void post_receive(struct ibv_qp *qp, uint64_t id, struct ibv_sge *sge)
{
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static inline struct ibv_wc wait_for(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;
	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(count == 1);
	return wc;
}

/* Posts a request, and returns how it went. */
static inline enum ibv_wc_status fate_of(struct end *end, struct ibv_send_wr *wr)
{
	post(end->qp, wr);
	return wait_for(end->cq).status;
}

/* Writes 8 bytes from `left`'s memory through a key of `right`'s. */
static inline enum ibv_wc_status write_through(uint32_t key, const void *to)
{
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)to;
	wr.wr.rdma.rkey = key;
	return fate_of(&left, &wr);
}

static inline int is_readable(int descriptor, int milliseconds)
{
	struct pollfd one = { .fd = descriptor, .events = POLLIN };
	return poll(&one, 1, milliseconds) == 1;
}

static inline void set_nonblocking(int descriptor)
{
	int flags = fcntl(descriptor, F_GETFL);
	CHECK(!(flags & O_NONBLOCK));
	CHECK(fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0);
}

#endif
