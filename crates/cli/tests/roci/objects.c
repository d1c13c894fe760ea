/* Creates two protection domains, three completion queues, a memory region, a memory window, a shared receive queue and five
 * queue pairs, and says so. One of them is an XRC target, which has no domain and no completion queue. Then it destroys a part of them for each line that it reads. */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(made) \
	({ \
		__typeof__(made) it = (made); \
		if (!it) { \
			perror(#made); \
			exit(1); \
		} \
		it; \
	})

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
	getchar();
}

int main(void)
{
	static char memory[4096];
	struct ibv_device **devices = MUST(ibv_get_device_list(NULL));
	struct ibv_context *context = MUST(ibv_open_device(MUST(devices[0])));
	struct ibv_pd *first = MUST(ibv_alloc_pd(context)), *second = MUST(ibv_alloc_pd(context));
	struct ibv_cq *queues[3];
	for (int i = 0; i < 3; i++)
		queues[i] = MUST(ibv_create_cq(context, 8, NULL, NULL, i % context->num_comp_vectors));
	struct ibv_mr *region = MUST(ibv_reg_mr(first, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
	struct ibv_mw *window = MUST(ibv_alloc_mw(first, IBV_MW_TYPE_1));
	struct ibv_srq_init_attr receives = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *shared = MUST(ibv_create_srq(first, &receives));
	struct ibv_qp *pairs[5];
	for (int i = 0; i < 4; i++) {
		struct ibv_qp_init_attr pair = {
			.send_cq = queues[i % 3],
			.recv_cq = queues[0],
			.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
			.qp_type = IBV_QPT_RC,
		};
		pairs[i] = MUST(ibv_create_qp(first, &pair));
	}
	struct ibv_xrcd_init_attr any = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = MUST(ibv_open_xrcd(context, &any)),
	};
	pairs[4] = MUST(ibv_create_qp_ex(context, &target));
	say("created");
	for (int i = 0; i < 5; i++)
		MUST(!ibv_destroy_qp(pairs[i]));
	MUST(!ibv_close_xrcd(target.xrcd));
	MUST(!ibv_destroy_cq(queues[1]));
	MUST(!ibv_dealloc_pd(second));
	say("destroyed some");
	MUST(!ibv_destroy_srq(shared));
	MUST(!ibv_dealloc_mw(window));
	MUST(!ibv_dereg_mr(region));
	MUST(!ibv_destroy_cq(queues[0]));
	MUST(!ibv_destroy_cq(queues[2]));
	MUST(!ibv_dealloc_pd(first));
	say("destroyed all");
	MUST(!ibv_close_device(context));
	say("closed");
	return 0;
}
