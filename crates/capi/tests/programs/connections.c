/* Connections: events and what comes with them, calls that wait, rejections, and what a child may do. */
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include "connection.h"

static void resolving_an_address_finds_the_device(void)
{
	CHECK(client->verbs && client->pd && client->port_num == 1);
	CHECK(strcmp(ibv_get_device_name(client->verbs->device), "left") == 0);
	CHECK(rdma_get_dst_port(client) == rdma_get_src_port(listener));
}

static void resolving_a_route_finds_the_path(void)
{
	CHECK(client->route.num_paths == 1 && client->route.path_rec != NULL);
	CHECK(client->route.path_rec->pkey == 0xffff);
}

static void creating_a_queue_pair_creates_its_completion_queues(void)
{
	make_qp_of(client);
	CHECK(client->qp && client->send_cq && client->recv_cq);
	CHECK(client->send_cq_channel && client->recv_cq_channel);
	CHECK(client->qp->state == IBV_QPS_INIT);
}

static void destroying_a_queue_pair_destroys_its_completion_queues(void)
{
	make_qp_of(client);
	rdma_destroy_qp(client);
	CHECK(client->qp == NULL && client->send_cq == NULL && client->recv_cq == NULL);
}

static void a_connection_needs_a_queue_pair(void)
{
	FAILS(rdma_connect(client, NULL), EINVAL);
}

static void a_request_is_readable(void)
{
	make_qp_of(client);
	CHECK(rdma_connect(client, &parameters) == 0);
	CHECK(is_readable(channel->fd, EVENT_TIMEOUT));
}

static void a_request_has_the_address_of_the_client(void)
{
	struct rdma_cm_event *event = ask();
	accepted = event->id;
	CHECK(event->listen_id == listener && accepted->context == &of_listener);
	CHECK(accepted->verbs == client->verbs && accepted->qp == NULL);
	CHECK(event->param.conn.qp_num == client->qp->qp_num);
	CHECK(rdma_get_dst_port(accepted) == rdma_get_src_port(client));
	CHECK(rdma_ack_cm_event(event) == 0);
}

static void a_request_has_the_parameters_of_the_client(void)
{
	struct rdma_cm_event *event = ask();
	accepted = event->id;
	CHECK(memcmp(event->param.conn.private_data, "hello", 6) == 0);
	SAME(event->param.conn.private_data_len, 56);
	SAME(event->param.conn.responder_resources, 2);
	SAME(event->param.conn.initiator_depth, 3);
	SAME(event->param.conn.rnr_retry_count, 7);
	CHECK(rdma_ack_cm_event(event) == 0);
}

static void the_client_gets_the_accepted_parameters(void)
{
	struct rdma_cm_event *event = ask();
	accepted = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	make_qp_of(accepted);
	CHECK(rdma_accept(accepted, &parameters) == 0);
	CHECK(accepted->qp->state == IBV_QPS_RTS);
	do
		event = expect(RDMA_CM_EVENT_ESTABLISHED);
	while (event->id != client && rdma_ack_cm_event(event) == 0);
	CHECK(memcmp(event->param.conn.private_data, "hello", 6) == 0);
	SAME(event->param.conn.private_data_len, 196);
	CHECK(event->param.conn.qp_num == accepted->qp->qp_num);
	CHECK(rdma_ack_cm_event(event) == 0);
}

static void a_request_that_cannot_be_accepted_is_rejected(void)
{
	static const char data[197];
	struct rdma_conn_param too_long = { .private_data = data, .private_data_len = 197 };
	struct rdma_cm_event *event = ask();
	accepted = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	FAILS(rdma_accept(accepted, &too_long), EINVAL);
	event = expect(RDMA_CM_EVENT_REJECTED);
	CHECK(event->id == client);
	SAME(event->status, 28);
	CHECK(rdma_ack_cm_event(event) == 0);
}

/* A connection belongs to the channel from which its request was taken. */
static void a_request_moves_with_its_listener(void)
{
	leave_out_with_others();
	struct rdma_event_channel *first = channel, *second = rdma_create_event_channel();
	CHECK(second != NULL);
	make_qp_of(client);
	CHECK(rdma_connect(client, &parameters) == 0);
	CHECK(is_readable(first->fd, EVENT_TIMEOUT));
	CHECK(rdma_migrate_id(listener, second) == 0);
	channel = second;
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	accepted = event->id;
	CHECK(accepted->channel == second);
	CHECK(rdma_ack_cm_event(event) == 0);
	make_qp_of(accepted);
	CHECK(rdma_accept(accepted, &parameters) == 0);
	channel = first;
	pass(RDMA_CM_EVENT_ESTABLISHED);
	CHECK(is_readable(second->fd, EVENT_TIMEOUT));
	channel = second;
	pass(RDMA_CM_EVENT_ESTABLISHED);
	destroy(listener);
	destroy(accepted);
	listener = accepted = NULL;
	rdma_destroy_event_channel(second);
	channel = first;
}

/* A client that knows its way to a datagram service. */
static void open_route_to_service(void)
{
	open_channel();
	struct sockaddr_in own = at(own_address(), 0);
	listener = new_id(RDMA_PS_UDP);
	CHECK(bind_to(listener, own) == 0 && rdma_listen(listener, 4) == 0);
	own.sin_port = rdma_get_src_port(listener);
	client = new_id(RDMA_PS_UDP);
	CHECK(rdma_resolve_addr(client, NULL, (struct sockaddr *)&own, 1000) == 0);
	pass(RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(client, 1000) == 0);
	pass(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void a_service_is_found_without_a_queue_pair(void)
{
	CHECK(rdma_connect(client, NULL) == 0);
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	accepted = event->id;
	SAME(event->param.ud.private_data_len, 180);
	CHECK(rdma_ack_cm_event(event) == 0);
	struct rdma_conn_param service = { .qp_num = 77 };
	CHECK(rdma_accept(accepted, &service) == 0);
	event = expect(RDMA_CM_EVENT_ESTABLISHED);
	SAME(event->param.ud.qp_num, 77);
	CHECK(rdma_ack_cm_event(event) == 0);
}

static void a_rejected_service_request_has_private_data(void)
{
	CHECK(rdma_connect(client, NULL) == 0);
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	accepted = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_reject(accepted, "no", 3) == 0);
	event = expect(RDMA_CM_EVENT_UNREACHABLE);
	SAME(event->status, 2);
	SAME(event->param.ud.private_data_len, 136);
	CHECK(memcmp(event->param.ud.private_data, "no", 3) == 0);
	CHECK(rdma_ack_cm_event(event) == 0);
}

/* The queue pair of a program may be elsewhere. */
static void an_id_without_a_queue_pair_can_report_the_first_packet(void)
{
	struct rdma_cm_event *event = ask();
	accepted = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	FAILS(rdma_notify(accepted, IBV_EVENT_COMM_EST), EINVAL);
	struct rdma_conn_param elsewhere = parameters;
	elsewhere.qp_num = 77;
	CHECK(rdma_accept(accepted, &elsewhere) == 0);
	CHECK(rdma_notify(accepted, IBV_EVENT_COMM_EST) == 0);
	for (int heard = 0; heard < 2; heard++)
		pass(RDMA_CM_EVENT_ESTABLISHED);
	FAILS(rdma_notify(accepted, IBV_EVENT_COMM_EST), EISCONN);
}

static void talk(struct rdma_cm_id *from, struct rdma_cm_id *to)
{
	static char data[16] = "across the wire", place[16];
	memset(place, 0, sizeof(place));
	struct ibv_mr *out = rdma_reg_msgs(from, data, sizeof(data));
	struct ibv_mr *in = rdma_reg_msgs(to, place, sizeof(place));
	CHECK(out && in);
	CHECK(rdma_post_recv(to, NULL, place, sizeof(place), in) == 0);
	CHECK(rdma_post_send(from, NULL, data, sizeof(data), out, 0) == 0);
	struct ibv_wc wc;
	CHECK(rdma_get_send_comp(from, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_get_recv_comp(to, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(memcmp(place, data, sizeof(data)) == 0);
	CHECK(rdma_dereg_mr(out) == 0 && rdma_dereg_mr(in) == 0);
}

static void both_sides_can_send(void)
{
	talk(client, accepted);
	talk(accepted, client);
}

static void both_sides_get_a_disconnect_event(void)
{
	CHECK(rdma_disconnect(client) == 0);
	for (int heard = 0; heard < 2; heard++) {
		struct rdma_cm_event *event = expect(RDMA_CM_EVENT_DISCONNECTED);
		if (event->id == accepted)
			CHECK(rdma_disconnect(accepted) == 0);
		CHECK(rdma_ack_cm_event(event) == 0);
	}
}

static void a_listener_can_reject(void)
{
	struct rdma_cm_event *event = ask();
	CHECK(rdma_reject(event->id, "no", 3) == 0);
	CHECK(rdma_destroy_id(event->id) == 0);
	CHECK(rdma_ack_cm_event(event) == 0);
	event = expect(RDMA_CM_EVENT_REJECTED);
	SAME(event->status, 28);
	CHECK(memcmp(event->param.conn.private_data, "no", 3) == 0);
	CHECK(rdma_ack_cm_event(event) == 0);
}

static void a_destroyed_listener_rejects(void)
{
	destroy(listener);
	listener = NULL;
	make_qp_of(client);
	CHECK(rdma_connect(client, &parameters) == 0);
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_REJECTED);
	SAME(event->status, 8);
	CHECK(rdma_ack_cm_event(event) == 0);
}

static char served_port[8];

static struct rdma_addrinfo *look_up(int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags | RAI_NUMERICHOST,
				       .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *found;
	CHECK(rdma_getaddrinfo(own_address(), flags ? "0" : served_port, &hints, &found) == 0);
	CHECK(found->ai_qp_type == IBV_QPT_RC);
	CHECK((flags ? found->ai_src_addr : found->ai_dst_addr) != NULL);
	return found;
}

static void *serve(void *served)
{
	struct rdma_cm_id *id;
	CHECK(rdma_get_request(served, &id) == 0);
	CHECK(id->qp != NULL && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(rdma_accept(id, NULL) == 0);
	return id;
}

/* A side that disconnects waits for the DREP of its peer. */
static void *part_from(void *id)
{
	CHECK(rdma_disconnect(id) == 0);
	return NULL;
}

static struct rdma_cm_id *endpoint(int flags)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_addrinfo *found = look_up(flags);
	struct rdma_cm_id *id;
	CHECK(rdma_create_ep(&id, found, NULL, &init) == 0);
	rdma_freeaddrinfo(found);
	return id;
}

static void without_a_channel_calls_block(void)
{
	struct rdma_cm_id *served = endpoint(RAI_PASSIVE);
	CHECK(rdma_listen(served, 0) == 0);
	snprintf(served_port, sizeof(served_port), "%d", ntohs(rdma_get_src_port(served)));
	pthread_t server;
	CHECK(pthread_create(&server, NULL, serve, served) == 0);
	struct rdma_cm_id *from = endpoint(0);
	CHECK(rdma_connect(from, NULL) == 0);
	SAME(from->event->event, RDMA_CM_EVENT_ESTABLISHED);
	void *to;
	CHECK(pthread_join(server, &to) == 0);
	talk(from, to);
	CHECK(pthread_create(&server, NULL, part_from, to) == 0);
	part_from(from);
	CHECK(pthread_join(server, NULL) == 0);
	rdma_destroy_ep(from);
	rdma_destroy_ep(to);
	rdma_destroy_ep(served);
}

static struct rdma_cm_id *xrc_endpoint(int flags, enum ibv_qp_type type, int port)
{
	struct sockaddr_in address = at(own_address(), port);
	struct rdma_addrinfo wanted = { .ai_flags = flags,
					.ai_qp_type = type,
					.ai_port_space = RDMA_PS_IB };
	if (flags & RAI_PASSIVE) {
		wanted.ai_src_addr = (struct sockaddr *)&address;
		wanted.ai_src_len = sizeof(address);
	} else {
		wanted.ai_dst_addr = (struct sockaddr *)&address;
		wanted.ai_dst_len = sizeof(address);
	}
	struct rdma_cm_id *id;
	CHECK(rdma_create_ep(&id, &wanted, NULL, NULL) == 0);
	return id;
}

static void *be_rejected(void *from)
{
	struct rdma_conn_param own = { .qp_num = 77, .responder_resources = 1, .initiator_depth = 1 };
	FAILS(rdma_connect(from, &own), ECONNREFUSED);
	return NULL;
}

/* It answers, and sends no requests of its own. */
static void an_xrc_target_needs_no_attributes_of_a_requester(void)
{
	leave_out_with_others();
	struct rdma_cm_id *served = xrc_endpoint(RAI_PASSIVE, IBV_QPT_XRC_RECV, 0), *to;
	CHECK(rdma_listen(served, 0) == 0);
	int port = ntohs(rdma_get_src_port(served));
	struct rdma_cm_id *from = xrc_endpoint(0, IBV_QPT_XRC_SEND, port);
	pthread_t asking;
	CHECK(pthread_create(&asking, NULL, be_rejected, from) == 0);
	CHECK(rdma_get_request(served, &to) == 0);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int mask;
	CHECK(rdma_init_qp_attr(to, &attr, &mask) == 0);
	CHECK((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && (mask & IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(rdma_init_qp_attr(to, &attr, &mask) == 0);
	SAME(mask, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT);
	CHECK(rdma_reject(to, NULL, 0) == 0);
	CHECK(pthread_join(asking, NULL) == 0);
	rdma_destroy_ep(to);
	rdma_destroy_ep(from);
	rdma_destroy_ep(served);
}

static void wait_for_event(void)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(channel, &event) == -1);
}

static void a_child_does_not_wait_for_events(void)
{
	in_child(wait_for_event);
}

static void listen_to_inherited(void)
{
	CHECK(rdma_listen(client, 0) == -1);
}

static void a_child_does_not_listen(void)
{
	client = new_id(RDMA_PS_TCP);
	CHECK(bind_to(client, at(own_address(), 0)) == 0);
	in_child(listen_to_inherited);
}

static void a_child_makes_its_own_connections(void)
{
	in_child(without_a_channel_calls_block);
}

static void a_child_can_open_its_own_channel(void)
{
	client = new_id(RDMA_PS_TCP);
	CHECK(bind_to(client, at(own_address(), 0)) == 0);
	in_child(without_a_channel_calls_block);
}

static void make_a_channel(void)
{
	struct rdma_event_channel *own = rdma_create_event_channel();
	CHECK(own != NULL);
	rdma_destroy_event_channel(own);
}

static void a_child_does_not_change_the_parents_id(void)
{
	client = new_id(RDMA_PS_TCP);
	CHECK(bind_to(client, at(own_address(), 0)) == 0);
	in_child(make_a_channel);
	CHECK(rdma_listen(client, 0) == 0);
}

#define WITH_SERVICE(function) { #function, function, open_route_to_service, close_all }

static const struct test_case CASES[] = {
	WITH_ROUTE(resolving_an_address_finds_the_device),
	WITH_ROUTE(resolving_a_route_finds_the_path),
	WITH_ROUTE(creating_a_queue_pair_creates_its_completion_queues),
	WITH_ROUTE(destroying_a_queue_pair_destroys_its_completion_queues),
	WITH_ROUTE(a_connection_needs_a_queue_pair),
	WITH_ROUTE(a_request_is_readable),
	WITH_ROUTE(a_request_has_the_address_of_the_client),
	WITH_ROUTE(a_request_has_the_parameters_of_the_client),
	WITH_ROUTE(the_client_gets_the_accepted_parameters),
	WITH_ROUTE(a_request_that_cannot_be_accepted_is_rejected),
	WITH_ROUTE(a_request_moves_with_its_listener),
	WITH_SERVICE(a_service_is_found_without_a_queue_pair),
	WITH_SERVICE(a_rejected_service_request_has_private_data),
	WITH_ROUTE(an_id_without_a_queue_pair_can_report_the_first_packet),
	WITH_CONNECTION(both_sides_can_send),
	WITH_CONNECTION(both_sides_get_a_disconnect_event),
	WITH_ROUTE(a_listener_can_reject),
	WITH_ROUTE(a_destroyed_listener_rejects),
	CASE(without_a_channel_calls_block),
	CASE(an_xrc_target_needs_no_attributes_of_a_requester),
	WITH_CHANNEL(a_child_does_not_wait_for_events),
	WITH_CHANNEL(a_child_does_not_listen),
	WITH_CHANNEL(a_child_makes_its_own_connections),
	WITH_CHANNEL(a_child_can_open_its_own_channel),
	WITH_CHANNEL(a_child_does_not_change_the_parents_id),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
