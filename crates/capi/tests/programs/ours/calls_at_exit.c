/* Verbs in handlers of `atexit`, where some programs end their communication. The destructors of thread-local variables
 * have run by then. A handler is registered before the first verb or after it: the last one that is registered runs
 * first, and so what the library does at exit may come before it or after it. */
#include "../connection.h"

/* Messages of several packets: each packet is read on its own. */
static void send_both_ways(void)
{
	struct end *ends[] = { &left, &right };
	for (int i = 0; i < 2; i++) {
		struct end *from = ends[i], *to = ends[1 - i];
		struct ibv_sge target = part(to, 4096, 4096), source = part(from, 0, 4096);
		struct ibv_send_wr wr = request(IBV_WR_SEND, &source);
		post_receive(to->qp, 0, &target);
		SAME(fate_of(from, &wr), IBV_WC_SUCCESS);
		SAME(wait_for(to->cq).status, IBV_WC_SUCCESS);
	}
}

static void write_and_read(void)
{
	struct ibv_sge sge = part(&left, 0, 4096);
	struct ibv_send_wr write = request(IBV_WR_RDMA_WRITE, &sge);
	SAME(fate_of(&left, &write), IBV_WC_SUCCESS);
	struct ibv_send_wr read = request(IBV_WR_RDMA_READ, &sge);
	SAME(fate_of(&left, &read), IBV_WC_SUCCESS);
}

static void take_notification(void)
{
	struct ibv_sge sge = part(&left, 0, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	struct ibv_cq *cq;
	void *context;
	CHECK(ibv_req_notify_cq(left.cq, 0) == 0);
	post(left.qp, &wr);
	CHECK(ibv_get_cq_event(left.channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
	SAME(wait_for(cq).status, IBV_WC_SUCCESS);
}

static void use_all_and_close(void)
{
	send_both_ways();
	write_and_read();
	take_notification();
	close_both();
}

static void opened_before_the_handler_is_registered(void)
{
	open_and_join();
	send_both_ways();
	CHECK(atexit(use_all_and_close) == 0);
}

static void opened_after_the_handler_is_registered(void)
{
	CHECK(atexit(use_all_and_close) == 0);
	open_and_join();
	send_both_ways();
}

static void open_use_all_and_close(void)
{
	open_and_join();
	use_all_and_close();
}

static void opened_in_the_handler(void)
{
	CHECK(atexit(open_use_all_and_close) == 0);
}

static void disconnect_and_close(void)
{
	CHECK(rdma_disconnect(client) == 0);
	pass(RDMA_CM_EVENT_DISCONNECTED);
	CHECK(rdma_disconnect(accepted) == 0);
	pass(RDMA_CM_EVENT_DISCONNECTED);
	close_all();
}

static void connected_before_the_handler_is_registered(void)
{
	open_connection();
	CHECK(atexit(disconnect_and_close) == 0);
}

static void connected_after_the_handler_is_registered(void)
{
	CHECK(atexit(disconnect_and_close) == 0);
	open_connection();
}

int main(int words, char **word)
{
	struct test_case cases[] = {
		CASE(opened_before_the_handler_is_registered),
		CASE(opened_after_the_handler_is_registered),
		CASE(opened_in_the_handler),
		CASE(connected_before_the_handler_is_registered),
		CASE(connected_after_the_handler_is_registered),
	};
	return RUN(cases, words, word);
}
