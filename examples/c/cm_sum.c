/*
 * An introduction to the connection manager: a client sends two numbers, and the server returns their sum.
 *
 *	roci run -- ./cm_sum server
 *	roci run -- ./cm_sum client 127.0.0.1 123 567
 *
 * The server sends the address and the rkey of its buffer as private data. The client writes the first
 * number there by RDMA WRITE, and sends the second by SEND. A reliable connection keeps the order: when
 * the SEND has arrived, the WRITE has, too.
 *
 * Interoperates with the Rust program of the same name: either can be server or client.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>

#define PORT "20079"
#define RESOLVE_MS 5000

/* Ids of the work requests. */
enum { RECEIVE = 1, WRITE = 2, SEND = 3 };

/* Two numbers and their sum, in network byte order. */
struct numbers {
	uint32_t first, second, sum;
};

/* The private data of the server. */
struct offer {
	uint64_t address;
	uint32_t rkey;
} __attribute__((packed));

/* The objects that both sides need. */
struct resources {
	struct rdma_event_channel *channel; /* events of the connection */
	struct rdma_cm_id *id;
	struct ibv_comp_channel *completion_channel; /* receives notifications of the completion queue */
	struct ibv_cq *completions;
	struct ibv_mr *memory;
	struct numbers numbers;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct rdma_cm_event *expect(struct resources *resources, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(resources->channel, &event))
		die("rdma_get_cm_event");
	printf("event   %s\n", rdma_event_str(event->event));
	if (event->event != wanted) {
		fprintf(stderr, "expected %s (status %d): is the server running?\n",
			rdma_event_str(wanted), event->status);
		exit(1);
	}
	return event;
}

/* Every event must be acknowledged; otherwise destroying the id waits forever. */
static void expect_and_ack(struct resources *resources, enum rdma_cm_event_type wanted)
{
	rdma_ack_cm_event(expect(resources, wanted));
}

/* Creates the other objects when the device of the id is known. */
static void create_resources(struct resources *resources)
{
	struct ibv_qp_init_attr wanted = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_pd *domain = ibv_alloc_pd(resources->id->verbs);

	resources->completion_channel = ibv_create_comp_channel(resources->id->verbs);
	if (!domain || !resources->completion_channel)
		die("a protection domain or a completion channel");
	resources->completions = ibv_create_cq(resources->id->verbs, 16, NULL, resources->completion_channel, 0);
	resources->memory = ibv_reg_mr(domain, &resources->numbers, sizeof(resources->numbers),
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!resources->completions || !resources->memory)
		die("a completion queue or a memory region");
	errno = ibv_req_notify_cq(resources->completions, 0);
	if (errno)
		die("ibv_req_notify_cq");
	wanted.send_cq = wanted.recv_cq = resources->completions;
	if (rdma_create_qp(resources->id, domain, &wanted))
		die("rdma_create_qp");
}

static struct ibv_sge segment(struct resources *resources, uint32_t *number)
{
	struct ibv_sge segment = {
		.addr = (uintptr_t)number,
		.length = sizeof(*number),
		.lkey = resources->memory->lkey,
	};
	return segment;
}

static void post_receive(struct resources *resources, uint32_t *where)
{
	struct ibv_sge buffer = segment(resources, where);
	struct ibv_recv_wr request = { .wr_id = RECEIVE, .sg_list = &buffer, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(resources->id->qp, &request, &bad);
	if (errno)
		die("ibv_post_recv");
}

static void post_send(struct resources *resources, uint32_t *what)
{
	struct ibv_sge data = segment(resources, what);
	struct ibv_send_wr request = {
		.wr_id = SEND, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_SEND,
	}, *bad;

	errno = ibv_post_send(resources->id->qp, &request, &bad);
	if (errno)
		die("ibv_post_send");
}

static void post_write(struct resources *resources, uint32_t *what, const struct offer *offer)
{
	struct ibv_sge data = segment(resources, what);
	struct ibv_send_wr request = {
		.wr_id = WRITE, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = be64toh(offer->address), .rkey = ntohl(offer->rkey) },
	}, *bad;

	errno = ibv_post_send(resources->id->qp, &request, &bad);
	if (errno)
		die("ibv_post_send");
}

/* Waits for a notification, and arms the queue again. The caller then polls, so it misses no completion. */
static void wait_for_notification(struct resources *resources)
{
	struct ibv_cq *queue;
	void *context;

	if (ibv_get_cq_event(resources->completion_channel, &queue, &context))
		die("ibv_get_cq_event");
	ibv_ack_cq_events(queue, 1);
	errno = ibv_req_notify_cq(queue, 0);
	if (errno)
		die("ibv_req_notify_cq");
}

/* Waits until this many requests have completed, in any order. */
static void wait_for(struct resources *resources, int number)
{
	struct ibv_wc done;

	while (number > 0) {
		int found = ibv_poll_cq(resources->completions, 1, &done);

		if (found == 0) {
			wait_for_notification(resources);
			continue;
		}
		if (found < 0 || done.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "request %d: %s\n", (int)done.wr_id,
				ibv_wc_status_str(done.status));
			exit(1);
		}
		number--;
	}
}

static void destroy_resources(struct resources *resources)
{
	rdma_destroy_qp(resources->id);
	ibv_dereg_mr(resources->memory);
	ibv_destroy_cq(resources->completions);
	ibv_destroy_comp_channel(resources->completion_channel);
	rdma_destroy_id(resources->id);
	rdma_destroy_event_channel(resources->channel);
}

static void run_server(struct resources *resources)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(atoi(PORT)) };
	struct rdma_cm_id *listener;

	if (rdma_create_id(resources->channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&any) || rdma_listen(listener, 1))
		die("listening");
	printf("server  listens on port %s\n", PORT);
	fflush(stdout);

	struct rdma_cm_event *request = expect(resources, RDMA_CM_EVENT_CONNECT_REQUEST);

	resources->id = request->id;
	rdma_ack_cm_event(request);
	create_resources(resources);
	/* Post the receive before accepting: the client may send as soon as it is accepted. */
	post_receive(resources, &resources->numbers.second);
	struct offer offer = {
		.address = htobe64((uintptr_t)&resources->numbers.first),
		.rkey = htonl(resources->memory->rkey),
	};
	struct rdma_conn_param parameters = {
		.private_data = &offer, .private_data_len = sizeof(offer),
		.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7,
	};
	if (rdma_accept(resources->id, &parameters))
		die("rdma_accept");
	expect_and_ack(resources, RDMA_CM_EVENT_ESTABLISHED);

	wait_for(resources, 1);
	uint32_t first = ntohl(resources->numbers.first), second = ntohl(resources->numbers.second);

	printf("server  %u + %u = %u\n", first, second, first + second);
	resources->numbers.sum = htonl(first + second);
	post_send(resources, &resources->numbers.sum);
	wait_for(resources, 1);
	expect_and_ack(resources, RDMA_CM_EVENT_DISCONNECTED);
	rdma_disconnect(resources->id); /* answers the disconnect request */
	destroy_resources(resources);
	rdma_destroy_id(listener);
}

static void run_client(struct resources *resources, const char *server, uint32_t first, uint32_t second)
{
	struct addrinfo hints = { .ai_family = AF_INET }, *address;

	if (getaddrinfo(server, PORT, &hints, &address)) {
		fprintf(stderr, "%s is not an address\n", server);
		exit(1);
	}
	/* Find the local device and address, then the path. Each result is an event. */
	if (rdma_create_id(resources->channel, &resources->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(resources->id, NULL, address->ai_addr, RESOLVE_MS))
		die("rdma_resolve_addr");
	expect_and_ack(resources, RDMA_CM_EVENT_ADDR_RESOLVED);
	freeaddrinfo(address);
	if (rdma_resolve_route(resources->id, RESOLVE_MS))
		die("rdma_resolve_route");
	expect_and_ack(resources, RDMA_CM_EVENT_ROUTE_RESOLVED);

	create_resources(resources);
	post_receive(resources, &resources->numbers.sum);
	struct rdma_conn_param parameters = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7,
	};
	if (rdma_connect(resources->id, &parameters))
		die("rdma_connect");
	struct rdma_cm_event *established = expect(resources, RDMA_CM_EVENT_ESTABLISHED);
	struct offer offer;

	memcpy(&offer, established->param.conn.private_data, sizeof(offer));
	rdma_ack_cm_event(established);

	printf("client  writes %u, then sends %u\n", first, second);
	resources->numbers.first = htonl(first);
	resources->numbers.second = htonl(second);
	post_write(resources, &resources->numbers.first, &offer);
	post_send(resources, &resources->numbers.second);
	/* WRITE and SEND complete in this order; the reply may come before, between or after them. */
	wait_for(resources, 3);
	printf("client  the server says %u\n", ntohl(resources->numbers.sum));
	rdma_disconnect(resources->id);
	expect_and_ack(resources, RDMA_CM_EVENT_DISCONNECTED);
	destroy_resources(resources);
	if (ntohl(resources->numbers.sum) != first + second)
		exit(1);
}

int main(int argc, char **argv)
{
	static struct resources resources; /* static: registered memory must not move */

	if (argc == 2 && !strcmp(argv[1], "server")) {
		resources.channel = rdma_create_event_channel();
		if (!resources.channel)
			die("rdma_create_event_channel");
		run_server(&resources);
		return 0;
	}
	if ((argc == 2 || argc == 3 || argc == 5) && !strcmp(argv[1], "client")) {
		resources.channel = rdma_create_event_channel();
		if (!resources.channel)
			die("rdma_create_event_channel");
		run_client(&resources, argc > 2 ? argv[2] : "127.0.0.1", argc > 3 ? atoi(argv[3]) : 123,
		    argc > 3 ? atoi(argv[4]) : 567);
		return 0;
	}
	fprintf(stderr, "usage: %s server\n       %s client [SERVER [NUMBER NUMBER]]\n", argv[0], argv[0]);
	return argc > 1 && !strcmp(argv[1], "--help") ? 0 : 2;
}
