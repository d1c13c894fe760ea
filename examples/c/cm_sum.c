/*
 * An introduction to the connection manager: a client sends two numbers, the server answers their sum.
 *
 *	roci run -- ./cm_sum server
 *	roci run -- ./cm_sum client 127.0.0.1 123 567
 *
 * The server tells the client in its private data where a buffer is and which key opens it. The client
 * puts the first number there by RDMA WRITE, and SENDs the second. A reliable connection keeps the
 * order: when the SEND has arrived, the WRITE has too.
 *
 * The Rust program of the same name speaks the same language: either can be server or client.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>

#define PORT "20079"
#define RESOLVE_MS 5000

/* Numbers for our work requests. */
enum { RECEIVE = 1, WRITE = 2, SEND = 3 };

/* Two numbers and their sum, in network order: the other end may have another byte order. */
struct numbers {
	uint32_t first, second, sum;
};

/* What the server says when it accepts. */
struct offer {
	uint64_t address;
	uint32_t rkey;
} __attribute__((packed));

/* What both sides work with. */
struct desk {
	struct rdma_event_channel *channel; /* events of the connection */
	struct rdma_cm_id *id;
	struct ibv_comp_channel *bell; /* rings when something has completed */
	struct ibv_cq *completions;
	struct ibv_mr *memory;
	struct numbers numbers;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct rdma_cm_event *expect(struct desk *desk, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(desk->channel, &event))
		die("rdma_get_cm_event");
	printf("event   %s\n", rdma_event_str(event->event));
	if (event->event != wanted) {
		fprintf(stderr, "expected %s (status %d): is the server running?\n",
			rdma_event_str(wanted), event->status);
		exit(1);
	}
	return event;
}

/* Every event must be acknowledged, or destroying the id would wait for ever. */
static void pass(struct desk *desk, enum rdma_cm_event_type wanted)
{
	rdma_ack_cm_event(expect(desk, wanted));
}

/* Once the id knows its device: completions, memory, and the queue pair. */
static void furnish(struct desk *desk)
{
	struct ibv_qp_init_attr wanted = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_pd *domain = ibv_alloc_pd(desk->id->verbs);

	desk->bell = ibv_create_comp_channel(desk->id->verbs);
	if (!domain || !desk->bell)
		die("a protection domain or a completion channel");
	desk->completions = ibv_create_cq(desk->id->verbs, 16, NULL, desk->bell, 0);
	desk->memory = ibv_reg_mr(domain, &desk->numbers, sizeof(desk->numbers),
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!desk->completions || !desk->memory)
		die("a completion queue or a memory region");
	if (ibv_req_notify_cq(desk->completions, 0))
		die("ibv_req_notify_cq");
	wanted.send_cq = wanted.recv_cq = desk->completions;
	if (rdma_create_qp(desk->id, domain, &wanted))
		die("rdma_create_qp");
}

static struct ibv_sge piece(struct desk *desk, uint32_t *number)
{
	struct ibv_sge piece = {
		.addr = (uintptr_t)number,
		.length = sizeof(*number),
		.lkey = desk->memory->lkey,
	};
	return piece;
}

static void post_receive(struct desk *desk, uint32_t *where)
{
	struct ibv_sge room = piece(desk, where);
	struct ibv_recv_wr request = { .wr_id = RECEIVE, .sg_list = &room, .num_sge = 1 }, *bad;

	if (ibv_post_recv(desk->id->qp, &request, &bad))
		die("ibv_post_recv");
}

static void post_send(struct desk *desk, uint32_t *what)
{
	struct ibv_sge data = piece(desk, what);
	struct ibv_send_wr request = {
		.wr_id = SEND, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_SEND,
	}, *bad;

	if (ibv_post_send(desk->id->qp, &request, &bad))
		die("ibv_post_send");
}

static void post_write(struct desk *desk, uint32_t *what, const struct offer *offer)
{
	struct ibv_sge data = piece(desk, what);
	struct ibv_send_wr request = {
		.wr_id = WRITE, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = be64toh(offer->address), .rkey = ntohl(offer->rkey) },
	}, *bad;

	if (ibv_post_send(desk->id->qp, &request, &bad))
		die("ibv_post_send");
}

/* Sleeps until the bell rings, and arms it again before anybody polls: nothing slips through between. */
static void wait_for_bell(struct desk *desk)
{
	struct ibv_cq *queue;
	void *context;

	if (ibv_get_cq_event(desk->bell, &queue, &context))
		die("ibv_get_cq_event");
	ibv_ack_cq_events(queue, 1);
	if (ibv_req_notify_cq(queue, 0))
		die("ibv_req_notify_cq");
}

/* Waits until so many requests have completed, in whatever order. */
static void wait_for(struct desk *desk, int number)
{
	struct ibv_wc done;

	while (number > 0) {
		int found = ibv_poll_cq(desk->completions, 1, &done);

		if (found == 0) {
			wait_for_bell(desk);
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

static void leave(struct desk *desk)
{
	rdma_destroy_qp(desk->id);
	ibv_dereg_mr(desk->memory);
	ibv_destroy_cq(desk->completions);
	ibv_destroy_comp_channel(desk->bell);
	rdma_destroy_id(desk->id);
	rdma_destroy_event_channel(desk->channel);
}

static void serve(struct desk *desk)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(atoi(PORT)) };
	struct rdma_cm_id *listener;

	if (rdma_create_id(desk->channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&any) || rdma_listen(listener, 1))
		die("listening");
	printf("server  listens at port %s\n", PORT);
	fflush(stdout);

	struct rdma_cm_event *request = expect(desk, RDMA_CM_EVENT_CONNECT_REQUEST);

	desk->id = request->id;
	rdma_ack_cm_event(request);
	furnish(desk);
	/* The receive must be there before the client can send, so it comes before accepting. */
	post_receive(desk, &desk->numbers.second);
	struct offer offer = {
		.address = htobe64((uintptr_t)&desk->numbers.first),
		.rkey = htonl(desk->memory->rkey),
	};
	struct rdma_conn_param parameters = {
		.private_data = &offer, .private_data_len = sizeof(offer),
		.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7,
	};
	if (rdma_accept(desk->id, &parameters))
		die("rdma_accept");
	pass(desk, RDMA_CM_EVENT_ESTABLISHED);

	wait_for(desk, 1);
	uint32_t first = ntohl(desk->numbers.first), second = ntohl(desk->numbers.second);

	printf("server  %u + %u = %u\n", first, second, first + second);
	desk->numbers.sum = htonl(first + second);
	post_send(desk, &desk->numbers.sum);
	wait_for(desk, 1);
	pass(desk, RDMA_CM_EVENT_DISCONNECTED);
	rdma_disconnect(desk->id); /* the good-bye wants an answer */
	leave(desk);
	rdma_destroy_id(listener);
}

static void ask(struct desk *desk, const char *server, uint32_t first, uint32_t second)
{
	struct addrinfo hints = { .ai_family = AF_INET }, *address;

	if (getaddrinfo(server, PORT, &hints, &address)) {
		fprintf(stderr, "%s is no address\n", server);
		exit(1);
	}
	/* Which of our addresses leads there, and by which path? Each answer is an event. */
	if (rdma_create_id(desk->channel, &desk->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(desk->id, NULL, address->ai_addr, RESOLVE_MS))
		die("rdma_resolve_addr");
	pass(desk, RDMA_CM_EVENT_ADDR_RESOLVED);
	freeaddrinfo(address);
	if (rdma_resolve_route(desk->id, RESOLVE_MS))
		die("rdma_resolve_route");
	pass(desk, RDMA_CM_EVENT_ROUTE_RESOLVED);

	furnish(desk);
	post_receive(desk, &desk->numbers.sum);
	struct rdma_conn_param parameters = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7,
	};
	if (rdma_connect(desk->id, &parameters))
		die("rdma_connect");
	struct rdma_cm_event *established = expect(desk, RDMA_CM_EVENT_ESTABLISHED);
	struct offer offer;

	memcpy(&offer, established->param.conn.private_data, sizeof(offer));
	rdma_ack_cm_event(established);

	printf("client  writes %u, then sends %u\n", first, second);
	desk->numbers.first = htonl(first);
	desk->numbers.second = htonl(second);
	post_write(desk, &desk->numbers.first, &offer);
	post_send(desk, &desk->numbers.second);
	/* WRITE and SEND complete in this order; the answer may come before, between or after them. */
	wait_for(desk, 3);
	printf("client  the server says %u\n", ntohl(desk->numbers.sum));
	rdma_disconnect(desk->id);
	pass(desk, RDMA_CM_EVENT_DISCONNECTED);
	leave(desk);
	if (ntohl(desk->numbers.sum) != first + second)
		exit(1);
}

int main(int argc, char **argv)
{
	static struct desk desk; /* zeroed, and in one place as long as the program runs */

	if (argc == 2 && !strcmp(argv[1], "server")) {
		desk.channel = rdma_create_event_channel();
		if (!desk.channel)
			die("rdma_create_event_channel");
		serve(&desk);
		return 0;
	}
	if ((argc == 2 || argc == 3 || argc == 5) && !strcmp(argv[1], "client")) {
		desk.channel = rdma_create_event_channel();
		if (!desk.channel)
			die("rdma_create_event_channel");
		ask(&desk, argc > 2 ? argv[2] : "127.0.0.1", argc > 3 ? atoi(argv[3]) : 123,
		    argc > 3 ? atoi(argv[4]) : 567);
		return 0;
	}
	fprintf(stderr, "usage: %s server\n       %s client [SERVER [NUMBER NUMBER]]\n", argv[0], argv[0]);
	return argc > 1 && !strcmp(argv[1], "--help") ? 0 : 2;
}
