/*
 * Watches memory that a peer WRITEs: a number that says that something is there, and a record that the peer
 * writes again and again.
 *
 *	roci run -- ./watch_memory
 *	roci run -- ./watch_memory plain	# does not end: the compiler reads the number only once
 *
 * The peer is a thread with a queue pair of its own, so one process shows both sides. The side that is written
 * to gets no completion, and calls no verb while it watches.
 */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define DEVICE_PORT 1 /* RoCE devices have one port, and port numbers begin at 1 */
#define VALUES 512
#define COPIES 20000
#define HEAD_START_MICROSECONDS 100000

/* The peer writes `begin`, then the values, then `end`. All have the number of the round. */
struct record {
	uint64_t begin;
	uint64_t values[VALUES];
	uint64_t end;
};

struct device {
	struct ibv_context *context;
	struct ibv_pd *domain;
	int gid_index;
	union ibv_gid gid;
};

/* One region with the record that is watched, and the draft from which the peer writes it. */
static struct memory {
	struct record record, draft;
} memory;

static struct peer {
	struct ibv_cq *completions;
	struct ibv_mr *region;
	struct ibv_qp *writer, *target;
	int stop;
} peer;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* --- The side that watches --- */

/* Wrong: nothing in the loop changes the number, so the compiler may read it once and never again. */
static void watch_plain(const uint64_t *number)
{
	while (*number == 0)
		;
}

/* Reads the number each time. What the peer wrote before the number is visible after it. */
static void watch(const uint64_t *number)
{
	while (__atomic_load_n(number, __ATOMIC_ACQUIRE) == 0)
		;
}

/* Copies values that the peer may be writing: each is whole, and together they may be parts of two WRITEs. */
static void copy_values(uint64_t *into, const struct record *record)
{
	for (int value = 0; value < VALUES; value++)
		into[value] = __atomic_load_n(&record->values[value], __ATOMIC_RELAXED);
}

/*
 * Copies the values. Returns 0 if the peer may have written meanwhile. It writes `begin` first and `end` last, so
 * this reads them the other way round.
 */
static int copy_one_round(uint64_t *into, const struct record *record)
{
	uint64_t end = __atomic_load_n(&record->end, __ATOMIC_ACQUIRE);

	copy_values(into, record);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&record->begin, __ATOMIC_RELAXED) == end;
}

static int are_of_one_round(const uint64_t *values)
{
	for (int value = 1; value < VALUES; value++)
		if (values[value] != values[0])
			return 0;
	return 1;
}

static void watch_a_number(int is_plain)
{
	uint64_t values[VALUES];

	if (is_plain)
		watch_plain(&memory.record.end);
	else
		watch(&memory.record.end);
	copy_values(values, &memory.record);
	if (!are_of_one_round(values) || values[0] != 1) {
		fprintf(stderr, "the number came before the values\n");
		exit(1);
	}
	printf("number    it came, and the values before it are complete\n");
}

static void copy_a_record(void)
{
	uint64_t values[VALUES];
	int torn = 0, accepted = 0;

	for (int copy = 0; copy < COPIES; copy++) {
		copy_values(values, &memory.record);
		torn += !are_of_one_round(values);
	}
	printf("record    %d copies without a check: %d are torn\n", COPIES, torn);
	for (int copy = 0; copy < COPIES; copy++) {
		if (!copy_one_round(values, &memory.record))
			continue;
		accepted++;
		if (!are_of_one_round(values)) {
			fprintf(stderr, "a torn copy passed the check\n");
			exit(1);
		}
	}
	printf("record    %d copies with a check: %d passed it%s\n", COPIES, accepted,
	       accepted ? ", none of these is torn" : "");
}

/* --- The peer --- */

static void post_write(size_t offset, size_t length)
{
	struct ibv_sge segment = {
		.addr = (uintptr_t)&memory.draft + offset, .length = length, .lkey = peer.region->lkey,
	};
	struct ibv_send_wr request = {
		.sg_list = &segment, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = (uintptr_t)&memory.record + offset, .rkey = peer.region->rkey },
	}, *bad;

	errno = ibv_post_send(peer.writer, &request, &bad);
	if (errno)
		die("ibv_post_send");
}

static void wait_for_completion(void)
{
	struct ibv_wc done;
	int found;

	while ((found = ibv_poll_cq(peer.completions, 1, &done)) == 0)
		;
	if (found < 0 || done.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "a WRITE failed: %s\n", found < 0 ? "ibv_poll_cq" : ibv_wc_status_str(done.status));
		exit(1);
	}
}

/* Three WRITEs of one queue pair: the device of the target executes them in this order. */
static void write_record(uint64_t round)
{
	memory.draft.begin = memory.draft.end = round;
	for (int value = 0; value < VALUES; value++)
		memory.draft.values[value] = round;
	post_write(offsetof(struct record, begin), sizeof(memory.draft.begin));
	post_write(offsetof(struct record, values), sizeof(memory.draft.values));
	post_write(offsetof(struct record, end), sizeof(memory.draft.end));
	/* The draft must not change before its WRITEs are complete. */
	for (int write = 0; write < 3; write++)
		wait_for_completion();
}

static void *write_once(void *unused)
{
	(void)unused;
	usleep(HEAD_START_MICROSECONDS); /* the other side already watches */
	write_record(1);
	return NULL;
}

static void *write_until_stopped(void *unused)
{
	(void)unused;
	for (uint64_t round = 2; !__atomic_load_n(&peer.stop, __ATOMIC_RELAXED); round++)
		write_record(round);
	return NULL;
}

/* --- Objects --- */

/* The index of the first GID with an IPv4 address; -1 if there is none. */
static int ipv4_index(struct ibv_context *context)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_port_attr port;
	union ibv_gid gid;

	errno = ibv_query_port(context, DEVICE_PORT, &port);
	if (errno)
		die("ibv_query_port");
	for (int index = 0; index < port.gid_tbl_len; index++)
		if (!ibv_query_gid(context, DEVICE_PORT, index, &gid) &&
		    !memcmp(gid.raw, mapped, sizeof(mapped)))
			return index;
	return -1;
}

/* Opens the first device, or the first that has an IPv4 address. */
static struct ibv_context *open_first(int with_ipv4)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (struct ibv_device **device = list; device && *device && !context; device++) {
		context = ibv_open_device(*device);
		if (context && with_ipv4 && ipv4_index(context) < 0) {
			ibv_close_device(context);
			context = NULL;
		}
	}
	if (list)
		ibv_free_device_list(list);
	return context;
}

/* Prefers a device with an IPv4 address. Without one, GID index 0 is the address of the first device. */
static struct device open_device(void)
{
	struct device device = { .context = open_first(1) };

	if (device.context)
		device.gid_index = ipv4_index(device.context);
	else
		device.context = open_first(0);
	if (!device.context)
		die("there is no device");
	if (ibv_query_gid(device.context, DEVICE_PORT, device.gid_index, &device.gid))
		die("ibv_query_gid");
	device.domain = ibv_alloc_pd(device.context);
	if (!device.domain)
		die("ibv_alloc_pd");
	return device;
}

static struct ibv_qp *create_pair(const struct device *device)
{
	struct ibv_qp_init_attr wanted = {
		.cap = { .max_send_wr = 3, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.send_cq = peer.completions, .recv_cq = peer.completions,
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
	};
	struct ibv_qp_attr start = {
		.qp_state = IBV_QPS_INIT, .port_num = DEVICE_PORT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_qp *pair = ibv_create_qp(device->domain, &wanted);

	if (!pair)
		die("ibv_create_qp");
	errno = ibv_modify_qp(pair, &start,
			      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	if (errno)
		die("to INIT");
	return pair;
}

/* INIT -> RTR -> RTS. Both sides are in this process, so no parameters go over the network. */
static void connect_pair(const struct device *device, struct ibv_qp *pair, const struct ibv_qp *other)
{
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1, .port_num = DEVICE_PORT,
			.grh = { .dgid = device->gid, .sgid_index = device->gid_index, .hop_limit = 64 },
		},
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS, .max_rd_atomic = 1, .timeout = 16, .retry_cnt = 7, .rnr_retry = 7,
	};

	errno = ibv_modify_qp(pair, &receive,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (errno)
		die("to RTR");
	errno = ibv_modify_qp(pair, &send,
			      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	if (errno)
		die("to RTS");
}

static void create_peer(const struct device *device)
{
	peer.completions = ibv_create_cq(device->context, 8, NULL, NULL, 0);
	peer.region = ibv_reg_mr(device->domain, &memory, sizeof(memory),
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!peer.completions || !peer.region)
		die("a completion queue or a memory region");
	peer.writer = create_pair(device);
	peer.target = create_pair(device);
	connect_pair(device, peer.writer, peer.target);
	connect_pair(device, peer.target, peer.writer);
}

static void destroy_peer(void)
{
	ibv_destroy_qp(peer.writer);
	ibv_destroy_qp(peer.target);
	ibv_dereg_mr(peer.region);
	ibv_destroy_cq(peer.completions);
}

static pthread_t start(void *(*run)(void *))
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, run, NULL);
	if (errno)
		die("pthread_create");
	return thread;
}

int main(int argc, char **argv)
{
	int is_plain = argc == 2 && !strcmp(argv[1], "plain");

	if (argc > 1 && !is_plain) {
		fprintf(stderr, "usage: %s [plain]\n", argv[0]);
		return strcmp(argv[1], "--help") ? 2 : 0;
	}
	struct device device = open_device();

	create_peer(&device);
	pthread_t thread = start(write_once);

	watch_a_number(is_plain);
	pthread_join(thread, NULL);
	thread = start(write_until_stopped);
	copy_a_record();
	__atomic_store_n(&peer.stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	destroy_peer();
	ibv_dealloc_pd(device.domain);
	ibv_close_device(device.context);
	return 0;
}
