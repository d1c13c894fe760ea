/*
 * A chat over one-sided RDMA: each side writes its lines directly into the memory of the peer, and watches
 * its own memory for changes. `q` quits.
 *
 *	roci run -- ./chat server
 *	roci run -- ./chat client 127.0.0.1
 *
 * No receive is posted, and the side that is written to gets no completion. Its CPU takes no part in the
 * transfer. So the writer uses RDMA READ to find out whether its line was read.
 *
 * Interoperates with the Rust program of the same name: either can be server or client.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

#define PORT "7471"
#define RESOLVE_MS 5000
#define BOARD_SIZE 1024

/*
 * The board that each side has, with numbers in network byte order. The peer writes `written`, `length`
 * and the text. The owner writes `seen`, and the peer reads it. No call tells the compiler that `written` has
 * changed, so it is read atomically, and what the peer wrote before it is read after it.
 */
struct board {
	uint64_t written, seen, length;
	char text[BOARD_SIZE - 24];
};

/* The address and the rkey of a board: the private data of both sides. */
struct board_location {
	uint64_t address;
	uint32_t rkey;
} __attribute__((packed));

struct chat {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *completions;
	struct ibv_mr *memory;
	struct board_location remote;
	uint64_t lines_written, lines_seen;
	/* The local board; the buffer for WRITEs; the buffer for READs of the remote board. */
	struct board board, draft, echo;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct rdma_cm_event *expect(struct chat *chat, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(chat->channel, &event))
		die("rdma_get_cm_event");
	if (event->event != wanted) {
		fprintf(stderr, "%s (status %d) instead of %s: is the server running?\n",
			rdma_event_str(event->event), event->status, rdma_event_str(wanted));
		exit(1);
	}
	return event;
}

static void create_resources(struct chat *chat)
{
	struct ibv_qp_init_attr wanted = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_pd *domain = ibv_alloc_pd(chat->id->verbs);

	chat->completions = ibv_create_cq(chat->id->verbs, 16, NULL, NULL, 0);
	if (!domain || !chat->completions)
		die("a protection domain or a completion queue");
	/* One region for all three boards. The peer writes its lines to the local board, and reads `seen`. */
	chat->memory = ibv_reg_mr(domain, &chat->board, 3 * sizeof(struct board),
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					  IBV_ACCESS_REMOTE_READ);
	wanted.send_cq = wanted.recv_cq = chat->completions;
	if (!chat->memory || rdma_create_qp(chat->id, domain, &wanted))
		die("a memory region or a queue pair");
}

static struct board_location local_board(struct chat *chat)
{
	struct board_location board_location = {
		.address = htobe64((uintptr_t)&chat->board),
		.rkey = htonl(chat->memory->rkey),
	};
	return board_location;
}

static struct rdma_conn_param parameters(const struct board_location *local)
{
	struct rdma_conn_param parameters = {
		.private_data = local, .private_data_len = sizeof(*local),
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7,
	};
	return parameters;
}

static void run_server(struct chat *chat)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(atoi(PORT)) };
	struct rdma_cm_id *listener;

	if (rdma_create_id(chat->channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&any) || rdma_listen(listener, 1))
		die("listening");
	printf("waiting on port %s\n", PORT);
	fflush(stdout);
	struct rdma_cm_event *request = expect(chat, RDMA_CM_EVENT_CONNECT_REQUEST);

	chat->id = request->id;
	memcpy(&chat->remote, request->param.conn.private_data, sizeof(chat->remote));
	rdma_ack_cm_event(request);
	create_resources(chat);
	struct board_location local = local_board(chat);
	struct rdma_conn_param accepted = parameters(&local);

	if (rdma_accept(chat->id, &accepted))
		die("rdma_accept");
	rdma_ack_cm_event(expect(chat, RDMA_CM_EVENT_ESTABLISHED));
}

static void run_client(struct chat *chat, const char *server)
{
	struct addrinfo hints = { .ai_family = AF_INET }, *address;

	if (getaddrinfo(server, PORT, &hints, &address)) {
		fprintf(stderr, "%s is not an address\n", server);
		exit(1);
	}
	if (rdma_create_id(chat->channel, &chat->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(chat->id, NULL, address->ai_addr, RESOLVE_MS))
		die("rdma_resolve_addr");
	rdma_ack_cm_event(expect(chat, RDMA_CM_EVENT_ADDR_RESOLVED));
	freeaddrinfo(address);
	if (rdma_resolve_route(chat->id, RESOLVE_MS))
		die("rdma_resolve_route");
	rdma_ack_cm_event(expect(chat, RDMA_CM_EVENT_ROUTE_RESOLVED));
	create_resources(chat);
	struct board_location local = local_board(chat);
	struct rdma_conn_param requested = parameters(&local);

	if (rdma_connect(chat->id, &requested))
		die("rdma_connect");
	struct rdma_cm_event *established = expect(chat, RDMA_CM_EVENT_ESTABLISHED);

	memcpy(&chat->remote, established->param.conn.private_data, sizeof(chat->remote));
	rdma_ack_cm_event(established);
}

/* Posts one request and waits for its completion. Returns 0 if the connection has ended. */
static int carry_out(struct chat *chat, enum ibv_wr_opcode opcode, void *local, size_t offset, size_t length)
{
	struct ibv_sge segment = { .addr = (uintptr_t)local, .length = length, .lkey = chat->memory->lkey };
	struct ibv_send_wr request = {
		.sg_list = &segment, .num_sge = 1, .opcode = opcode,
		.wr.rdma = { .remote_addr = be64toh(chat->remote.address) + offset,
			     .rkey = ntohl(chat->remote.rkey) },
	}, *bad;
	struct ibv_wc done;
	int found;

	if (ibv_post_send(chat->id->qp, &request, &bad))
		return 0;
	while ((found = ibv_poll_cq(chat->completions, 1, &done)) == 0)
		;
	return found == 1 && done.status == IBV_WC_SUCCESS;
}

static int text_length(const struct board *board)
{
	/* The peer wrote the length: do not trust it. */
	uint64_t length = be64toh(board->length);

	return length < sizeof(board->text) ? (int)length : (int)sizeof(board->text);
}

/* Prints a new line on the local board, and marks it as seen. */
static void show_new_line(struct chat *chat)
{
	uint64_t written = be64toh(__atomic_load_n(&chat->board.written, __ATOMIC_ACQUIRE));

	if (written == chat->lines_seen)
		return;
	printf("> %.*s\n", text_length(&chat->board), chat->board.text);
	fflush(stdout);
	chat->lines_seen = written;
	/* The peer may write the next line from now on: the text is read before. */
	__atomic_store_n(&chat->board.seen, htobe64(written), __ATOMIC_RELEASE);
}

/* Writes a line to the remote board, and reads the board until the peer has seen the line. */
static void send_line(struct chat *chat, const char *line)
{
	size_t length = strnlen(line, sizeof(chat->draft.text));
	size_t before = offsetof(struct board, length), after = offsetof(struct board, text) + length;
	int there;

	chat->draft.written = htobe64(++chat->lines_written);
	chat->draft.length = htobe64(length);
	memcpy(chat->draft.text, line, length);
	/* Write the number last: when the peer sees it change, the text is already there. */
	there = carry_out(chat, IBV_WR_RDMA_WRITE, (char *)&chat->draft + before, before, after - before) &&
		carry_out(chat, IBV_WR_RDMA_WRITE, &chat->draft, 0, sizeof(uint64_t));
	while (there && be64toh(chat->echo.seen) != chat->lines_written) {
		there = carry_out(chat, IBV_WR_RDMA_READ, &chat->echo, 0, sizeof(chat->echo));
		show_new_line(chat); /* the peer may be waiting in the same way */
	}
	if (there)
		printf("  [seen] %.*s\n", text_length(&chat->echo), chat->echo.text);
	else
		printf("the peer has disconnected; it did not see this line: %s\n", line);
	fflush(stdout);
}

/* Reads a line from the keyboard, if there is one. Clears `open` at the end of the input. */
static int read_keyboard(char *line, size_t size, int *open)
{
	struct pollfd typed = { .fd = *open ? 0 : -1, .events = POLLIN };

	if (poll(&typed, 1, 1) <= 0)
		return 0;
	/* Byte by byte, because poll does not see data in a stdio buffer. */
	for (size_t length = 0; length + 1 < size; length++) {
		if (read(0, line + length, 1) != 1) {
			*open = 0;
			return 0;
		}
		if (line[length] == '\n') {
			line[length] = 0;
			return 1;
		}
	}
	line[size - 1] = 0;
	return 1;
}

/* Whether the peer has disconnected. */
static int has_disconnected(struct chat *chat)
{
	struct pollfd event = { .fd = chat->channel->fd, .events = POLLIN };

	if (poll(&event, 1, 0) <= 0)
		return 0;
	rdma_ack_cm_event(expect(chat, RDMA_CM_EVENT_DISCONNECTED));
	return 1;
}

static void run_chat(struct chat *chat)
{
	char line[BOARD_SIZE];
	int open = 1;

	printf("connected: type a line, or `q` to quit\n");
	fflush(stdout);
	while (1) {
		show_new_line(chat);
		if (has_disconnected(chat)) {
			printf("the peer has disconnected\n");
			rdma_disconnect(chat->id); /* answers the disconnect request */
			return;
		}
		if (!read_keyboard(line, sizeof(line), &open))
			continue;
		if (!strcmp(line, "q"))
			break;
		send_line(chat, line);
	}
	rdma_disconnect(chat->id);
	rdma_ack_cm_event(expect(chat, RDMA_CM_EVENT_DISCONNECTED));
}

int main(int argc, char **argv)
{
	static struct chat chat;

	if (argc < 2 || argc > 3 || (strcmp(argv[1], "server") && strcmp(argv[1], "client"))) {
		fprintf(stderr, "usage: %s server\n       %s client [SERVER]\n", argv[0], argv[0]);
		return argc > 1 && !strcmp(argv[1], "--help") ? 0 : 2;
	}
	chat.channel = rdma_create_event_channel();
	if (!chat.channel)
		die("rdma_create_event_channel");
	if (!strcmp(argv[1], "server"))
		run_server(&chat);
	else
		run_client(&chat, argc == 3 ? argv[2] : "127.0.0.1");
	run_chat(&chat);
	rdma_destroy_qp(chat.id);
	ibv_dereg_mr(chat.memory);
	ibv_destroy_cq(chat.completions);
	rdma_destroy_id(chat.id);
	rdma_destroy_event_channel(chat.channel);
	return 0;
}
