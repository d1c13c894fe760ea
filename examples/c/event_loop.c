/*
 * An echo server and its client, each with one event loop: epoll waits for the event channel of the
 * connection manager and for the completion channel of the completion queue.
 *
 *	roci run -- ./event_loop server
 *	roci run -- ./event_loop client 127.0.0.1 1000
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <rdma/rdma_cma.h>

#define PORT "7472"
#define RESOLVE_MS 5000
#define MESSAGE_SIZE 64

/* Ids of the work requests. */
enum { RECEIVE = 1, SEND = 2 };

/* The state of the program. An event loop keeps in a struct what a thread would keep on its stack. */
struct state {
	int poller;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener, *id;
	struct ibv_pd *domain;
	struct ibv_comp_channel *channel;
	struct ibv_cq *completions;
	struct ibv_mr *memory;
	int rounds;	   /* client: the number of round trips */
	int echoed;	   /* the number of echoed messages */
	int received;	   /* the receive has completed, and its message is not handled yet */
	int sending;	   /* the SEND has not completed yet, so its buffer is in use */
	int disconnected;
	struct buffers {
		char in[MESSAGE_SIZE], out[MESSAGE_SIZE];
	} buffers;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Adds a descriptor to the event loop. It must not block, because the loop reads it until EAGAIN. */
static void watch(struct state *state, int descriptor)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = descriptor };

	if (fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK) ||
	    epoll_ctl(state->poller, EPOLL_CTL_ADD, descriptor, &event))
		die("epoll_ctl");
}

static void post_receive(struct state *state)
{
	struct ibv_sge segment = {
		.addr = (uintptr_t)state->buffers.in, .length = MESSAGE_SIZE, .lkey = state->memory->lkey,
	};
	struct ibv_recv_wr request = { .wr_id = RECEIVE, .sg_list = &segment, .num_sge = 1 }, *bad;

	state->received = 0;
	errno = ibv_post_recv(state->id->qp, &request, &bad);
	if (errno)
		die("ibv_post_recv");
}

static void post_send(struct state *state)
{
	struct ibv_sge segment = {
		.addr = (uintptr_t)state->buffers.out, .length = MESSAGE_SIZE, .lkey = state->memory->lkey,
	};
	struct ibv_send_wr request = {
		.wr_id = SEND, .sg_list = &segment, .num_sge = 1, .opcode = IBV_WR_SEND,
	}, *bad;

	state->sending = 1;
	errno = ibv_post_send(state->id->qp, &request, &bad);
	if (errno)
		die("ibv_post_send");
}

/* Creates the queue pair and what it needs, when the device of the id is known. */
static void create_resources(struct state *state)
{
	struct ibv_qp_init_attr wanted = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	state->domain = ibv_alloc_pd(state->id->verbs);
	state->channel = ibv_create_comp_channel(state->id->verbs);
	if (!state->domain || !state->channel)
		die("a protection domain or a completion channel");
	state->completions = ibv_create_cq(state->id->verbs, 2, NULL, state->channel, 0);
	state->memory = ibv_reg_mr(state->domain, &state->buffers, sizeof(state->buffers),
				   IBV_ACCESS_LOCAL_WRITE);
	if (!state->completions || !state->memory)
		die("a completion queue or a memory region");
	watch(state, state->channel->fd);
	/* Arm the queue before the first request: only an armed queue sends a notification. */
	errno = ibv_req_notify_cq(state->completions, 0);
	if (errno)
		die("ibv_req_notify_cq");
	wanted.send_cq = wanted.recv_cq = state->completions;
	if (rdma_create_qp(state->id, state->domain, &wanted))
		die("rdma_create_qp");
}

static void send_message(struct state *state)
{
	memset(state->buffers.out, 0, MESSAGE_SIZE);
	snprintf(state->buffers.out, MESSAGE_SIZE, "message %d", state->echoed);
	post_send(state);
}

/* Continues when the receive and the SEND have both completed, in whatever order. */
static void advance(struct state *state)
{
	if (!state->received || state->sending)
		return;
	if (state->listener) {
		memcpy(state->buffers.out, state->buffers.in, MESSAGE_SIZE);
		/* Post the receive first: the client sends again as soon as it has the echo. */
		post_receive(state);
		post_send(state);
		state->echoed++;
		return;
	}
	if (memcmp(state->buffers.in, state->buffers.out, MESSAGE_SIZE)) {
		fprintf(stderr, "message %d came back changed\n", state->echoed);
		exit(1);
	}
	if (++state->echoed == state->rounds) {
		rdma_disconnect(state->id);
		return;
	}
	post_receive(state);
	send_message(state);
}

/* Handles one completion. */
static void complete(struct state *state, const struct ibv_wc *done)
{
	if (done->status == IBV_WC_WR_FLUSH_ERR)
		return; /* the connection has ended, which the event channel reports */
	if (done->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "request %d: %s\n", (int)done->wr_id, ibv_wc_status_str(done->status));
		exit(1);
	}
	if (done->wr_id == RECEIVE)
		state->received = 1;
	else
		state->sending = 0;
	advance(state);
}

/* The completion channel is readable. The order of the three steps matters: no completion is missed. */
static void handle_completions(struct state *state)
{
	struct ibv_wc done;
	struct ibv_cq *queue;
	void *context;
	int found;

	/* 1. Take the notifications and acknowledge them. Destroying the queue waits for that. */
	while (!ibv_get_cq_event(state->channel, &queue, &context))
		ibv_ack_cq_events(queue, 1);
	if (errno != EAGAIN)
		die("ibv_get_cq_event");
	/* 2. Arm the queue again. */
	errno = ibv_req_notify_cq(state->completions, 0);
	if (errno)
		die("ibv_req_notify_cq");
	/* 3. Poll until it is empty. A later completion sends a new notification. */
	while ((found = ibv_poll_cq(state->completions, 1, &done)) > 0)
		complete(state, &done);
	if (found < 0)
		die("ibv_poll_cq");
}

static void connect_or_accept(struct state *state, int (*call)(struct rdma_cm_id *, struct rdma_conn_param *))
{
	struct rdma_conn_param parameters = { .retry_count = 7, .rnr_retry_count = 7 };

	create_resources(state);
	post_receive(state);
	if (call(state->id, &parameters))
		die("rdma_connect or rdma_accept");
}

static void handle_event(struct state *state, enum rdma_cm_event_type kind, int status)
{
	switch (kind) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(state->id, RESOLVE_MS))
			die("rdma_resolve_route");
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		connect_or_accept(state, rdma_connect);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		connect_or_accept(state, rdma_accept);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (!state->listener)
			send_message(state);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		state->disconnected = 1;
		break;
	default:
		fprintf(stderr, "%s (status %d): is the server running?\n", rdma_event_str(kind), status);
		exit(1);
	}
}

/* The event channel is readable. */
static void handle_events(struct state *state)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(state->events, &event)) {
		enum rdma_cm_event_type kind = event->event;
		int status = event->status;

		if (kind == RDMA_CM_EVENT_CONNECT_REQUEST)
			state->id = event->id;
		rdma_ack_cm_event(event);
		handle_event(state, kind, status);
	}
	if (errno != EAGAIN)
		die("rdma_get_cm_event");
}

static void run(struct state *state)
{
	struct epoll_event ready[2];

	while (!state->disconnected) {
		int count = epoll_wait(state->poller, ready, 2, -1);

		if (count < 0 && errno != EINTR)
			die("epoll_wait");
		for (int index = 0; index < count; index++) {
			if (ready[index].data.fd == state->events->fd)
				handle_events(state);
			else
				handle_completions(state);
		}
	}
}

static void start_server(struct state *state)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(atoi(PORT)) };

	if (rdma_create_id(state->events, &state->listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(state->listener, (struct sockaddr *)&any) || rdma_listen(state->listener, 1))
		die("listening");
	printf("server  listens on port %s\n", PORT);
	fflush(stdout);
}

static void start_client(struct state *state, const char *server)
{
	struct addrinfo hints = { .ai_family = AF_INET }, *address;

	if (getaddrinfo(server, PORT, &hints, &address)) {
		fprintf(stderr, "%s is not an address\n", server);
		exit(1);
	}
	if (rdma_create_id(state->events, &state->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(state->id, NULL, address->ai_addr, RESOLVE_MS))
		die("rdma_resolve_addr");
	freeaddrinfo(address);
}

static void destroy(struct state *state)
{
	rdma_destroy_qp(state->id);
	ibv_dereg_mr(state->memory);
	ibv_destroy_cq(state->completions);
	ibv_destroy_comp_channel(state->channel);
	ibv_dealloc_pd(state->domain);
	rdma_destroy_id(state->id);
	if (state->listener)
		rdma_destroy_id(state->listener);
	rdma_destroy_event_channel(state->events);
}

int main(int argc, char **argv)
{
	static struct state state; /* static: registered memory must not move */
	int is_server = argc == 2 && !strcmp(argv[1], "server");

	if (!is_server && (argc < 2 || argc > 4 || strcmp(argv[1], "client"))) {
		fprintf(stderr, "usage: %s server\n       %s client [SERVER [ROUNDS]]\n", argv[0], argv[0]);
		return argc > 1 && !strcmp(argv[1], "--help") ? 0 : 2;
	}
	state.rounds = argc > 3 && atoi(argv[3]) > 0 ? atoi(argv[3]) : 1000;
	state.poller = epoll_create1(EPOLL_CLOEXEC);
	state.events = rdma_create_event_channel();
	if (state.poller < 0 || !state.events)
		die("epoll or an event channel");
	watch(&state, state.events->fd);
	if (is_server)
		start_server(&state);
	else
		start_client(&state, argc > 2 ? argv[2] : "127.0.0.1");
	run(&state);
	printf("%s  %d messages echoed\n", is_server ? "server" : "client", state.echoed);
	if (is_server)
		rdma_disconnect(state.id); /* answers the disconnect request */
	destroy(&state);
	return 0;
}
