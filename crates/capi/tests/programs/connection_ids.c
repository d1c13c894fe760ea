/* Ids before they are connected: devices, addresses, options, and what is rejected. */
#include <netdb.h>
#include <pthread.h>
#include "connection.h"

static void the_list_has_two_devices_and_an_end(void)
{
	int count;
	struct ibv_context **devices = rdma_get_devices(&count);
	CHECK(devices != NULL && count == 2 && devices[2] == NULL);
	rdma_free_devices(devices);
}

static void every_constant_has_a_name(void)
{
	for (int i = 0; i <= RDMA_CM_EVENT_TIMEWAIT_EXIT; i++)
		tell("  event %d: %s\n", i, rdma_event_str(i));
	tell("  event 999: %s\n", rdma_event_str(999));
}

static void a_channel_without_events_would_block(void)
{
	struct rdma_cm_event *event;
	set_nonblocking(channel->fd);
	FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
}

static void a_listener_gets_a_port(void)
{
	CHECK(rdma_get_src_port(listener) != 0);
}

static int is_loopback(const struct sockaddr_in *address)
{
	return ntohl(address->sin_addr.s_addr) >> 24 == 127;
}

/* A loopback address could be that of any device. */
static void a_listener_has_its_devices_context(void)
{
	struct sockaddr_in own = at(own_address(), 0);
	CHECK((listener->verbs == NULL) == is_loopback(&own));
}

static void an_unknown_port_space_is_rejected(void)
{
	struct rdma_cm_id *id;
	FAILS(rdma_create_id(channel, &id, NULL, 99), EINVAL);
}

static void a_route_needs_an_address(void)
{
	client = new_id(RDMA_PS_TCP);
	FAILS(rdma_resolve_route(client, 10), EINVAL);
}

static void only_a_connected_id_can_disconnect(void)
{
	client = new_id(RDMA_PS_TCP);
	FAILS(rdma_disconnect(client), EINVAL);
}

static void an_unknown_family_is_rejected(void)
{
	client = new_id(RDMA_PS_TCP);
	struct sockaddr strange = { .sa_family = 99 };
	FAILS(rdma_bind_addr(client, &strange), EINVAL);
}

static void only_ip_addresses_are_accepted(void)
{
	client = new_id(RDMA_PS_TCP);
	struct sockaddr_storage infiniband = { .ss_family = AF_IB };
	FAILS(rdma_bind_addr(client, (struct sockaddr *)&infiniband), EINVAL);
}

static void an_address_of_another_host_is_rejected(void)
{
	client = new_id(RDMA_PS_TCP);
	FAILS(bind_to(client, at("192.0.2.77", 0)), EADDRNOTAVAIL);
}

/* Programs pass the result to gai_strerror. */
static void a_failed_lookup_returns_the_code_of_getaddrinfo(void)
{
	struct rdma_addrinfo numeric = { .ai_flags = RAI_NUMERICHOST }, *found;
	SAME(rdma_getaddrinfo("not an address", "7171", &numeric, &found), EAI_NONAME);
	FAILS(rdma_getaddrinfo(NULL, NULL, NULL, &found), EINVAL);
}

static void an_id_is_bound_once(void)
{
	client = new_id(RDMA_PS_TCP);
	CHECK(bind_to(client, at(own_address(), 0)) == 0);
	FAILS(bind_to(client, at(own_address(), 0)), EINVAL);
}

static void a_port_can_be_bound_once(void)
{
	client = new_id(RDMA_PS_TCP);
	listener = new_id(RDMA_PS_TCP);
	CHECK(bind_to(client, at(own_address(), 7171)) == 0);
	FAILS(bind_to(listener, at(own_address(), 7171)), EADDRINUSE);
}

static int resolve_from(struct rdma_cm_id *id, struct sockaddr_in *source, struct sockaddr *peer)
{
	return rdma_resolve_addr(id, (struct sockaddr *)source, peer, 1000);
}

static void a_listener_does_not_connect(void)
{
	struct sockaddr_in peer = at(own_address(), 7000);
	listener = new_id(RDMA_PS_TCP);
	CHECK(bind_to(listener, at("0.0.0.0", 0)) == 0);
	CHECK(rdma_listen(listener, 4) == 0);
	FAILS(resolve_from(listener, NULL, (struct sockaddr *)&peer), EINVAL);
}

static void an_ipv4_id_does_not_connect_to_an_ipv6_address(void)
{
	struct sockaddr_in6 loopback = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr *peer = (struct sockaddr *)&loopback;
	struct sockaddr_in own = at(own_address(), 0);
	client = new_id(RDMA_PS_TCP);
	FAILS(resolve_from(client, &own, peer), EINVAL);
	listener = new_id(RDMA_PS_TCP);
	CHECK(bind_to(listener, at("0.0.0.0", 0)) == 0);
	FAILS(resolve_from(listener, NULL, peer), EINVAL);
}

static void a_type_of_service_can_be_set(void)
{
	uint8_t tos = 32;
	client = new_id(RDMA_PS_TCP);
	CHECK(rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)) == 0);
}

static void an_option_of_another_size_is_rejected(void)
{
	uint8_t tos[4] = { 32 };
	client = new_id(RDMA_PS_TCP);
	FAILS(rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, tos, 4), EINVAL);
}

static void an_unknown_option_is_rejected(void)
{
	uint8_t value = 0;
	client = new_id(RDMA_PS_TCP);
	FAILS(rdma_set_option(client, 9, 9, &value, sizeof(value)), ENOSYS);
}

/* A queue pair for datagrams gets no acknowledgements. */
static void an_acknowledge_timeout_is_for_reliable_connections(void)
{
	uint8_t timeout = 14;
	client = new_id(RDMA_PS_TCP);
	CHECK(rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1) == 0);
	listener = new_id(RDMA_PS_UDP);
	FAILS(rdma_set_option(listener, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1),
	      EINVAL);
}

static void no_event_to_acknowledge(void)
{
	FAILS(rdma_ack_cm_event(NULL), EINVAL);
}

static void no_address_to_bind_to(void)
{
	client = new_id(RDMA_PS_TCP);
	FAILS(rdma_bind_addr(client, NULL), EINVAL);
}

static void no_id_to_migrate(void)
{
	FAILS(rdma_migrate_id(NULL, channel), EINVAL);
}

static void *acknowledge_later(void *event)
{
	usleep(50000);
	CHECK(rdma_ack_cm_event(event) == 0);
	return NULL;
}

static void destroying_an_id_waits_for_acknowledgements(void)
{
	struct rdma_cm_id *id = new_id(RDMA_PS_UDP);
	struct sockaddr_in peer = at(own_address(), 7000);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, 1000) == 0);
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, acknowledge_later, event) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void *wait_for_ever(void *own)
{
	struct rdma_cm_event *event;
	rdma_get_cm_event(own, &event);
	return NULL;
}

/* cmtime ends like that. */
static void a_channel_can_be_destroyed_while_a_thread_waits(void)
{
	struct rdma_event_channel *own = rdma_create_event_channel();
	pthread_t thread;
	CHECK(own != NULL);
	CHECK(pthread_create(&thread, NULL, wait_for_ever, own) == 0);
	usleep(100000);
	rdma_destroy_event_channel(own);
	reuse_freed_memory();
	usleep(600000);
	CHECK(pthread_cancel(thread) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

static const struct test_case CASES[] = {
	CASE(the_list_has_two_devices_and_an_end),
	CASE(every_constant_has_a_name),
	WITH_CHANNEL(a_channel_without_events_would_block),
	WITH_LISTENER(a_listener_gets_a_port),
	WITH_LISTENER(a_listener_has_its_devices_context),
	WITH_CHANNEL(an_unknown_port_space_is_rejected),
	WITH_CHANNEL(a_route_needs_an_address),
	WITH_CHANNEL(only_a_connected_id_can_disconnect),
	WITH_CHANNEL(an_unknown_family_is_rejected),
	WITH_CHANNEL(only_ip_addresses_are_accepted),
	WITH_CHANNEL(an_address_of_another_host_is_rejected),
	CASE(a_failed_lookup_returns_the_code_of_getaddrinfo),
	WITH_CHANNEL(an_id_is_bound_once),
	WITH_CHANNEL(a_port_can_be_bound_once),
	WITH_CHANNEL(a_listener_does_not_connect),
	WITH_CHANNEL(an_ipv4_id_does_not_connect_to_an_ipv6_address),
	WITH_CHANNEL(a_type_of_service_can_be_set),
	WITH_CHANNEL(an_option_of_another_size_is_rejected),
	WITH_CHANNEL(an_unknown_option_is_rejected),
	WITH_CHANNEL(an_acknowledge_timeout_is_for_reliable_connections),
	CASE(no_event_to_acknowledge),
	WITH_CHANNEL(no_address_to_bind_to),
	WITH_CHANNEL(no_id_to_migrate),
	WITH_CHANNEL(destroying_an_id_waits_for_acknowledgements),
	CASE(a_channel_can_be_destroyed_while_a_thread_waits),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
