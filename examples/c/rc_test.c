/*
 * Sends one message from a client process to a server process, by SEND or by RDMA WRITE. --break makes one of
 * four common mistakes, to show its symptoms.
 *
 *	roci run --explain -- ./rc_test --mode write
 *	roci run --explain -- ./rc_test --mode write --server-ip 127.0.0.1
 *
 * Interoperates with the Rust and Python programs of the same name: each can be server or client.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define MESSAGE ">>> client saying hello .......... "
#define BEFORE "--- nothing has arrived ---"
#define BUFFER_SIZE 64
#define DEVICE_PORT 1	/* RoCE devices have one port, and port numbers begin at 1 */
#define RNR_RETRY 3	/* 7 means "forever": with a missing receive the program would seem to hang */
#define TIMEOUT_SECONDS 30

/* A mistake: the operation that it affects, the expected status of the client's request, and an explanation. */
static const struct mistake {
	const char *name, *mode;
	enum ibv_wc_status expected;
	const char *explanation;
} mistakes[] = {
	{ "access", "write", IBV_WC_REM_ACCESS_ERR,
	  "At fault: the server. It registered its buffer without REMOTE_WRITE. A key does not imply this right." },
	{ "rkey", "write", IBV_WC_REM_ACCESS_ERR,
	  "At fault: the client. The server has no memory with this key." },
	{ "addr", "write", IBV_WC_REM_ACCESS_ERR,
	  "At fault: the client. The text would end outside the buffer. Nothing was written." },
	{ "recv", "send", IBV_WC_RNR_RETRY_EXC_ERR,
	  "At fault: the server. It had posted no receive, and answered each attempt with an RNR NAK." },
	{ "nothing", NULL, IBV_WC_SUCCESS, "" },
};

struct options {
	const char *device, *mode, *server, *port;
	int gid_index; /* -1: the first with an IPv4 address */
	const struct mistake *mistake;
};

/* The connection parameters of one side. They are sent as one line of text, the same in all languages. */
struct peer_info {
	char gid[INET6_ADDRSTRLEN];
	uint32_t qpn, psn, rkey;
	uint64_t address;
	size_t length;
};

/* The objects that both sides need. */
struct resources {
	struct ibv_context *context;
	struct ibv_pd *domain;
	struct ibv_cq *completions;
	struct ibv_mr *memory;
	struct ibv_qp *pair;
	int gid_index;
	union ibv_gid gid;
	uint32_t psn;
	FILE *in, *out; /* the TCP socket, as one stream for each direction */
	char buffer[BUFFER_SIZE];
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int is_mistake(const struct options *options, const char *name)
{
	return !strcmp(options->mistake->name, name);
}

/* --- Device, memory and queue pair --- */

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

/* Creates a queue pair in INIT: it accepts receives, but has no peer yet. */
static struct ibv_qp *create_pair(struct resources *resources)
{
	struct ibv_qp_init_attr wanted = {
		.send_cq = resources->completions, .recv_cq = resources->completions,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
	};
	struct ibv_qp *pair = ibv_create_qp(resources->domain, &wanted);
	/* A peer needs access rights on the queue pair, too, not only on the memory. */
	struct ibv_qp_attr start = {
		.qp_state = IBV_QPS_INIT, .port_num = DEVICE_PORT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	if (!pair)
		die("ibv_create_qp");
	errno = ibv_modify_qp(pair, &start, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
						    IBV_QP_ACCESS_FLAGS);
	if (errno)
		die("to INIT");
	return pair;
}

static void open_resources(struct resources *resources, const struct options *options, int access)
{
	char text[INET6_ADDRSTRLEN];

	resources->context = open_device(options->device);
	resources->gid_index = options->gid_index >= 0 ? options->gid_index : ipv4_index(resources->context);
	if (resources->gid_index < 0)
		resources->gid_index = 0;
	if (ibv_query_gid(resources->context, DEVICE_PORT, resources->gid_index, &resources->gid))
		die("ibv_query_gid");
	printf("device  %s, GID index %d = %s\n", ibv_get_device_name(resources->context->device),
	       resources->gid_index, inet_ntop(AF_INET6, &resources->gid, text, sizeof(text)));
	resources->domain = ibv_alloc_pd(resources->context);
	resources->completions = ibv_create_cq(resources->context, 16, NULL, NULL, 0);
	if (!resources->domain || !resources->completions)
		die("a protection domain or a completion queue");
	resources->memory = ibv_reg_mr(resources->domain, resources->buffer, BUFFER_SIZE, access);
	if (!resources->memory)
		die("ibv_reg_mr");
	resources->pair = create_pair(resources);
	resources->psn = random() & 0xffffff;
}

/* INIT -> RTR (ready to receive) -> RTS (ready to send). The mask of each step names its attributes. */
static void connect_pair(struct resources *resources, const struct peer_info *peer)
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
		.qp_state = IBV_QPS_RTS, .sq_psn = resources->psn, .max_rd_atomic = 1,
		.timeout = 16, .retry_cnt = 7, .rnr_retry = RNR_RETRY,
	};

	if (inet_pton(AF_INET6, peer->gid, &receive.ah_attr.grh.dgid) != 1) {
		fprintf(stderr, "`%s` is not a GID\n", peer->gid);
		exit(1);
	}
	errno = ibv_modify_qp(resources->pair, &receive,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (errno)
		die("to RTR");
	errno = ibv_modify_qp(resources->pair, &send,
			      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	if (errno)
		die("to RTS");
}

/* Waits for the next completion, successful or not. */
static struct ibv_wc next_completion(struct resources *resources)
{
	time_t deadline = time(NULL) + TIMEOUT_SECONDS;
	struct ibv_wc done;
	int found;

	do {
		found = ibv_poll_cq(resources->completions, 1, &done);
	} while (found == 0 && time(NULL) < deadline);
	if (found <= 0) {
		fprintf(stderr, "nothing completed in %d seconds: is the peer still running?\n", TIMEOUT_SECONDS);
		exit(1);
	}
	return done;
}

/* --- The exchange over TCP --- */

static void open_streams(struct resources *resources, int connection)
{
	resources->in = fdopen(connection, "r");
	resources->out = fdopen(dup(connection), "w");
	if (!resources->in || !resources->out)
		die("the connection");
}

static void receive_line(struct resources *resources, char *line, size_t size)
{
	if (!fgets(line, size, resources->in)) {
		fprintf(stderr, "the peer closed the connection: see its own output for the reason\n");
		exit(1);
	}
	line[strcspn(line, "\n")] = 0;
}

/* The options that must be the same on both sides. */
static void write_plan(char *plan, size_t size, const struct options *options)
{
	snprintf(plan, size, "mode=%s break=%s", options->mode, options->mistake->name);
}

static void send_info(struct resources *resources)
{
	char gid[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, &resources->gid, gid, sizeof(gid));
	fprintf(resources->out, "gid=%s qpn=0x%x psn=0x%x rkey=0x%x address=0x%" PRIxPTR " length=%d\n", gid,
		resources->pair->qp_num, resources->psn, resources->memory->rkey, (uintptr_t)resources->buffer,
		BUFFER_SIZE);
	fflush(resources->out);
}

static struct peer_info receive_info(struct resources *resources, const char *who)
{
	struct peer_info info;
	char line[256];

	receive_line(resources, line, sizeof(line));
	printf("%s  %s\n", who, line);
	if (sscanf(line, "gid=%45s qpn=%x psn=%x rkey=%x address=%" SCNx64 " length=%zu", info.gid, &info.qpn,
		   &info.psn, &info.rkey, &info.address, &info.length) != 6) {
		fprintf(stderr, "the peer did not send its connection parameters\n");
		exit(1);
	}
	return info;
}

/* --- The server --- */

static int accept_client(const char *port)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (listener < 0 || bind(listener, (struct sockaddr *)&any, sizeof(any)) || listen(listener, 1))
		die("listening");
	printf("server  waits for a client on TCP port %s\n", port);
	fflush(stdout);
	int connection = accept(listener, NULL, NULL);

	if (connection < 0)
		die("accept");
	close(listener);
	return connection;
}

static void post_receive(struct resources *resources)
{
	struct ibv_sge buffer = {
		.addr = (uintptr_t)resources->buffer, .length = BUFFER_SIZE, .lkey = resources->memory->lkey,
	};
	struct ibv_recv_wr request = { .wr_id = 1, .sg_list = &buffer, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(resources->pair, &request, &bad);
	if (errno)
		die("ibv_post_recv");
}

static void run_server(struct resources *resources, const struct options *options)
{
	/* The mistake of --break access: the peer gets a key for memory without the right to write it. */
	int access = IBV_ACCESS_LOCAL_WRITE | (is_mistake(options, "access") ? 0 : IBV_ACCESS_REMOTE_WRITE);
	/* The mistake of --break recv: a SEND needs a receive at the server, and there is none. */
	int wants_receive = !strcmp(options->mode, "send") && !is_mistake(options, "recv");
	char plan[64], line[256];

	open_resources(resources, options, access);
	strcpy(resources->buffer, BEFORE);
	printf("buffer  \"%s\"\n", resources->buffer);
	open_streams(resources, accept_client(options->port));
	write_plan(plan, sizeof(plan), options);
	receive_line(resources, line, sizeof(line));
	if (strcmp(plan, line)) {
		fprintf(stderr, "the client has `%s` and the server `%s`: give both the same options\n", line, plan);
		exit(1);
	}
	struct peer_info client = receive_info(resources, "client");

	if (wants_receive)
		post_receive(resources);
	/* Connect before replying: the client may send as soon as it has the reply. */
	connect_pair(resources, &client);
	send_info(resources);
	if (wants_receive) {
		struct ibv_wc done = next_completion(resources);

		printf("receive work request %d: %s, %u bytes\n", (int)done.wr_id, ibv_wc_status_str(done.status),
		       done.byte_len);
	}
	/* Neither a WRITE nor a rejected request completes here, so the client reports that it is done. */
	receive_line(resources, line, sizeof(line));
	printf("buffer  \"%s\"\n", resources->buffer);
}

/* --- The client --- */

static int connect_to(const char *server, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *address;

	if (getaddrinfo(server, port, &hints, &address)) {
		fprintf(stderr, "%s is not an address\n", server);
		exit(1);
	}
	int connection = socket(address->ai_family, SOCK_STREAM, 0);

	if (connection < 0 || connect(connection, address->ai_addr, address->ai_addrlen))
		die("can't connect to the server: start it first");
	freeaddrinfo(address);
	return connection;
}

static void post_request(struct resources *resources, const struct options *options,
			 const struct peer_info *server)
{
	struct ibv_sge data = {
		.addr = (uintptr_t)resources->buffer, .length = strlen(MESSAGE), .lkey = resources->memory->lkey,
	};
	struct ibv_send_wr request = { .wr_id = 1, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	if (!strcmp(options->mode, "write")) {
		request.opcode = IBV_WR_RDMA_WRITE;
		request.wr.rdma.rkey = server->rkey;
		request.wr.rdma.remote_addr = server->address;
	}
	if (is_mistake(options, "rkey"))
		request.wr.rdma.rkey ^= 0x5a5a5a5a; /* a key that the server did not send */
	if (is_mistake(options, "addr"))
		request.wr.rdma.remote_addr += server->length - 8; /* begins inside the buffer, ends outside */
	printf("client  posts \"%s\": %s\n", MESSAGE,
	       request.opcode == IBV_WR_SEND ? "SEND, opcode 4 (RC SEND Only)"
					     : "RDMA WRITE, opcode 10 (RC RDMA WRITE Only)");
	errno = ibv_post_send(resources->pair, &request, &bad);
	if (errno)
		die("ibv_post_send");
}

/* Prints how the request ended. A failure that --break asked for is a success of this program. */
static int report(const struct ibv_wc *done, const struct mistake *mistake)
{
	printf("client  work request %d ended with status %d: %s\n", (int)done->wr_id, done->status,
	       ibv_wc_status_str(done->status));
	if (done->status != mistake->expected) {
		fprintf(stderr, "it should have ended with status %d: does the server have the same options?\n",
			mistake->expected);
		return 1;
	}
	if (*mistake->explanation)
		printf("\n%s\n", mistake->explanation);
	return 0;
}

static int run_client(struct resources *resources, const struct options *options)
{
	char plan[64];

	open_resources(resources, options, IBV_ACCESS_LOCAL_WRITE);
	open_streams(resources, connect_to(options->server, options->port));
	write_plan(plan, sizeof(plan), options);
	fprintf(resources->out, "%s\n", plan);
	send_info(resources);
	struct peer_info server = receive_info(resources, "server");

	connect_pair(resources, &server);
	strcpy(resources->buffer, MESSAGE);
	post_request(resources, options, &server);
	struct ibv_wc done = next_completion(resources);

	fprintf(resources->out, "done\n");
	fflush(resources->out);
	return report(&done, options->mistake);
}

static void close_resources(struct resources *resources)
{
	fclose(resources->in);
	fclose(resources->out);
	ibv_destroy_qp(resources->pair);
	ibv_dereg_mr(resources->memory);
	ibv_destroy_cq(resources->completions);
	ibv_dealloc_pd(resources->domain);
	ibv_close_device(resources->context);
}

/* --- Options --- */

static void usage(FILE *where)
{
	fprintf(where, "usage: rc_test [OPTIONS]\n"
		       "  --mode send|write    the operation [default: send]\n"
		       "  --server-ip ADDRESS  be the client of this server; without it, be the server\n"
		       "  --gid-index N        the GID index [default: the first with an IPv4 address]\n"
		       "  --break WHAT         make a mistake on purpose: access, rkey, addr, recv\n"
		       "  --device DEVICE      the device [default: the first with an IPv4 address]\n"
		       "  --port PORT          the TCP port of the server [default: 18700]\n"
		       "Both sides need the same --mode and --break.\n");
}

static void reject(const char *why)
{
	fprintf(stderr, "%s\n", why);
	usage(stderr);
	exit(2);
}

static const struct mistake *find_mistake(const char *name)
{
	const struct mistake *mistake = mistakes;

	while (strcmp(mistake->name, name) && mistake->mode)
		mistake++;
	if (!mistake->mode && strcmp(name, mistake->name))
		reject("there is no such --break");
	return mistake;
}

static struct options parse(int argc, char **argv)
{
	static const struct option names[] = {
		{ "mode", required_argument, NULL, 'm' },      { "server-ip", required_argument, NULL, 's' },
		{ "gid-index", required_argument, NULL, 'g' }, { "break", required_argument, NULL, 'b' },
		{ "device", required_argument, NULL, 'd' },    { "port", required_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },	       { NULL, 0, NULL, 0 },
	};
	struct options options = { .gid_index = -1, .port = "18700", .mistake = find_mistake("nothing") };
	int option;

	while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (option) {
		case 'm': options.mode = optarg; break;
		case 's': options.server = optarg; break;
		case 'g': options.gid_index = atoi(optarg); break;
		case 'b': options.mistake = find_mistake(optarg); break;
		case 'd': options.device = optarg; break;
		case 'p': options.port = optarg; break;
		case 'h': usage(stdout); exit(0);
		default: usage(stderr); exit(2);
		}
	}
	const char *needed = options.mistake->mode;

	if (needed && options.mode && strcmp(needed, options.mode))
		reject("this kind of --break needs the other --mode: leave out --mode");
	if (!options.mode)
		options.mode = needed ? needed : "send";
	if (strcmp(options.mode, "send") && strcmp(options.mode, "write"))
		reject("--mode is send or write");
	return options;
}

int main(int argc, char **argv)
{
	static struct resources resources; /* static: registered memory must not move */
	struct options options = parse(argc, argv);
	int status = 0;

	srandom(getpid());
	if (options.server)
		status = run_client(&resources, &options);
	else
		run_server(&resources, &options);
	close_resources(&resources);
	return status;
}
