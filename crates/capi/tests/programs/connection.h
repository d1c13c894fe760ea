/* A client that meets a listener: ids, their events and their queue pairs. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include "check.h"

/* A case has a process of its own, and so these are its own. */
static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener, *client, *accepted;
static int of_listener;

static struct rdma_conn_param parameters = { .private_data = "hello",
					 .private_data_len = 6,
					 .responder_resources = 3,
					 .initiator_depth = 2,
					 .retry_count = 7,
					 .rnr_retry_count = 7 };

static inline struct sockaddr_in at(const char *ip, int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	CHECK(inet_pton(AF_INET, ip, &address.sin_addr) == 1);
	return address;
}

static inline struct rdma_cm_event *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type)
		COMPLAIN("got %s (%d), not %s", rdma_event_str(event->event), event->status,
			 rdma_event_str(type));
	return event;
}

static inline void pass(enum rdma_cm_event_type type)
{
	CHECK(rdma_ack_cm_event(expect(type)) == 0);
}

static inline int bind_to(struct rdma_cm_id *id, struct sockaddr_in address)
{
	return rdma_bind_addr(id, (struct sockaddr *)&address);
}

static inline struct rdma_cm_id *new_id(enum rdma_port_space space)
{
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(channel, &id, NULL, space) == 0);
	return id;
}

static inline void open_channel(void)
{
	channel = rdma_create_event_channel();
	CHECK(channel != NULL);
}

static inline void open_listener(void)
{
	open_channel();
	CHECK(rdma_create_id(channel, &listener, &of_listener, RDMA_PS_TCP) == 0);
	CHECK(bind_to(listener, at(own_address(), 0)) == 0);
	CHECK(rdma_listen(listener, 4) == 0);
}

/* A client that knows its way to the listener. */
static inline void open_route(void)
{
	open_listener();
	client = new_id(RDMA_PS_TCP);
	struct sockaddr_in peer = at(own_address(), ntohs(rdma_get_src_port(listener)));
	CHECK(rdma_resolve_addr(client, NULL, (struct sockaddr *)&peer, 1000) == 0);
	pass(RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(client, 1000) == 0);
	pass(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static inline void make_qp_of(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	CHECK(rdma_create_qp(id, NULL, &init) == 0);
	CHECK(init.send_cq == id->send_cq && init.recv_cq == id->recv_cq);
}

/* A client requests a connection. Returns the listener's event. */
static inline struct rdma_cm_event *ask(void)
{
	make_qp_of(client);
	CHECK(rdma_connect(client, &parameters) == 0);
	return expect(RDMA_CM_EVENT_CONNECT_REQUEST);
}

static inline void open_connection(void)
{
	open_route();
	struct rdma_cm_event *event = ask();
	accepted = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	make_qp_of(accepted);
	CHECK(rdma_accept(accepted, &parameters) == 0);
	for (int heard = 0; heard < 2; heard++)
		pass(RDMA_CM_EVENT_ESTABLISHED);
}

static inline void destroy(struct rdma_cm_id *id)
{
	if (id == NULL)
		return;
	if (id->qp)
		rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
}

static inline void close_all(void)
{
	destroy(client);
	destroy(accepted);
	destroy(listener);
	rdma_destroy_event_channel(channel);
}

#define WITH_CHANNEL(function) { #function, function, open_channel, close_all }
#define WITH_LISTENER(function) { #function, function, open_listener, close_all }
#define WITH_ROUTE(function) { #function, function, open_route, close_all }
#define WITH_CONNECTION(function) { #function, function, open_connection, close_all }

#endif
