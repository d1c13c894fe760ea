/* Programs that wait for something that never comes, each with a second thread that may wait for long: an idle server. */
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <rdma/rdma_verbs.h>
#include "../connection.h"

/* A server without clients. It begins to wait before the program hangs. */
static void *serve(void *unused)
{
	struct rdma_cm_event *event;
	rdma_get_cm_event(channel, &event);
	return unused;
}

static void start_server(void)
{
	pthread_t server;
	open_listener();
	CHECK(pthread_create(&server, NULL, serve, NULL) == 0);
	/* It waits for longer than the call that hangs, so it would be reported first. */
	sleep(1);
}

static void end_by_itself(int signal)
{
	_exit(signal == SIGTERM ? 7 : 8);
}

/* Test runners may ignore signals, and a core file is of no use. */
static void prepare(void)
{
	struct rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	alarm(CASE_TIMEOUT_SECONDS);
	int signals[] = { SIGINT, SIGQUIT, SIGTERM };
	for (int i = 0; i < 3; i++)
		signal(signals[i], getenv("HANDLES_SIGNALS") ? end_by_itself : SIG_DFL);
	start_server();
	open_and_join();
}

static void write_once(void)
{
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	post(left.qp, &wr);
}

static struct ibv_cq *get_event(void)
{
	struct ibv_cq *cq;
	void *context;
	CHECK(ibv_get_cq_event(left.channel, &cq, &context) == 0);
	return cq;
}

/* Leaves three completions in the queue. */
static void fill_queue(void)
{
	write_once();
	wait_for(left.cq);
	for (int i = 0; i < 3; i++)
		write_once();
}

static void a_queue_with_an_unacknowledged_event(void)
{
	CHECK(ibv_req_notify_cq(left.cq, 0) == 0);
	write_once();
	get_event();
	CHECK(ibv_destroy_qp(left.qp) == 0);
	ibv_destroy_cq(left.cq);
}

static void an_id_with_an_unacknowledged_event(void)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	CHECK(other != NULL);
	CHECK(rdma_create_id(other, &id, NULL, RDMA_PS_TCP) == 0);
	struct sockaddr_in peer = at(own_address(), ntohs(rdma_get_src_port(listener)));
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, 1000) == 0);
	CHECK(rdma_get_cm_event(other, &event) == 0);
	rdma_destroy_id(id);
}

/* Three messages have arrived when this returns: their acknowledgements are here. */
static void receive_three(void)
{
	for (int i = 0; i < 3; i++) {
		struct ibv_sge into = part(&left, 0, 8), from = part(&right, 0, 8);
		struct ibv_send_wr wr = request(IBV_WR_SEND, &from);
		post_receive(left.qp, i, &into);
		CHECK(fate_of(&right, &wr) == IBV_WC_SUCCESS);
	}
}

/* It polls one completion for each event, but the three completions cause only one. */
static void one_completion_for_each_event(void)
{
	CHECK(ibv_req_notify_cq(left.cq, 0) == 0);
	receive_three();
	for (;;) {
		struct ibv_cq *cq = get_event();
		struct ibv_wc wc;
		ibv_ack_cq_events(cq, 1);
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		CHECK(ibv_poll_cq(cq, 1, &wc) >= 0);
	}
}

static void a_queue_that_is_not_armed(void)
{
	fill_queue();
	get_event();
}

static struct rdma_cm_id *endpoint(int flags, uint16_t port)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 }, .sq_sig_all = 1 };
	struct rdma_cm_id *id;
	char service[8];
	snprintf(service, sizeof(service), "%d", port);
	CHECK(rdma_getaddrinfo(own_address(), service, &hints, &found) == 0);
	CHECK(rdma_create_ep(&id, found, NULL, &init) == 0);
	rdma_freeaddrinfo(found);
	return id;
}

static void *come_and_go(void *waiting)
{
	struct rdma_cm_id *id = endpoint(0, ntohs(rdma_get_src_port(waiting)));
	CHECK(rdma_connect(id, NULL) == 0);
	CHECK(rdma_disconnect(id) == 0);
	return NULL;
}

/* A server without an event loop waits for the next message of a client that has left. */
static void a_client_that_has_left(void)
{
	struct rdma_cm_id *waiting = endpoint(RAI_PASSIVE, 7207), *id;
	struct ibv_wc wc;
	pthread_t peer;
	CHECK(rdma_listen(waiting, 4) == 0);
	CHECK(pthread_create(&peer, NULL, come_and_go, waiting) == 0);
	CHECK(rdma_get_request(waiting, &id) == 0);
	CHECK(rdma_post_recv(id, NULL, left.memory, 0, left.mr) == 0);
	CHECK(rdma_accept(id, NULL) == 0);
	rdma_get_recv_comp(id, &wc);
}

int main(int words, char **word)
{
	struct test_case cases[] = {
		{ "unacknowledged", a_queue_with_an_unacknowledged_event, prepare, NULL },
		{ "unacknowledged_id", an_id_with_an_unacknowledged_event, prepare, NULL },
		{ "one_for_each", one_completion_for_each_event, prepare, NULL },
		{ "not_armed", a_queue_that_is_not_armed, prepare, NULL },
		{ "disconnected", a_client_that_has_left, prepare, NULL },
	};
	return RUN(cases, words, word);
}
