/* Connections: events and what comes with them, calls that wait, refusals, and what a child may do. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include "check.h"

#define FAILS(call, error)                                                     \
	do {                                                                   \
		errno = 0;                                                     \
		int result = (call);                                           \
		if (result != -1 || errno != (error)) {                        \
			fprintf(stderr, "%s:%d: %s gives %d, errno %d\n",      \
				__FILE__, __LINE__, #call, result, errno);     \
			exit(1);                                               \
		}                                                              \
	} while (0)

static struct sockaddr_in at(const char *ip, int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	CHECK(inet_pton(AF_INET, ip, &address.sin_addr) == 1);
	return address;
}

static int is_loopback(const struct sockaddr_in *address)
{
	return ntohl(address->sin_addr.s_addr) >> 24 == 127;
}

static struct rdma_cm_event *expect(struct rdma_event_channel *channel,
				    enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type) {
		fprintf(stderr, "got %s (%d), not %s\n", rdma_event_str(event->event),
			event->status, rdma_event_str(type));
		exit(1);
	}
	return event;
}

static void pass(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	CHECK(rdma_ack_cm_event(expect(channel, type)) == 0);
}

static void make_qp_of(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	CHECK(rdma_create_qp(id, NULL, &init) == 0);
	CHECK(id->qp && id->send_cq && id->recv_cq && id->send_cq_channel && id->recv_cq_channel);
	CHECK(init.send_cq == id->send_cq && id->qp->state == IBV_QPS_INIT);
}

static void resolve(struct rdma_event_channel *channel, struct rdma_cm_id *id,
		    struct sockaddr_in *peer)
{
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)peer, 1000) == 0);
	pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs && id->pd && id->port_num == 1);
	CHECK(rdma_resolve_route(id, 1000) == 0);
	pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(id->route.num_paths == 1 && id->route.path_rec != NULL);
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

static void nothing_there(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
	CHECK(fcntl(channel->fd, F_SETFL, 0) == 0);
}

static void with_events(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(channel != NULL);
	nothing_there(channel);
	struct rdma_cm_id *listener, *client;
	int context = 7;
	CHECK(rdma_create_id(channel, &listener, &context, RDMA_PS_TCP) == 0);
	struct sockaddr_in any = at(own_address(), 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&any) == 0);
	FAILS(rdma_bind_addr(listener, (struct sockaddr *)&any), EINVAL);
	CHECK(rdma_listen(listener, 4) == 0);
	CHECK(rdma_get_src_port(listener) != 0);
	/* A loopback address could be that of any device. */
	CHECK((listener->verbs == NULL) == is_loopback(&any));
	struct sockaddr_in peer = at(own_address(), ntohs(rdma_get_src_port(listener)));

	CHECK(rdma_create_id(channel, &client, NULL, RDMA_PS_TCP) == 0);
	resolve(channel, client, &peer);
	FAILS(rdma_connect(client, NULL), EINVAL);
	make_qp_of(client);
	struct rdma_conn_param param = { .private_data = "hello",
					 .private_data_len = 6,
					 .responder_resources = 3,
					 .initiator_depth = 2,
					 .rnr_retry_count = 7 };
	CHECK(rdma_connect(client, &param) == 0);

	struct pollfd readable = { .fd = channel->fd, .events = POLLIN };
	CHECK(poll(&readable, 1, 5000) == 1);
	struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *guest = event->id;
	CHECK(event->listen_id == listener && guest->context == &context);
	CHECK(guest->verbs == client->verbs && guest->qp == NULL);
	CHECK(memcmp(event->param.conn.private_data, "hello", 6) == 0);
	CHECK(event->param.conn.private_data_len == 56);
	CHECK(event->param.conn.responder_resources == 2 && event->param.conn.initiator_depth == 3);
	CHECK(event->param.conn.qp_num == client->qp->qp_num);
	CHECK(rdma_get_dst_port(guest) == rdma_get_src_port(client));
	CHECK(rdma_ack_cm_event(event) == 0);
	make_qp_of(guest);
	CHECK(rdma_accept(guest, &param) == 0);
	CHECK(guest->qp->state == IBV_QPS_RTS);

	for (int left = 2; left > 0; left--)
		pass(channel, RDMA_CM_EVENT_ESTABLISHED);
	talk(client, guest);
	talk(guest, client);

	CHECK(rdma_disconnect(client) == 0);
	for (int left = 2; left > 0; left--) {
		event = expect(channel, RDMA_CM_EVENT_DISCONNECTED);
		if (event->id == guest)
			CHECK(rdma_disconnect(guest) == 0);
		CHECK(rdma_ack_cm_event(event) == 0);
	}
	rdma_destroy_qp(client);
	CHECK(client->qp == NULL && client->send_cq == NULL);
	rdma_destroy_qp(guest);
	CHECK(rdma_destroy_id(guest) == 0);
	CHECK(rdma_destroy_id(client) == 0);

	/* A listener that is gone refuses; so does one that says so. */
	CHECK(rdma_create_id(channel, &client, NULL, RDMA_PS_TCP) == 0);
	resolve(channel, client, &peer);
	make_qp_of(client);
	CHECK(rdma_connect(client, &param) == 0);
	event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(rdma_reject(event->id, "no", 3) == 0);
	CHECK(rdma_destroy_id(event->id) == 0);
	CHECK(rdma_ack_cm_event(event) == 0);
	event = expect(channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == 28 && memcmp(event->param.conn.private_data, "no", 3) == 0);
	CHECK(rdma_ack_cm_event(event) == 0);
	rdma_destroy_qp(client);
	CHECK(rdma_destroy_id(client) == 0);
	CHECK(rdma_destroy_id(listener) == 0);

	CHECK(rdma_create_id(channel, &client, NULL, RDMA_PS_TCP) == 0);
	resolve(channel, client, &peer);
	make_qp_of(client);
	CHECK(rdma_connect(client, &param) == 0);
	event = expect(channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == 8);
	CHECK(rdma_ack_cm_event(event) == 0);
	rdma_destroy_qp(client);
	CHECK(rdma_destroy_id(client) == 0);
	rdma_destroy_event_channel(channel);
}

/* Destroying an id waits until its events are acknowledged. */
static void *acknowledge_later(void *event)
{
	usleep(50000);
	CHECK(rdma_ack_cm_event(event) == 0);
	return NULL;
}

static void destroying_waits(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) == 0);
	struct sockaddr_in peer = at(own_address(), 7000);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, 1000) == 0);
	struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, acknowledge_later, event) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	rdma_destroy_event_channel(channel);
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

static void *serve(void *listener)
{
	struct rdma_cm_id *id;
	CHECK(rdma_get_request(listener, &id) == 0);
	CHECK(id->qp != NULL && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(rdma_accept(id, NULL) == 0);
	return id;
}

/* Who disconnects waits until the peer has agreed. */
static void *part(void *id)
{
	CHECK(rdma_disconnect(id) == 0);
	return NULL;
}

static void with_waiting(void)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct ibv_qp_init_attr of_client = init;
	struct rdma_addrinfo *found = look_up(RAI_PASSIVE);
	struct rdma_cm_id *listener, *client;
	CHECK(rdma_create_ep(&listener, found, NULL, &init) == 0);
	rdma_freeaddrinfo(found);
	CHECK(rdma_listen(listener, 0) == 0);
	snprintf(served_port, sizeof(served_port), "%d", ntohs(rdma_get_src_port(listener)));
	pthread_t server;
	CHECK(pthread_create(&server, NULL, serve, listener) == 0);
	found = look_up(0);
	CHECK(rdma_create_ep(&client, found, NULL, &of_client) == 0);
	rdma_freeaddrinfo(found);
	CHECK(rdma_connect(client, NULL) == 0);
	CHECK(client->event->event == RDMA_CM_EVENT_ESTABLISHED);
	void *guest;
	CHECK(pthread_join(server, &guest) == 0);
	talk(client, guest);
	CHECK(pthread_create(&server, NULL, part, guest) == 0);
	part(client);
	CHECK(pthread_join(server, NULL) == 0);
	rdma_destroy_ep(client);
	rdma_destroy_ep(guest);
	rdma_destroy_ep(listener);
}

static void refusals(void)
{
	struct rdma_cm_id *id, *other;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	FAILS(rdma_create_id(channel, &id, NULL, 99), EINVAL);
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP) == 0);
	FAILS(rdma_resolve_route(id, 10), EINVAL);
	FAILS(rdma_disconnect(id), EINVAL);
	struct sockaddr strange = { .sa_family = 27 };
	FAILS(rdma_bind_addr(id, &strange), EINVAL);
	struct sockaddr_in elsewhere = at("192.0.2.77", 0);
	FAILS(rdma_bind_addr(id, (struct sockaddr *)&elsewhere), EADDRNOTAVAIL);
	struct sockaddr_in here = at(own_address(), 7171);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&here) == 0);
	FAILS(rdma_bind_addr(other, (struct sockaddr *)&here), EADDRINUSE);
	uint8_t tos = 32;
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)) == 0);
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 4), EINVAL);
	FAILS(rdma_set_option(id, 9, 9, &tos, sizeof(tos)), ENOSYS);
	CHECK(rdma_destroy_id(id) == 0 && rdma_destroy_id(other) == 0);
	rdma_destroy_event_channel(channel);
}

/* The last of all: not every library survives it. */
static void null_pointers(void)
{
	struct rdma_cm_id *id;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	FAILS(rdma_ack_cm_event(NULL), EINVAL);
	FAILS(rdma_bind_addr(id, NULL), EINVAL);
	FAILS(rdma_migrate_id(NULL, channel), EINVAL);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

static void in_child(struct rdma_event_channel *inherited, struct rdma_cm_id *id)
{
	alarm(20);
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(inherited, &event) == -1);
	CHECK(rdma_listen(id, 0) == -1);
	with_waiting();
	_exit(0);
}

static void forking(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	struct sockaddr_in here = at(own_address(), 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&here) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		in_child(channel, id);
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(rdma_listen(id, 0) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	int count;
	struct ibv_context **devices = rdma_get_devices(&count);
	CHECK(devices != NULL && count == 2 && devices[2] == NULL);
	rdma_free_devices(devices);
	with_events();
	destroying_waits();
	with_waiting();
	refusals();
	forking();
	null_pointers();
	return finish();
}
