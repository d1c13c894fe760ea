/* The last packets of a connection.
 *
 * A reply that is followed at once by a disconnection: a client that waits at both descriptors gets the
 * reply first; both may be there at once only when the disconnection has waited for its time. Other
 * libraries don't promise this. The order holds as long as no process joins or leaves the address: then
 * packets can take a longer way for a moment, and later ones overtake them. */
#include <time.h>
#include "../connection.h"

#define ROUNDS 200

/* How long a disconnection waits for the completions before it to be polled. */
#define HOLD_IN_NANOSECONDS 1000000

/* What both processes know. */
struct meeting {
	atomic_int port;
	atomic_llong replied_at;
};

static struct meeting *meeting;

static long long nanoseconds(void)
{
	struct timespec now;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Messages here are empty. */
static void post_message(struct rdma_cm_id *id)
{
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
	post(id->qp, &wr);
}

static void expect_message(struct rdma_cm_id *id)
{
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;
	CHECK(ibv_post_recv(id->qp, &wr, &bad) == 0);
}

/* Accepts the next client and receives its message. */
static void accept_and_receive(void)
{
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	accepted = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	make_qp_of(accepted);
	expect_message(accepted);
	CHECK(rdma_accept(accepted, &parameters) == 0);
	pass(RDMA_CM_EVENT_ESTABLISHED);
	SAME(wait_for(accepted->recv_cq).status, IBV_WC_SUCCESS);
}

static void serve_one(void)
{
	accept_and_receive();
	atomic_store(&meeting->replied_at, nanoseconds());
	post_message(accepted);
	CHECK(rdma_disconnect(accepted) == 0);
	pass(RDMA_CM_EVENT_DISCONNECTED);
	destroy(accepted);
}

static void serve(void)
{
	open_listener();
	atomic_store(&meeting->port, ntohs(rdma_get_src_port(listener)));
	for (int round = 0; round < ROUNDS; round++)
		serve_one();
	_exit(0);
}

static void connect_to_server(void)
{
	struct sockaddr_in peer = at(own_address(), atomic_load(&meeting->port));
	client = new_id(RDMA_PS_TCP);
	CHECK(rdma_resolve_addr(client, NULL, (struct sockaddr *)&peer, 1000) == 0);
	pass(RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(client, 1000) == 0);
	pass(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp_of(client);
	expect_message(client);
	CHECK(rdma_connect(client, &parameters) == 0);
	pass(RDMA_CM_EVENT_ESTABLISHED);
}

static void take_reply(void)
{
	struct ibv_wc wc;
	if (ibv_poll_cq(client->recv_cq, 1, &wc) != 1)
		COMPLAIN("the disconnection came before the reply");
	SAME(wc.status, IBV_WC_SUCCESS);
}

static void take_notification(void)
{
	struct ibv_cq *cq;
	void *context;
	CHECK(ibv_get_cq_event(client->recv_cq_channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
}

/* Waits at both descriptors until the connection has ended. */
static void wait_for_reply_and_end(void)
{
	int replied = 0;
	for (;;) {
		struct pollfd both[] = { { .fd = channel->fd, .events = POLLIN },
					 { .fd = client->recv_cq_channel->fd, .events = POLLIN } };
		CHECK(poll(both, 2, -1) > 0);
		long long passed = nanoseconds() - atomic_load(&meeting->replied_at);
		if (both[0].revents && !replied && passed < HOLD_IN_NANOSECONDS)
			COMPLAIN("the disconnection was reported before the reply was polled, after %lld ns", passed);
		if (both[1].revents)
			take_notification();
		if (!replied)
			take_reply();
		replied = 1;
		if (both[0].revents)
			return;
	}
}

/* Starts another process, before this one uses a device. */
static pid_t start(void (*live)(void))
{
	meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(meeting != MAP_FAILED);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(CASE_TIMEOUT_SECONDS / 2);
		live();
	}
	return child;
}

static void await_port(void)
{
	while (atomic_load(&meeting->port) == 0)
		sched_yield();
}

static void the_reply_arrives_before_the_disconnect_event(void)
{
	pid_t server = start(serve);
	await_port();
	open_channel();
	for (int round = 0; round < ROUNDS; round++) {
		connect_to_server();
		CHECK(ibv_req_notify_cq(client->recv_cq, 0) == 0);
		post_message(client);
		wait_for_reply_and_end();
		pass(RDMA_CM_EVENT_DISCONNECTED);
		CHECK(rdma_disconnect(client) == 0);
		destroy(client);
	}
	int status;
	CHECK(waitpid(server, &status, 0) == server && status == 0);
	rdma_destroy_event_channel(channel);
}

/* Sends a message that an injected fault holds back, and exits without closing anything. */
static void send_and_exit(void)
{
	await_port();
	CHECK(setenv("ROCI_FAULT", "delay:opcode=RC_SEND,by=1000s", 1) == 0);
	open_channel();
	connect_to_server();
	post_message(client);
	exit(0);
}

static void a_delayed_message_is_sent_at_exit(void)
{
	start(send_and_exit);
	open_listener();
	atomic_store(&meeting->port, ntohs(rdma_get_src_port(listener)));
	accept_and_receive();
	pass(RDMA_CM_EVENT_DISCONNECTED);
	close_all();
}

static const struct test_case CASES[] = {
	CASE(the_reply_arrives_before_the_disconnect_event),
	CASE(a_delayed_message_is_sent_at_exit),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
