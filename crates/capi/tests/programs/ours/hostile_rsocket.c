/* A peer that says what no rsocket says. Its connection ends with EPROTO; other libraries believe it. */
#include <endian.h>
#include <rdma/rsocket.h>
#include "../connection.h"

/* The message types of rsockets. */
#define DATA(length) (length)
#define CREDITS(count) (4u << 29 | (count))
#define MAP(entry) (6u << 29 | (entry))

/* Half of the server's receive buffer: what it grants at a time. */
#define HALF 4096

/* How many messages of the server this peer can take. */
#define RECEIVES 16

struct __attribute__((packed)) target {
	uint64_t address;
	uint32_t key;
	uint32_t length;
};

/* The private data of a connection, in the byte order of the network. */
struct __attribute__((packed)) greeting {
	uint8_t version, flags;
	uint16_t credits;
	uint8_t reserved[3], mappings;
	struct target descriptions, buffer;
};

static int server, stream;
static struct greeting ours, theirs;

/* What this peer writes; behind it, what the server writes: descriptions of buffers, and data. */
static char memory[2 * HALF];
#define DESCRIPTIONS (memory + HALF)
#define BUFFER (DESCRIPTIONS + 2 * sizeof(struct target))
static struct ibv_mr *region;

static void open_server(void)
{
	int size = HALF, mappings = 4;
	struct sockaddr_in address = at(own_address(), 0);
	server = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(server >= 0);
	CHECK(rsetsockopt(server, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) == 0);
	CHECK(rsetsockopt(server, SOL_RDMA, RDMA_IOMAPSIZE, &mappings, sizeof(mappings)) == 0);
	CHECK(rbind(server, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(rlisten(server, 4) == 0);
	CHECK(rfcntl(server, F_SETFL, O_NONBLOCK) == 0);
}

static struct target as_target(const char *start, uint32_t length)
{
	return (struct target){ htobe64((uintptr_t)start), htobe32(region->rkey), htobe32(length) };
}

/* The queue pair and the memory of this peer. */
static void make_peer(void)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	CHECK(rdma_create_qp(client, NULL, &init) == 0);
	region = ibv_reg_mr(client->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(region != NULL);
	for (int i = 0; i < RECEIVES; i++) {
		struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;
		CHECK(ibv_post_recv(client->qp, &wr, &bad) == 0);
	}
	ours = (struct greeting){
		.version = 1,
		.credits = htobe16(RECEIVES),
		.descriptions = as_target(DESCRIPTIONS, 2),
		.buffer = as_target(BUFFER, memory + sizeof(memory) - BUFFER),
	};
}

static void find_server(void)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);
	CHECK(rgetsockname(server, (struct sockaddr *)&address, &length) == 0);
	open_channel();
	client = new_id(RDMA_PS_TCP);
	CHECK(rdma_resolve_addr(client, NULL, (struct sockaddr *)&address, 1000) == 0);
	pass(RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(client, 1000) == 0);
	pass(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/* Asks for a connection. The server takes the request. */
static void ask_server(void)
{
	parameters.private_data = &ours;
	parameters.private_data_len = sizeof(ours);
	CHECK(rdma_connect(client, &parameters) == 0);
	struct pollfd one = { .fd = server, .events = POLLIN };
	CHECK(rpoll(&one, 1, EVENT_TIMEOUT) == 1);
	stream = raccept(server, NULL, NULL);
}

static void open_connection_to_server(void)
{
	open_server();
	find_server();
	make_peer();
	ask_server();
	CHECK(stream >= 0);
	CHECK(rfcntl(stream, F_SETFL, 0) == 0);
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->param.conn.private_data_len >= sizeof(theirs));
	memcpy(&theirs, event->param.conn.private_data, sizeof(theirs));
	CHECK(rdma_ack_cm_event(event) == 0);
	/* The server grants the second half of its buffer when it is served after the connection is established. */
	struct pollfd quiet = { .fd = stream, .events = POLLIN };
	struct ibv_wc granted;
	do
		CHECK(rpoll(&quiet, 1, 1) == 0);
	while (ibv_poll_cq(client->recv_cq, 1, &granted) == 0);
	SAME(granted.status, IBV_WC_SUCCESS);
}

static void close_connection(void)
{
	CHECK(rclose(stream) == 0 && rclose(server) == 0);
	CHECK(ibv_dereg_mr(region) == 0);
	destroy(client);
	rdma_destroy_event_channel(channel);
}

/* Writes the beginning of the memory to a part of the server's memory, with a message. */
static void say(uint32_t message, struct target to, uint64_t offset, uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = length, .lkey = region->lkey };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.sg_list = &sge,
		.num_sge = 1,
		.imm_data = htobe32(message),
		.wr.rdma = { .remote_addr = be64toh(to.address) + offset, .rkey = be32toh(to.key) },
	};
	post(client->qp, &wr);
	SAME(wait_for(client->send_cq).status, IBV_WC_SUCCESS);
}

static void the_data_of_an_honest_peer_is_received(void)
{
	char got[HALF];
	memset(memory, 'h', HALF);
	for (int round = 0; round < 4; round++) {
		say(DATA(HALF), theirs.buffer, round % 2 * HALF, HALF);
		SAME(rrecv(stream, got, sizeof(got), MSG_WAITALL), HALF);
		CHECK(memcmp(got, memory, HALF) == 0);
	}
}

static void data_that_was_not_written_is_not_received(void)
{
	char got[HALF];
	say(DATA(HALF), theirs.buffer, 0, 0);
	FAILS(rrecv(stream, got, sizeof(got), 0), EPROTO);
	FAILS(rsend(stream, got, 1, 0), EPROTO);
}

static void data_beyond_what_was_granted_is_not_received(void)
{
	char got[2 * HALF];
	for (int i = 0; i < 3; i++)
		say(DATA(HALF), theirs.buffer, i % 2 * HALF, HALF);
	SAME(rrecv(stream, got, sizeof(got), MSG_WAITALL), 2 * HALF);
	FAILS(rrecv(stream, got, sizeof(got), 0), EPROTO);
}

static void a_buffer_beyond_all_memory_ends_the_connection(void)
{
	struct target beyond = { .address = UINT64_MAX, .length = HALF };
	memcpy(memory, &beyond, sizeof(beyond));
	say(CREDITS(400), theirs.descriptions, sizeof(beyond), sizeof(beyond));
	FAILS(rsend(stream, "x", 1, 0), EPROTO);
}

static void a_mapping_beyond_all_memory_is_not_written(void)
{
	struct __attribute__((packed)) {
		uint64_t offset;
		struct target target;
	} beyond = { .target = { .address = UINT64_MAX, .length = HALF } };
	memcpy(memory, &beyond, sizeof(beyond));
	say(MAP(0), theirs.descriptions, 2 * sizeof(struct target), sizeof(beyond));
	FAILS(riowrite(stream, "x", 1, 8, 0), EPROTO);
}

static void a_connection_with_memory_beyond_all_addresses_is_rejected(void)
{
	open_server();
	find_server();
	make_peer();
	ours.descriptions.address = UINT64_MAX;
	ask_server();
	CHECK(stream == -1 && errno == EAGAIN);
	pass(RDMA_CM_EVENT_REJECTED);
	CHECK(rclose(server) == 0 && ibv_dereg_mr(region) == 0);
	destroy(client);
	rdma_destroy_event_channel(channel);
}

#define CONNECTED(function) { #function, function, open_connection_to_server, close_connection }

static const struct test_case CASES[] = {
	CONNECTED(the_data_of_an_honest_peer_is_received),
	CONNECTED(data_that_was_not_written_is_not_received),
	CONNECTED(data_beyond_what_was_granted_is_not_received),
	CONNECTED(a_buffer_beyond_all_memory_ends_the_connection),
	CONNECTED(a_mapping_beyond_all_memory_is_not_written),
	CASE(a_connection_with_memory_beyond_all_addresses_is_rejected),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
