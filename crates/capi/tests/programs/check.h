/* What all the programs here need: two connected queue pairs, and a way to complain. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define CHECK(what)                                                            \
	do {                                                                   \
		if (!(what)) {                                                 \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__,    \
				__LINE__, #what, errno);                       \
			exit(1);                                               \
		}                                                              \
	} while (0)

/* An int-returning verb fails with a positive errno. */
#define REFUSES(call, error)                                                   \
	do {                                                                   \
		int result = (call);                                           \
		if (result != (error)) {                                       \
			fprintf(stderr, "%s:%d: %s gives %d, not %s\n",        \
				__FILE__, __LINE__, #call, result, #error);    \
			exit(1);                                               \
		}                                                              \
	} while (0)

/* A pointer-returning one with NULL and errno. */
#define REFUSES_POINTER(call, error)                                           \
	do {                                                                   \
		errno = 0;                                                     \
		void *result = (call);                                         \
		if (result != NULL || errno != (error)) {                      \
			fprintf(stderr, "%s:%d: %s gives %p, errno %d\n",      \
				__FILE__, __LINE__, #call, result, errno);     \
			exit(1);                                               \
		}                                                              \
	} while (0)

#define EVERYTHING                                                             \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |                    \
	 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |                   \
	 IBV_ACCESS_MW_BIND)

/* The address of the device `left`; on another library's device it is another one. */
static inline const char *own_address(void)
{
	const char *given = getenv("LEFT_ADDRESS");
	return given ? given : "127.0.0.31";
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

/* Whether it is a device of this library, which must have what others may lack. */
static inline int is_ours(struct ibv_context *context)
{
	struct ibv_device_attr attr;
	CHECK(ibv_query_device(context, &attr) == 0);
	return attr.vendor_id == 0xffffff;
}

static inline void open_end(struct end *end, const char *name)
{
	memset(end, 0, sizeof(*end));
	end->context = open_by_name(name);
	end->pd = ibv_alloc_pd(end->context);
	CHECK(end->pd != NULL);
	end->channel = ibv_create_comp_channel(end->context);
	CHECK(end->channel != NULL);
	end->cq = ibv_create_cq(end->context, 64, end, end->channel, 0);
	CHECK(end->cq != NULL);
	end->mr = ibv_reg_mr(end->pd, end->memory, sizeof(end->memory), EVERYTHING);
	CHECK(end->mr != NULL);
	CHECK(ibv_query_gid(end->context, 1, 0, &end->gid) == 0);
}

static inline struct ibv_qp *make_qp(struct end *end, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = 16,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = 64 },
		.qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(end->pd, &init);
	CHECK(qp != NULL);
	CHECK(init.cap.max_send_wr >= 16 && init.cap.max_inline_data >= 64);
	return qp;
}

static inline void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qkey = 0x1111,
				    .qp_access_flags = EVERYTHING &
						       ~IBV_ACCESS_MW_BIND };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
	CHECK(qp->state == IBV_QPS_INIT);
}

static inline void to_rts(struct ibv_qp *qp, uint32_t peer, union ibv_gid gid)
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
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .sq_psn = 100,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 4 };
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
}

static inline void connect_ends(struct end *a, struct end *b)
{
	a->qp = make_qp(a, IBV_QPT_RC);
	b->qp = make_qp(b, IBV_QPT_RC);
	to_init(a->qp);
	to_init(b->qp);
	to_rts(a->qp, b->qp->qp_num, b->gid);
	to_rts(b->qp, a->qp->qp_num, a->gid);
}

/* After an error: both begin again. */
static inline void reconnect_ends(struct end *a, struct end *b)
{
	CHECK(ibv_destroy_qp(a->qp) == 0 && ibv_destroy_qp(b->qp) == 0);
	connect_ends(a, b);
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

static inline int finish(void)
{
	printf("done\n");
	return 0;
}

#endif
