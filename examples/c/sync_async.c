/*
 * Three ways to wait for completions, side by side: polling, blocking for events, and epoll. The verbs are the
 * same in all three. Each prints how long a round trip takes, and for how much of this time the waiting
 * thread used the CPU.
 *
 *	roci run -- ./sync_async
 *	roci run -- ./sync_async epoll 5000
 *
 * A client and a server are in one process, with a thread each. The server takes some time for each reply, as
 * a peer on another machine does. It always waits in the same way; only the client differs.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define DEVICE_PORT 1 /* RoCE devices have one port, and port numbers begin at 1 */
#define MESSAGE_SIZE 64
#define REPLY_MICROSECONDS 200

/* Ids of the work requests. */
enum { RECEIVE = 1, SEND = 2 };

enum way { POLLING, EVENTS, EPOLL, WAYS };
static const char *const names[WAYS] = { "polling", "events", "epoll" };

/* One side of the connection. */
struct side {
	enum way way;
	struct ibv_comp_channel *channel; /* receives notifications of the completion queue */
	struct ibv_cq *completions;
	struct ibv_mr *memory;
	struct ibv_qp *pair;
	int poller; /* the epoll descriptor, with the descriptor of the channel in it */
	int is_armed; /* the next completion sends a notification */
	struct buffers {
		char in[MESSAGE_SIZE], out[MESSAGE_SIZE];
	} buffers;
};

/* The device and the GID that both sides use. */
struct device {
	struct ibv_context *context;
	struct ibv_pd *domain;
	int gid_index;
	union ibv_gid gid;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* --- The three ways --- */

/* Sleeps until the completion channel has a notification, and takes it. */
static void wait_for_notification(struct side *side)
{
	struct epoll_event ready;
	struct ibv_cq *queue;
	void *context;

	if (side->way == EPOLL)
		while (epoll_wait(side->poller, &ready, 1, -1) < 0)
			if (errno != EINTR)
				die("epoll_wait");
	/* The channel of the way `events` is blocking, so this call sleeps. That of `epoll` is non-blocking. */
	if (ibv_get_cq_event(side->channel, &queue, &context)) {
		if (errno == EAGAIN)
			return; /* the descriptor may be readable without a notification */
		die("ibv_get_cq_event");
	}
	/* Destroying the queue waits until all its events are acknowledged. */
	ibv_ack_cq_events(queue, 1);
	side->is_armed = 0;
}

/* The next completion. Without one: arm the queue, poll again, and only then sleep. In any other order, a
 * completion between polling and sleeping would send no notification. */
static struct ibv_wc next_completion(struct side *side)
{
	struct ibv_wc done;
	int found;

	while ((found = ibv_poll_cq(side->completions, 1, &done)) == 0) {
		if (side->way == POLLING)
			continue;
		if (side->is_armed) {
			wait_for_notification(side);
			continue;
		}
		errno = ibv_req_notify_cq(side->completions, 0);
		if (errno)
			die("ibv_req_notify_cq");
		side->is_armed = 1;
	}
	if (found < 0 || done.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "request %d: %s\n", (int)done.wr_id, ibv_wc_status_str(done.status));
		exit(1);
	}
	return done;
}

/* --- The same in all ways --- */

static void post_receive(struct side *side)
{
	struct ibv_sge segment = {
		.addr = (uintptr_t)side->buffers.in, .length = MESSAGE_SIZE, .lkey = side->memory->lkey,
	};
	struct ibv_recv_wr request = { .wr_id = RECEIVE, .sg_list = &segment, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(side->pair, &request, &bad);
	if (errno)
		die("ibv_post_recv");
}

static void post_send(struct side *side)
{
	struct ibv_sge segment = {
		.addr = (uintptr_t)side->buffers.out, .length = MESSAGE_SIZE, .lkey = side->memory->lkey,
	};
	struct ibv_send_wr request = {
		.wr_id = SEND, .sg_list = &segment, .num_sge = 1, .opcode = IBV_WR_SEND,
	}, *bad;

	errno = ibv_post_send(side->pair, &request, &bad);
	if (errno)
		die("ibv_post_send");
}

static void run_client(struct side *side, int rounds)
{
	for (int round = 0; round < rounds; round++) {
		memset(side->buffers.out, 0, MESSAGE_SIZE);
		snprintf(side->buffers.out, MESSAGE_SIZE, "message %d", round);
		post_send(side);
		/* Two requests complete, in any order: the SEND, and the receive of the echo. */
		next_completion(side);
		next_completion(side);
		if (memcmp(side->buffers.in, side->buffers.out, MESSAGE_SIZE)) {
			fprintf(stderr, "round %d came back changed\n", round);
			exit(1);
		}
		post_receive(side);
	}
}

struct server {
	struct side *side;
	int rounds;
};

static void *run_server(void *argument)
{
	struct server *server = argument;
	struct side *side = server->side;
	int received = 0, sent = 0;

	while (sent < server->rounds) {
		if (next_completion(side).wr_id == SEND) {
			sent++;
			continue;
		}
		received++;
		usleep(REPLY_MICROSECONDS);
		memcpy(side->buffers.out, side->buffers.in, MESSAGE_SIZE);
		/* Post the receive first: the client sends again as soon as it has the echo. */
		if (received < server->rounds)
			post_receive(side);
		post_send(side);
	}
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
	printf("device    %s, GID index %d\n", ibv_get_device_name(device.context->device), device.gid_index);
	return device;
}

static void create_side(struct side *side, const struct device *device, enum way way)
{
	struct ibv_qp_init_attr wanted = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
	};
	struct ibv_qp_attr start = { .qp_state = IBV_QPS_INIT, .port_num = DEVICE_PORT };
	struct epoll_event event = { .events = EPOLLIN };

	memset(side, 0, sizeof(*side));
	side->way = way;
	side->channel = ibv_create_comp_channel(device->context);
	side->poller = epoll_create1(EPOLL_CLOEXEC);
	if (!side->channel || side->poller < 0)
		die("a completion channel");
	if (way == EPOLL && (fcntl(side->channel->fd, F_SETFL, O_NONBLOCK) ||
			     epoll_ctl(side->poller, EPOLL_CTL_ADD, side->channel->fd, &event)))
		die("epoll_ctl");
	side->completions = ibv_create_cq(device->context, 2, NULL, side->channel, 0);
	side->memory = ibv_reg_mr(device->domain, &side->buffers, sizeof(side->buffers), IBV_ACCESS_LOCAL_WRITE);
	wanted.send_cq = wanted.recv_cq = side->completions;
	if (!side->completions || !side->memory || !(side->pair = ibv_create_qp(device->domain, &wanted)))
		die("a completion queue, a memory region or a queue pair");
	errno = ibv_modify_qp(side->pair, &start,
			      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	if (errno)
		die("to INIT");
	post_receive(side);
}

/* INIT -> RTR -> RTS. Both sides are in this process, so no parameters go over the network. */
static void connect_side(struct side *side, const struct device *device, const struct side *peer)
{
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->pair->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1, .port_num = DEVICE_PORT,
			.grh = { .dgid = device->gid, .sgid_index = device->gid_index, .hop_limit = 64 },
		},
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS, .max_rd_atomic = 1, .timeout = 16, .retry_cnt = 7, .rnr_retry = 7,
	};

	errno = ibv_modify_qp(side->pair, &receive,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (errno)
		die("to RTR");
	errno = ibv_modify_qp(side->pair, &send,
			      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	if (errno)
		die("to RTS");
}

static void destroy_side(struct side *side)
{
	ibv_destroy_qp(side->pair);
	ibv_dereg_mr(side->memory);
	ibv_destroy_cq(side->completions);
	ibv_destroy_comp_channel(side->channel);
	close(side->poller);
}

static double microseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static void measure(const struct device *device, enum way way, int rounds)
{
	static struct side client, server; /* static: registered memory must not move */
	struct server argument = { .side = &server, .rounds = rounds };
	pthread_t thread;

	create_side(&client, device, way);
	create_side(&server, device, EVENTS);
	connect_side(&client, device, &server);
	connect_side(&server, device, &client);
	errno = pthread_create(&thread, NULL, run_server, &argument);
	if (errno)
		die("pthread_create");
	double began = microseconds(CLOCK_MONOTONIC), used = microseconds(CLOCK_THREAD_CPUTIME_ID);

	run_client(&client, rounds);
	double took = microseconds(CLOCK_MONOTONIC) - began;

	used = microseconds(CLOCK_THREAD_CPUTIME_ID) - used;
	printf("%-9s %d messages came back unchanged, one round trip in %.1f us, with %.1f us of CPU time\n",
	       names[way], rounds, took / rounds, used / rounds);
	pthread_join(thread, NULL);
	destroy_side(&client);
	destroy_side(&server);
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 1000, chosen = WAYS;

	for (int way = 0; argc > 1 && way < WAYS; way++)
		if (!strcmp(argv[1], names[way]))
			chosen = way;
	if ((argc > 1 && chosen == WAYS && strcmp(argv[1], "all")) || argc > 3 || rounds <= 0) {
		fprintf(stderr, "usage: %s [polling|events|epoll|all [ROUNDS]]\n", argv[0]);
		return argc > 1 && !strcmp(argv[1], "--help") ? 0 : 2;
	}
	struct device device = open_device();

	for (int way = 0; way < WAYS; way++)
		if (chosen == WAYS || chosen == way)
			measure(&device, way, rounds);
	ibv_dealloc_pd(device.domain);
	ibv_close_device(device.context);
	return 0;
}
