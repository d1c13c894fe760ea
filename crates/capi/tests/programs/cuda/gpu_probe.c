/* Two processes on one GPU: WRITEs and READs of its memory, with every byte compared, and how fast they are.
 *
 *     cc -O2 -o gpu_probe gpu_probe.c -libverbs -ldl
 *     ROCI_DEVICES=left=127.0.0.1,right=127.0.0.2 ./gpu_probe
 *
 * The functions of libcuda are declared here, so that it needs no CUDA to be compiled. It ends with 0 if all bytes are right,
 * and with 77 if there is no GPU. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/wait.h>
#include <infiniband/verbs.h>

#define MIB ((size_t)1 << 20)
#define SIZE (64 * MIB)
#define NO_GPU 77
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

#define NEED(what)                                                                                    \
	do {                                                                                          \
		if (!(what)) {                                                                        \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno);  \
			_exit(1);                                                                     \
		}                                                                                     \
	} while (0)

static int (*init)(unsigned), (*device_at)(int *, int), (*retain)(void **, int), (*enter)(void *);
static int (*allocate)(uint64_t *, size_t), (*to_device)(uint64_t, const void *, size_t);
static int (*to_host)(void *, uint64_t, size_t), (*attribute)(int *, int, int);
static int (*descriptor_of)(void *, uint64_t, size_t, int, unsigned long long);

static void *find(void *library, const char *name)
{
	void *address = dlsym(library, name);
	if (address == NULL)
		fprintf(stderr, "libcuda has no %s\n", name);
	return address;
}

static int open_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (library == NULL)
		return NO_GPU;
	init = find(library, "cuInit");
	device_at = find(library, "cuDeviceGet");
	retain = find(library, "cuDevicePrimaryCtxRetain");
	enter = find(library, "cuCtxSetCurrent");
	allocate = find(library, "cuMemAlloc_v2");
	to_device = find(library, "cuMemcpyHtoD_v2");
	to_host = find(library, "cuMemcpyDtoH_v2");
	attribute = find(library, "cuDeviceGetAttribute");
	descriptor_of = find(library, "cuMemGetHandleForAddressRange");
	int device;
	void *context;
	if (init(0) != 0 || device_at(&device, 0) != 0)
		return NO_GPU;
	NEED(retain(&context, device) == 0 && enter(context) == 0);
	return 0;
}

struct card {
	uint32_t number, key, host_key;
	uint64_t address, host_address;
	union ibv_gid gid;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *gpu_mr, *host_mr;
static uint64_t gpu;
static unsigned char *host;
static struct card peer;

static void open_device(const char *name)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	for (int i = 0; i < count; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			context = ibv_open_device(list[i]);
	NEED(context != NULL);
	NEED((pd = ibv_alloc_pd(context)) != NULL);
	NEED((cq = ibv_create_cq(context, 64, NULL, NULL, 0)) != NULL);
	NEED(allocate(&gpu, SIZE) == 0);
	NEED((host = aligned_alloc(4096, SIZE)) != NULL);
	memset(host, 0, SIZE);
	NEED((gpu_mr = ibv_reg_mr(pd, (void *)gpu, SIZE, ACCESS)) != NULL);
	NEED((host_mr = ibv_reg_mr(pd, host, SIZE, ACCESS)) != NULL);
	struct ibv_qp_init_attr wanted = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4, .max_recv_sge = 4 },
	};
	NEED((qp = ibv_create_qp(pd, &wanted)) != NULL);
}

static void connect_to_peer(int in, int out)
{
	struct card own = { qp->qp_num, gpu_mr->rkey, host_mr->rkey, gpu, (uintptr_t)host, { { 0 } } };
	NEED(ibv_query_gid(context, 1, 0, &own.gid) == 0);
	NEED(write(out, &own, sizeof(own)) == sizeof(own) && read(in, &peer, sizeof(peer)) == sizeof(peer));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS };
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer.number,
		.rq_psn = 1, .max_dest_rd_atomic = 16, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = peer.gid, .hop_limit = 64 } } };
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 16 };
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	char ready = 1;
	NEED(write(out, &ready, 1) == 1 && read(in, &ready, 1) == 1);
}

static void request(enum ibv_wr_opcode opcode, int own_is_gpu, int far_is_gpu, size_t offset, uint32_t length)
{
	struct ibv_sge sge = { (own_is_gpu ? gpu : (uintptr_t)host) + offset, length, (own_is_gpu ? gpu_mr : host_mr)->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
	wr.wr.rdma.remote_addr = (far_is_gpu ? peer.address : peer.host_address) + offset;
	wr.wr.rdma.rkey = far_is_gpu ? peer.key : peer.host_key;
	NEED(ibv_post_send(qp, &wr, &bad) == 0);
}

static void wait_for_one(void)
{
	struct ibv_wc wc;
	int count;
	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	NEED(count == 1);
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "a request ended with %s\n", ibv_wc_status_str(wc.status));
		_exit(1);
	}
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

static void measure(const char *what, enum ibv_wr_opcode opcode, int own_is_gpu, int far_is_gpu, uint32_t length, int in_flight)
{
	int count = length > 65536 ? 200 : 5000, posted = 0;
	double best = 1e9;
	for (int round = 0; round < 3; round++) {
		double start = now();
		posted = 0;
		for (int done = 0; done < count; done++) {
			while (posted < count && posted < done + in_flight)
				request(opcode, own_is_gpu, far_is_gpu, (posted++ % 8) * (size_t)length, length);
			wait_for_one();
		}
		double each = (now() - start) / count;
		best = each < best ? each : best;
	}
	printf("%-34s %9u B, %2d in flight: %8.2f us, %6.2f GB/s\n", what, length, in_flight, best * 1e6, length / best / 1e9);
	fflush(stdout);
}

static unsigned char pattern(size_t at, unsigned seed)
{
	return (at * 7 + (at >> 8) * 13 + seed) & 0xff;
}

static void compare(const unsigned char *bytes, size_t length, unsigned seed, const char *what)
{
	for (size_t i = 0; i < length; i++) {
		if (bytes[i] != pattern(i, seed)) {
			fprintf(stderr, "%s: byte %zu is wrong\n", what, i);
			_exit(1);
		}
	}
	printf("%s: all %zu bytes are right\n", what, length);
}

static void tell(int out)
{
	char byte = 1;
	NEED(write(out, &byte, 1) == 1);
}

static void hear(int in)
{
	char byte;
	NEED(read(in, &byte, 1) == 1);
}

static int serve(int in, int out)
{
	int error = open_cuda();
	if (error)
		return error;
	open_device("right");
	connect_to_peer(in, out);
	/* What the client wrote. */
	hear(in);
	unsigned char *copy = malloc(SIZE);
	NEED(to_host(copy, gpu, SIZE) == 0);
	compare(copy, SIZE, 1, "WRITE from a GPU to a GPU");
	for (size_t i = 0; i < SIZE; i++)
		copy[i] = pattern(i, 2);
	NEED(to_device(gpu, copy, SIZE) == 0);
	tell(out);
	hear(in);
	return 0;
}

static void check_dma_buf(void)
{
	int supported = 0, file = -1;
	errno = 0;
	NEED(ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0) == NULL && errno == EBADF);
	/* CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD */
	if (attribute(&supported, 124, 0) != 0 || !supported || descriptor_of(&file, gpu, SIZE, 1, 0) != 0) {
		printf("DMA-bufs: this driver hands out none\n");
		return;
	}
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, SIZE, gpu, file, ACCESS);
	NEED(mr != NULL);
	NEED(ibv_dereg_mr(mr) == 0);
	close(file);
	printf("DMA-bufs: registered by address\n");
}

int main(void)
{
	int down[2], up[2];
	NEED(pipe(down) == 0 && pipe(up) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0)
		return serve(down[0], up[1]);
	int error = open_cuda();
	if (error) {
		printf("there is no GPU\n");
		return error;
	}
	open_device("left");
	check_dma_buf();
	for (size_t i = 0; i < SIZE; i++)
		host[i] = pattern(i, 1);
	NEED(to_device(gpu, host, SIZE) == 0);
	connect_to_peer(up[0], down[1]);
	for (size_t offset = 0; offset < SIZE; offset += 16 * MIB)
		request(IBV_WR_RDMA_WRITE, 1, 1, offset, 16 * MIB);
	for (size_t offset = 0; offset < SIZE; offset += 16 * MIB)
		wait_for_one();
	tell(down[1]);
	hear(up[0]);
	for (size_t offset = 0; offset < SIZE; offset += 16 * MIB)
		request(IBV_WR_RDMA_READ, 1, 1, offset, 16 * MIB);
	for (size_t offset = 0; offset < SIZE; offset += 16 * MIB)
		wait_for_one();
	NEED(to_host(host, gpu, SIZE) == 0);
	compare(host, SIZE, 2, "READ from a GPU to a GPU");
	static const struct { const char *name; int own, far; } kinds[] = {
		{ "host, peer's host memory", 0, 0 }, { "host, peer's GPU memory", 0, 1 }, { "GPU, peer's GPU memory", 1, 1 } };
	for (int i = 0; i < 3; i++) {
		char name[64];
		for (int reads = 0; reads < 2; reads++) {
			enum ibv_wr_opcode opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
			snprintf(name, sizeof(name), "%s %s", reads ? "READ," : "WRITE,", kinds[i].name);
			measure(name, opcode, kinds[i].own, kinds[i].far, 64, 1);
			measure(name, opcode, kinds[i].own, kinds[i].far, 4096, 1);
			measure(name, opcode, kinds[i].own, kinds[i].far, 65536, 1);
			measure(name, opcode, kinds[i].own, kinds[i].far, MIB, 4);
			measure(name, opcode, kinds[i].own, kinds[i].far, 4 * MIB, 4);
		}
	}
	tell(down[1]);
	int status;
	NEED(waitpid(child, &status, 0) == child);
	return WEXITSTATUS(status);
}
