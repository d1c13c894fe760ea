/*
 * On-device memory: a peer accesses it like host memory. Shows five operations on it, and a lock that many
 * clients share.
 *
 *	roci run -- ./device_memory server
 *	roci run -- ./device_memory client
 *	roci run -- ./device_memory -c 4 server		# and four times:
 *	roci run -- ./device_memory -i 100 client	# add 1 to a counter 100 times, under a lock
 *
 * Interoperates with the Rust program of the same name: either can be server or client.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define TCP_PORT "18701"
#define DEVICE_PORT 1 /* RoCE devices have one port, and port numbers begin at 1 */

/* The layout of the device memory, the same on both sides. */
enum {
	GREETING = 0,	/* a text that the server writes at the start */
	INBOX = 64,	/* the buffer of the receive for a client's SEND */
	BOARD = 128,	/* the destination of a client's WRITE */
	FLAG = 192,	/* eight bytes for compare-and-swap */
	TICKETS = 200,	/* eight bytes for fetch-and-add */
	LOCK = 256,	/* 0 if it is free, else the number of its holder */
	COUNTER = 264,	/* the counter that the lock protects */
	TEXT = 64,	/* the maximum length of a text */
};

/* The connection parameters of one side. They are sent as one line of text. */
struct peer_info {
	char gid[INET6_ADDRSTRLEN];
	uint32_t qpn, psn, rkey;
	uint64_t address;
	size_t length;
};

struct options {
	const char *device, *server;
	int gid_index; /* -1: the first with an IPv4 address */
	size_t size;
	int clients, increments;
};

/* The objects that both sides need. */
struct resources {
	struct ibv_context *context;
	struct ibv_pd *domain;
	struct ibv_cq *completions;
	int gid_index;
	union ibv_gid gid;
};

/* One connection. */
struct link {
	struct ibv_qp *pair;
	uint32_t psn;
	FILE *in, *out; /* the TCP socket, as one stream for each direction */
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

/* The index of the first GID with an IPv4 address; -1 if there is none. */
static int ipv4_index(struct ibv_context *context)
{
	struct ibv_port_attr port;
	union ibv_gid gid;

	errno = ibv_query_port(context, DEVICE_PORT, &port);
	if (errno)
		die("ibv_query_port");
	for (int index = 0; index < port.gid_tbl_len; index++)
		if (!ibv_query_gid(context, DEVICE_PORT, index, &gid) && is_ipv4(&gid))
			return index;
	return -1;
}

/* Opens the first device with this name, or any name, that has an IPv4 address if that is wanted. */
static struct ibv_context *open_first(const char *name, int with_ipv4)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	if (!list)
		die("ibv_get_device_list");
	for (struct ibv_device **device = list; *device && !context; device++) {
		if (!name || !strcmp(name, ibv_get_device_name(*device)))
			context = ibv_open_device(*device);
		if (context && with_ipv4 && ipv4_index(context) < 0) {
			ibv_close_device(context);
			context = NULL;
		}
	}
	ibv_free_device_list(list);
	return context;
}

/* Prefers a device with an IPv4 address, which most networks use. */
static struct ibv_context *open_device(const char *name)
{
	struct ibv_context *context = open_first(name, 1);

	if (!context)
		context = open_first(name, 0);
	if (!context) {
		fprintf(stderr, "there is no device %s\n", name ? name : "");
		exit(1);
	}
	return context;
}

static struct resources open_resources(const struct options *options)
{
	struct resources resources = { .context = open_device(options->device) };
	char text[INET6_ADDRSTRLEN];

	resources.gid_index = options->gid_index >= 0 ? options->gid_index : ipv4_index(resources.context);
	if (resources.gid_index < 0)
		resources.gid_index = 0;
	if (ibv_query_gid(resources.context, DEVICE_PORT, resources.gid_index, &resources.gid))
		die("ibv_query_gid");
	resources.domain = ibv_alloc_pd(resources.context);
	resources.completions = ibv_create_cq(resources.context, 64, NULL, NULL, 0);
	if (!resources.domain || !resources.completions)
		die("a protection domain or a completion queue");
	printf("device   %s, GID index %d = %s\n", ibv_get_device_name(resources.context->device),
	       resources.gid_index, inet_ntop(AF_INET6, &resources.gid, text, sizeof(text)));
	return resources;
}

/* Creates a queue pair in INIT: it accepts receives, but has no peer yet. */
static struct ibv_qp *create_pair(struct resources *resources)
{
	struct ibv_qp_init_attr wanted = {
		.send_cq = resources->completions, .recv_cq = resources->completions,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
	};
	struct ibv_qp *pair = ibv_create_qp(resources->domain, &wanted);
	struct ibv_qp_attr start = {
		.qp_state = IBV_QPS_INIT, .port_num = DEVICE_PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};

	if (!pair)
		die("ibv_create_qp");
	errno = ibv_modify_qp(pair, &start, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
						    IBV_QP_ACCESS_FLAGS);
	if (errno)
		die("to INIT");
	return pair;
}

/* INIT -> RTR (ready to receive) -> RTS (ready to send). The mask of each step names its attributes. */
static void connect_pair(struct resources *resources, struct link *link, const struct peer_info *peer)
{
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn, .rq_psn = peer->psn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1, .port_num = DEVICE_PORT,
			.grh = { .sgid_index = resources->gid_index, .hop_limit = 64 },
		},
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS, .sq_psn = link->psn, .max_rd_atomic = 1,
		.timeout = 16, .retry_cnt = 7, .rnr_retry = 7,
	};

	if (inet_pton(AF_INET6, peer->gid, &receive.ah_attr.grh.dgid) != 1)
		die("the peer's GID");
	errno = ibv_modify_qp(link->pair, &receive,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (errno)
		die("to RTR");
	errno = ibv_modify_qp(link->pair, &send,
			      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	if (errno)
		die("to RTS");
}

static void open_streams(struct link *link, int connection)
{
	link->in = fdopen(connection, "r");
	link->out = fdopen(dup(connection), "w");
	if (!link->in || !link->out)
		die("the connection");
}

static void send_info(struct resources *resources, struct link *link, const struct ibv_mr *memory)
{
	char gid[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, &resources->gid, gid, sizeof(gid));
	fprintf(link->out, "gid=%s qpn=0x%x psn=0x%x rkey=0x%x address=0x0 length=%zu\n", gid,
		link->pair->qp_num, link->psn, memory ? memory->rkey : 0, memory ? memory->length : 0);
	fflush(link->out);
}

static struct peer_info receive_info(struct link *link)
{
	struct peer_info info;
	char line[256];

	if (!fgets(line, sizeof(line), link->in) ||
	    sscanf(line, "gid=%45s qpn=%x psn=%x rkey=%x address=%" SCNx64 " length=%zu", info.gid,
		   &info.qpn, &info.psn, &info.rkey, &info.address, &info.length) != 6) {
		fprintf(stderr, "the peer did not send its connection parameters\n");
		exit(1);
	}
	return info;
}

static void wait_for_success(struct resources *resources, const char *what)
{
	struct ibv_wc done;
	int found;

	do
		found = ibv_poll_cq(resources->completions, 1, &done);
	while (found == 0);
	if (found < 0 || done.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(done.status));
		exit(1);
	}
}

/* --- The server --- */

static uint64_t number_at(struct ibv_dm *memory, int offset)
{
	uint64_t number;

	errno = ibv_memcpy_from_dm(&number, memory, offset, sizeof(number));
	if (errno)
		die("ibv_memcpy_from_dm");
	return number;
}

static void show_text(struct ibv_dm *memory, const char *name, int offset)
{
	char text[TEXT + 1] = "";

	errno = ibv_memcpy_from_dm(text, memory, offset, TEXT);
	if (errno)
		die("ibv_memcpy_from_dm");
	printf("  %3d  %-9s \"%s\"\n", offset, name, text);
}

static void show(struct ibv_dm *memory)
{
	show_text(memory, "greeting", GREETING);
	show_text(memory, "inbox", INBOX);
	show_text(memory, "board", BOARD);
	printf("  %3d  %-9s %" PRIu64 "\n", FLAG, "flag", number_at(memory, FLAG));
	printf("  %3d  %-9s %" PRIu64 "\n", TICKETS, "tickets", number_at(memory, TICKETS));
	printf("  %3d  %-9s %" PRIu64 "\n", LOCK, "lock", number_at(memory, LOCK));
	printf("  %3d  %-9s %" PRIu64 "\n", COUNTER, "counter", number_at(memory, COUNTER));
}

static int listen_on(const char *port)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (listener < 0 || bind(listener, (struct sockaddr *)&any, sizeof(any)) || listen(listener, 16))
		die("listening");
	return listener;
}

static struct link accept_client(struct resources *resources, int listener, struct ibv_mr *memory)
{
	struct link link = { .pair = create_pair(resources), .psn = random() & 0xffffff };
	/* The buffer of a receive can be in device memory, too. Its addresses are offsets that begin at 0. */
	struct ibv_sge buffer = { .addr = INBOX, .length = TEXT, .lkey = memory->lkey };
	struct ibv_recv_wr request = { .wr_id = 1, .sg_list = &buffer, .num_sge = 1 }, *bad;
	int connection = accept(listener, NULL, NULL);

	if (connection < 0 || ibv_post_recv(link.pair, &request, &bad))
		die("a client or its receive");
	open_streams(&link, connection);
	struct peer_info client = receive_info(&link);

	/* Connect before replying: the client may send as soon as it has the reply. */
	connect_pair(resources, &link, &client);
	send_info(resources, &link, memory);
	return link;
}

static void run_server(struct resources *resources, const struct options *options)
{
	static const char greeting[TEXT] = "hello from the device's own memory";
	struct ibv_alloc_dm_attr wanted = { .length = options->size };
	struct ibv_dm *memory = ibv_alloc_dm(resources->context, &wanted);
	struct link *links = calloc(options->clients, sizeof(*links));
	char line[64];

	if (!memory || !links)
		die("ibv_alloc_dm");
	/* Devices copy whole words: the length must be a multiple of 4. */
	errno = ibv_memcpy_to_dm(memory, GREETING, greeting, sizeof(greeting));
	if (errno)
		die("ibv_memcpy_to_dm");
	struct ibv_mr *region = ibv_reg_dm_mr(resources->domain, memory, 0, options->size,
					      IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |
						      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
						      IBV_ACCESS_REMOTE_ATOMIC);
	if (!region)
		die("ibv_reg_dm_mr");
	printf("memory   %zu bytes on the device, registered\n", options->size);
	show(memory);
	int listener = listen_on(TCP_PORT);

	printf("server   waits for %d client(s) on TCP port %s\n", options->clients, TCP_PORT);
	fflush(stdout);
	for (int client = 0; client < options->clients; client++)
		links[client] = accept_client(resources, listener, region);
	/* Until then only the device works; this program takes no part. */
	for (int client = 0; client < options->clients; client++)
		if (!fgets(line, sizeof(line), links[client].in))
			die("a client closed the connection");
	printf("\nAfterwards:\n");
	show(memory);
	for (int client = 0; client < options->clients; client++)
		ibv_destroy_qp(links[client].pair);
	ibv_dereg_mr(region);
	ibv_free_dm(memory);
}

/* --- The client --- */

struct client {
	struct resources *resources;
	struct link link;
	struct peer_info server;
	struct ibv_mr *memory;
	union { /* for data to send, and for responses */
		char text[TEXT];
		uint64_t number;
	} own;
};

/* Posts one request and waits for its completion. */
static void carry_out(struct client *client, const char *what, struct ibv_send_wr request, uint32_t length)
{
	struct ibv_sge own = {
		.addr = (uintptr_t)&client->own, .length = length, .lkey = client->memory->lkey,
	};
	struct ibv_send_wr *bad;

	request.sg_list = &own;
	request.num_sge = 1;
	errno = ibv_post_send(client->link.pair, &request, &bad);
	if (errno)
		die(what);
	wait_for_success(client->resources, what);
}

static void transfer(struct client *client, enum ibv_wr_opcode opcode, int offset, uint32_t length)
{
	struct ibv_send_wr request = {
		.opcode = opcode,
		.wr.rdma = { .remote_addr = client->server.address + offset, .rkey = client->server.rkey },
	};

	carry_out(client, "SEND, READ or WRITE", request, length);
}

/* Replaces a number if it equals `expected`. Returns the previous value. */
static uint64_t compare_swap(struct client *client, int offset, uint64_t expected, uint64_t new)
{
	struct ibv_send_wr request = {
		.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.wr.atomic = { .remote_addr = client->server.address + offset,
			       .rkey = client->server.rkey, .compare_add = expected, .swap = new },
	};

	carry_out(client, "COMPARE-AND-SWAP", request, sizeof(uint64_t));
	return client->own.number;
}

/* Adds to a number. Returns the previous value. */
static uint64_t fetch_add(struct client *client, int offset, uint64_t add)
{
	struct ibv_send_wr request = {
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic = { .remote_addr = client->server.address + offset,
			       .rkey = client->server.rkey, .compare_add = add },
	};

	carry_out(client, "FETCH-AND-ADD", request, sizeof(uint64_t));
	return client->own.number;
}

static void try_everything(struct client *client)
{
	strcpy(client->own.text, "a SEND has no destination.");
	transfer(client, IBV_WR_SEND, 0, strlen(client->own.text));
	printf("SEND     26 bytes, into the receive that the server posted\n");

	transfer(client, IBV_WR_RDMA_READ, GREETING, TEXT);
	printf("READ     \"%s\"\n", client->own.text);

	strcpy(client->own.text, "a WRITE has a destination.");
	transfer(client, IBV_WR_RDMA_WRITE, BOARD, strlen(client->own.text));
	printf("WRITE    26 bytes to offset %d\n", BOARD);

	uint64_t found = compare_swap(client, FLAG, 0, 7), again = compare_swap(client, FLAG, 0, 8);

	printf("SWAP     the flag was %" PRIu64 " and is now 7; a second swap that expects 0 finds %" PRIu64 "\n",
	       found, again);
	uint64_t first = fetch_add(client, TICKETS, 1), second = fetch_add(client, TICKETS, 1);

	printf("ADD      got tickets %" PRIu64 " and %" PRIu64 "\n", first, second);
}

/* Increments the counter by READ and WRITE. Without the lock, most increments would be lost. */
static void increment(struct client *client, int times)
{
	uint64_t name = client->link.pair->qp_num, retries = 0;

	for (int time = 0; time < times; time++) {
		while (compare_swap(client, LOCK, 0, name) != 0)
			retries++;
		transfer(client, IBV_WR_RDMA_READ, COUNTER, sizeof(uint64_t));
		client->own.number++;
		transfer(client, IBV_WR_RDMA_WRITE, COUNTER, sizeof(uint64_t));
		compare_swap(client, LOCK, name, 0);
	}
	printf("client   added 1 to the counter %d times; retried the lock %" PRIu64 " times\n", times,
	       retries);
}

static int connect_to(const char *server)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *address;

	if (getaddrinfo(server, TCP_PORT, &hints, &address)) {
		fprintf(stderr, "%s is not an address\n", server);
		exit(1);
	}
	int socket_to = socket(address->ai_family, SOCK_STREAM, 0);

	if (socket_to < 0 || connect(socket_to, address->ai_addr, address->ai_addrlen))
		die("can't connect to the server: start it first");
	freeaddrinfo(address);
	return socket_to;
}

static void run_client(struct resources *resources, const struct options *options)
{
	static struct client client;

	client.resources = resources;
	client.memory = ibv_reg_mr(resources->domain, &client.own, sizeof(client.own), IBV_ACCESS_LOCAL_WRITE);
	if (!client.memory)
		die("ibv_reg_mr");
	client.link = (struct link){ .pair = create_pair(resources), .psn = random() & 0xffffff };
	open_streams(&client.link, connect_to(options->server));
	send_info(resources, &client.link, NULL);
	client.server = receive_info(&client.link);
	connect_pair(resources, &client.link, &client.server);
	if (options->increments)
		increment(&client, options->increments);
	else
		try_everything(&client);
	fprintf(client.link.out, "done\n");
	fclose(client.link.out);
	ibv_destroy_qp(client.link.pair);
	ibv_dereg_mr(client.memory);
}

static void usage(FILE *where)
{
	fprintf(where, "usage: device_memory [OPTIONS] server\n"
		       "       device_memory [OPTIONS] client [SERVER]\n"
		       "  -d DEVICE  the device [default: the first with an IPv4 address]\n"
		       "  -g INDEX   the GID index [default: the first with an IPv4 address]\n"
		       "  -s SIZE    the size of the device memory [default: 131072]\n"
		       "  -c NUMBER  server: the number of clients [default: 1]\n"
		       "  -i TIMES   client: only increment the counter under the lock, this many times\n");
}

int main(int argc, char **argv)
{
	struct options options = { .gid_index = -1, .size = 128 * 1024, .clients = 1, .server = "127.0.0.1" };
	int option;

	while ((option = getopt(argc, argv, "d:g:s:c:i:h")) != -1) {
		switch (option) {
		case 'd': options.device = optarg; break;
		case 'g': options.gid_index = atoi(optarg); break;
		case 's': options.size = strtoul(optarg, NULL, 0); break;
		case 'c': options.clients = atoi(optarg); break;
		case 'i': options.increments = atoi(optarg); break;
		default: usage(option == 'h' ? stdout : stderr); return option == 'h' ? 0 : 2;
		}
	}
	const char *role = optind < argc ? argv[optind] : "";

	if (optind + 1 < argc)
		options.server = argv[optind + 1];
	if (strcmp(role, "server") && strcmp(role, "client")) {
		usage(stderr);
		return 2;
	}
	srandom(getpid());
	struct resources resources = open_resources(&options);

	if (!strcmp(role, "server"))
		run_server(&resources, &options);
	else
		run_client(&resources, &options);
	ibv_destroy_cq(resources.completions);
	ibv_dealloc_pd(resources.domain);
	ibv_close_device(resources.context);
	return 0;
}
