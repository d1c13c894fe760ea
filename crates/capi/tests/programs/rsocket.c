/* Sockets over RDMA: streams and datagrams, both directions, all ends. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <sys/mman.h>
#include "check.h"

#define LONG (3 * 1000 * 1000)

/* A case has a process of its own, and so these are its own. */
static int listener, client, accepted;

static struct sockaddr_in here(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	CHECK(inet_pton(AF_INET, own_address(), &address.sin_addr) == 1);
	return address;
}

static int port_of(int socket)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);
	CHECK(rgetsockname(socket, (struct sockaddr *)&address, &length) == 0);
	CHECK(length == sizeof(address));
	return ntohs(address.sin_port);
}

static int connect_to(int socket, int port)
{
	struct sockaddr_in address = here(port);
	return rconnect(socket, (struct sockaddr *)&address, sizeof(address));
}

static int bound_socket(int type)
{
	struct sockaddr_in address = here(0);
	int socket = rsocket(AF_INET, type, 0);
	CHECK(socket >= 0);
	CHECK(rbind(socket, (struct sockaddr *)&address, sizeof(address)) == 0);
	return socket;
}

static void open_sockets(void)
{
	listener = bound_socket(SOCK_STREAM);
	client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(client >= 0 && client != listener);
}

static void *accept_guest(void *unused)
{
	accepted = raccept(listener, NULL, NULL);
	CHECK(accepted >= 0);
	return unused;
}

static void connect_sockets(void)
{
	pthread_t server;
	CHECK(rlisten(listener, 4) == 0);
	CHECK(pthread_create(&server, NULL, accept_guest, NULL) == 0);
	CHECK(connect_to(client, port_of(listener)) == 0);
	CHECK(pthread_join(server, NULL) == 0);
}

static void open_stream(void)
{
	open_sockets();
	connect_sockets();
}

static void set_on_both(int level, int option, int value)
{
	CHECK(rsetsockopt(listener, level, option, &value, sizeof(value)) == 0);
	CHECK(rsetsockopt(client, level, option, &value, sizeof(value)) == 0);
}

static void open_small_stream(void)
{
	open_sockets();
	set_on_both(SOL_SOCKET, SO_RCVBUF, 8192);
	set_on_both(SOL_SOCKET, SO_SNDBUF, 8192);
	set_on_both(SOL_RDMA, RDMA_RQSIZE, 16);
	set_on_both(SOL_RDMA, RDMA_SQSIZE, 16);
	connect_sockets();
}

static void close_stream(void)
{
	CHECK(rclose(client) == 0 && rclose(accepted) == 0 && rclose(listener) == 0);
}

static unsigned char byte_at(size_t place)
{
	return place * 7 + place / 251;
}

/* Everything, until the peer has nothing more to say. */
static void *echo(void *unused)
{
	static char data[10000];
	ssize_t length;
	while ((length = rrecv(accepted, data, sizeof(data), 0)) > 0)
		CHECK(rsend(accepted, data, length, 0) == length);
	CHECK(length == 0);
	CHECK(rshutdown(accepted, SHUT_WR) == 0);
	return unused;
}

static void *send_long(void *unused)
{
	unsigned char *data = malloc(LONG);
	for (size_t i = 0; i < LONG; i++)
		data[i] = byte_at(i);
	CHECK(rsend(client, data, LONG, 0) == LONG);
	free(data);
	CHECK(rshutdown(client, SHUT_WR) == 0);
	return unused;
}

/* By turns: no more is under way than fits into any buffer. */
static void a_stream_echoes_what_was_sent(void)
{
	static unsigned char out[4000], back[4000];
	pthread_t server;
	CHECK(pthread_create(&server, NULL, echo, NULL) == 0);
	for (size_t turn = 0; turn < 40; turn++) {
		for (size_t i = 0; i < sizeof(out); i++)
			out[i] = byte_at(turn * sizeof(out) + i);
		CHECK(rsend(client, out, sizeof(out), 0) == sizeof(out));
		CHECK(rrecv(client, back, sizeof(back), MSG_WAITALL) == sizeof(back));
		CHECK(memcmp(back, out, sizeof(out)) == 0);
	}
	CHECK(rshutdown(client, SHUT_WR) == 0);
	CHECK(rrecv(client, back, 1, 0) == 0);
	CHECK(pthread_join(server, NULL) == 0);
}

static void a_stream_with_small_buffers_echoes(void)
{
	a_stream_echoes_what_was_sent();
}

/* One thread sends and shuts down while another receives. */
static void a_long_stream_echoes(void)
{
	leave_out_with_others();
	pthread_t server, sender;
	CHECK(pthread_create(&server, NULL, echo, NULL) == 0);
	CHECK(pthread_create(&sender, NULL, send_long, NULL) == 0);
	unsigned char *back = malloc(LONG), nothing;
	CHECK(rrecv(client, back, LONG, MSG_WAITALL) == LONG);
	for (size_t i = 0; i < LONG; i++)
		CHECK(back[i] == byte_at(i));
	free(back);
	CHECK(rrecv(client, &nothing, 1, 0) == 0);
	CHECK(pthread_join(sender, NULL) == 0 && pthread_join(server, NULL) == 0);
}

static void a_long_stream_with_small_buffers_echoes(void)
{
	a_long_stream_echoes();
}

static void getpeername_returns_the_peer(void)
{
	struct sockaddr_in peer;
	socklen_t length = sizeof(peer);
	CHECK(rgetpeername(client, (struct sockaddr *)&peer, &length) == 0);
	SAME(ntohs(peer.sin_port), port_of(listener));
	CHECK(rgetpeername(accepted, (struct sockaddr *)&peer, &length) == 0);
	SAME(ntohs(peer.sin_port), port_of(client));
}

static void without_data_a_receive_would_block(void)
{
	char nothing;
	FAILS(rrecv(client, &nothing, 1, MSG_DONTWAIT), EAGAIN);
}

static void peeking_leaves_the_data(void)
{
	char got = 0;
	CHECK(rsend(client, "x", 1, 0) == 1);
	CHECK(rrecv(accepted, &got, 1, MSG_PEEK) == 1 && got == 'x');
	CHECK(rrecv(accepted, &got, 1, 0) == 1 && got == 'x');
}

static void writev_sends_one_stream(void)
{
	struct iovec parts[2] = { { "two", 3 }, { "parts", 6 } };
	char got[9];
	CHECK(rwritev(client, parts, 2) == 9);
	CHECK(rrecv(accepted, got, 9, MSG_WAITALL) == 9);
	CHECK(memcmp(got, "twoparts", 9) == 0);
}

static void readv_fills_all_parts(void)
{
	char first[3], second[6];
	struct iovec parts[2] = { { first, 3 }, { second, 6 } };
	CHECK(rsend(client, "twoparts", 9, 0) == 9);
	CHECK(rreadv(accepted, parts, 2) == 9);
	CHECK(memcmp(first, "two", 3) == 0 && memcmp(second, "parts", 6) == 0);
}

static void *send_in_two(void *unused)
{
	CHECK(rsend(client, "two", 3, 0) == 3);
	usleep(50000);
	CHECK(rsend(client, "parts", 6, 0) == 6);
	return unused;
}

static void several_buffers_are_one_message(void)
{
	leave_out_with_others();
	char first[3], second[6];
	struct iovec parts[2] = { { first, 3 }, { second, 6 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	pthread_t sender;
	CHECK(pthread_create(&sender, NULL, send_in_two, NULL) == 0);
	CHECK(rrecvmsg(accepted, &message, MSG_WAITALL) == 9);
	CHECK(memcmp(first, "two", 3) == 0 && memcmp(second, "parts", 6) == 0);
	CHECK(pthread_join(sender, NULL) == 0);
	CHECK(rsend(client, "twoPARTS", 9, 0) == 9);
	CHECK(rrecvmsg(accepted, &message, MSG_PEEK) == 9);
	CHECK(memcmp(first, "two", 3) == 0 && memcmp(second, "PARTS", 6) == 0);
}

static void after_shutdown_a_socket_still_receives(void)
{
	char got = 0;
	CHECK(rshutdown(client, SHUT_WR) == 0);
	CHECK(rrecv(accepted, &got, 1, 0) == 0);
	CHECK(rsend(accepted, "y", 1, 0) == 1);
	CHECK(rrecv(client, &got, 1, 0) == 1 && got == 'y');
}

static void after_shutdown_a_send_fails(void)
{
	CHECK(rshutdown(client, SHUT_WR) == 0);
	CHECK(rsend(client, "more", 4, 0) == -1);
}

static void shutting_down_one_direction_after_the_other_ends_the_connection(void)
{
	struct pollfd end = { .fd = accepted };
	CHECK(rshutdown(client, SHUT_WR) == 0);
	CHECK(rshutdown(client, SHUT_RD) == 0);
	CHECK(rpoll(&end, 1, EVENT_TIMEOUT) == 1);
	SAME(end.revents, POLLHUP);
}

static void a_closed_socket_is_ebadf(void)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(rclose(socket) == 0);
	FAILS(rclose(socket), EBADF);
}

/* A device must have the address to reject. */
static void connecting_without_a_listener_fails(void)
{
	int beside = bound_socket(SOCK_STREAM), asking = rsocket(AF_INET, SOCK_STREAM, 0);
	FAILS(connect_to(asking, 7999), ECONNREFUSED);
	struct pollfd failed = { .fd = asking, .events = POLLIN | POLLOUT };
	CHECK(rpoll(&failed, 1, 0) == 1);
	SAME(failed.revents & (POLLIN | POLLOUT | POLLERR), POLLIN | POLLOUT | POLLERR);
	FAILS(connect_to(asking, 7999), ENOTCONN);
	CHECK(rclose(asking) == 0 && rclose(beside) == 0);
}

static void an_unbound_socket_has_an_address_of_its_family(void)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	int socket = rsocket(AF_INET6, SOCK_STREAM, 0);
	CHECK(rgetsockname(socket, (struct sockaddr *)&address, &length) == 0);
	SAME(address.ss_family, AF_INET6);
	SAME(length, sizeof(struct sockaddr_in6));
	CHECK(rclose(socket) == 0);
}

static void an_address_of_another_host_is_not_bound(void)
{
	struct sockaddr_in address = here(0);
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(inet_pton(AF_INET, "192.0.2.77", &address.sin_addr) == 1);
	FAILS(rbind(socket, (struct sockaddr *)&address, sizeof(address)), EADDRNOTAVAIL);
	CHECK(rclose(socket) == 0);
}

static void options_can_be_read_back(void)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0), value = 1;
	socklen_t length = sizeof(value);
	CHECK(rsetsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &value, length) == 0);
	value = 0;
	CHECK(rgetsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &value, &length) == 0);
	SAME(value, 1);
	CHECK(rfcntl(socket, F_SETFL, O_NONBLOCK) == 0);
	SAME(rfcntl(socket, F_GETFL), O_NONBLOCK);
	CHECK(rclose(socket) == 0);
}

static void a_buffer_has_twice_the_size_that_is_set(void)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0), value = 8192;
	socklen_t length = sizeof(value);
	CHECK(rsetsockopt(socket, SOL_SOCKET, SO_RCVBUF, &value, length) == 0);
	CHECK(rgetsockopt(socket, SOL_SOCKET, SO_RCVBUF, &value, &length) == 0);
	SAME(value, 16384);
	CHECK(rclose(socket) == 0);
}

static void lingering_is_read_back_as_a_structure(void)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);
	struct linger linger = { .l_onoff = 0, .l_linger = 7 };
	socklen_t length = sizeof(linger);
	CHECK(rgetsockopt(socket, SOL_SOCKET, SO_LINGER, &linger, &length) == 0);
	SAME(length, sizeof(linger));
	CHECK(linger.l_onoff == 1 && linger.l_linger == 0);
	CHECK(rclose(socket) == 0);
}

static void queues_of_a_connection_keep_their_sizes(void)
{
	int value = 16;
	FAILS(rsetsockopt(client, SOL_RDMA, RDMA_SQSIZE, &value, sizeof(value)), EINVAL);
}

static void an_idle_time_is_positive(void)
{
	int value = 0;
	FAILS(rsetsockopt(client, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof(value)), EINVAL);
}

static void datagram_sockets_can_share_a_port(void)
{
	int sockets[2], on = 1;
	struct sockaddr_in address = here(0);
	for (int i = 0; i < 2; i++) {
		sockets[i] = rsocket(AF_INET, SOCK_DGRAM, 0);
		CHECK(rsetsockopt(sockets[i], SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
		CHECK(rbind(sockets[i], (struct sockaddr *)&address, sizeof(address)) == 0);
		address = here(port_of(sockets[i]));
	}
	CHECK(rclose(sockets[0]) == 0 && rclose(sockets[1]) == 0);
}

static void accept_without_a_client_would_block(void)
{
	int socket = bound_socket(SOCK_STREAM);
	CHECK(rlisten(socket, 4) == 0);
	CHECK(rfcntl(socket, F_SETFL, O_NONBLOCK) == 0);
	FAILS(raccept(socket, NULL, NULL), EAGAIN);
	CHECK(rclose(socket) == 0);
}

static void connect_can_be_non_blocking(void)
{
	open_sockets();
	CHECK(rfcntl(listener, F_SETFL, O_NONBLOCK) == 0);
	CHECK(rfcntl(client, F_SETFL, O_NONBLOCK) == 0);
	CHECK(rlisten(listener, 4) == 0);
	FAILS(connect_to(client, port_of(listener)), EINPROGRESS);
	int writable = 0;
	for (accepted = -1; accepted < 0 || !writable;) {
		struct pollfd both[2] = { { .fd = listener, .events = POLLIN },
					  { .fd = client, .events = POLLOUT } };
		CHECK(rpoll(both, 2, EVENT_TIMEOUT) > 0);
		if (both[0].revents & POLLIN)
			accepted = raccept(listener, NULL, NULL);
		writable = both[1].revents & POLLOUT;
	}
	int error = -1;
	socklen_t length = sizeof(error);
	CHECK(rgetsockopt(client, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0);
	CHECK(connect_to(client, port_of(listener)) == 0);
	close_stream();
}

static void select_reports_data(void)
{
	fd_set readable;
	FD_ZERO(&readable);
	FD_SET(accepted, &readable);
	CHECK(rwrite(client, "x", 1) == 1);
	CHECK(rselect(accepted + 1, &readable, NULL, NULL, NULL) == 1 && FD_ISSET(accepted, &readable));
	char got;
	CHECK(rread(accepted, &got, 1) == 1 && got == 'x');
}

static void poll_reports_the_end_of_a_stream(void)
{
	struct pollfd quiet = { .fd = accepted, .events = POLLIN };
	CHECK(rpoll(&quiet, 1, 20) == 0);
	CHECK(rshutdown(client, SHUT_RDWR) == 0);
	CHECK(rpoll(&quiet, 1, EVENT_TIMEOUT) == 1);
	char got;
	CHECK(rread(accepted, &got, 1) == 0);
}

/* Memory that a peer may write. */
static char mapped[4096];

static void open_with_maps(void)
{
	open_sockets();
	set_on_both(SOL_RDMA, RDMA_IOMAPSIZE, 4);
	connect_sockets();
}

/* The peer must learn of the mapping before it can write there. */
static void map_at_guest(char *memory)
{
	char known;
	CHECK(riomap(accepted, memory, sizeof(mapped), PROT_WRITE, 0, 100) == 100);
	CHECK(rsend(accepted, "m", 1, 0) == 1);
	CHECK(rrecv(client, &known, 1, 0) == 1);
}

static void a_peer_writes_into_mapped_memory(void)
{
	char done;
	map_at_guest(mapped);
	CHECK(riowrite(client, "directly", 9, 110, 0) == 9);
	CHECK(rsend(client, "d", 1, 0) == 1);
	CHECK(rrecv(accepted, &done, 1, 0) == 1);
	CHECK(memcmp(mapped + 10, "directly", 9) == 0);
	CHECK(riounmap(accepted, mapped, sizeof(mapped)) == 0);
}

static void a_write_outside_of_a_mapping_fails(void)
{
	map_at_guest(mapped);
	SAME(riowrite(client, "nowhere", 8, 99999, 0), 0);
	CHECK(riounmap(accepted, mapped, sizeof(mapped)) == 0);
}

static int error_of(int socket)
{
	int error = -1;
	socklen_t length = sizeof(error);
	CHECK(rgetsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
	return error;
}

/* A write into memory that is gone breaks it. Other devices would keep the memory. */
static void the_error_of_a_broken_stream_is_read_once(void)
{
	leave_out_with_others();
	struct pollfd broken = { .fd = client };
	char *memory = mmap(NULL, sizeof(mapped), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	map_at_guest(memory);
	CHECK(munmap(memory, sizeof(mapped)) == 0);
	CHECK(riowrite(client, "too late", 8, 100, 0) == 8);
	CHECK(rpoll(&broken, 1, EVENT_TIMEOUT) == 1);
	SAME(error_of(client), EIO);
	SAME(error_of(client), 0);
	CHECK(rpoll(&broken, 1, 0) == 1);
	CHECK(broken.revents & POLLERR);
	FAILS(rsend(client, "more", 4, 0), EIO);
}

static void open_datagrams(void)
{
	accepted = bound_socket(SOCK_DGRAM);
	client = bound_socket(SOCK_DGRAM);
	CHECK(connect_to(client, port_of(accepted)) == 0);
}

static void close_datagrams(void)
{
	CHECK(rclose(client) == 0 && rclose(accepted) == 0);
}

static void datagrams_are_echoed(void)
{
	for (int i = 0; i < 20; i++) {
		char out[64], in[64];
		int length = snprintf(out, sizeof(out), "datagram %d", i);
		CHECK(rsend(client, out, length, 0) == length);
		struct sockaddr_in from;
		socklen_t size = sizeof(from);
		CHECK(rrecvfrom(accepted, in, sizeof(in), 0, (struct sockaddr *)&from, &size) == length);
		CHECK(memcmp(in, out, length) == 0);
		CHECK(ntohs(from.sin_port) == port_of(client));
		CHECK(rsendto(accepted, in, length, 0, (struct sockaddr *)&from, size) == length);
		CHECK(rrecv(client, in, sizeof(in), 0) == length);
	}
}

static void without_datagrams_a_receive_would_block(void)
{
	int socket = bound_socket(SOCK_DGRAM);
	char nothing;
	FAILS(rrecv(socket, &nothing, 1, MSG_DONTWAIT), EAGAIN);
	CHECK(rclose(socket) == 0);
}

/* It comes over UDP, with a longer header. */
static void the_first_datagram_may_be_as_long_as_the_next(void)
{
	leave_out_with_others();
	static unsigned char out[2040], in[4096];
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = byte_at(i);
	for (int i = 0; i < 2; i++) {
		CHECK(rsend(client, out, sizeof(out), 0) == sizeof(out));
		memset(in, 0, sizeof(in));
		CHECK(rrecv(accepted, in, sizeof(in), 0) == sizeof(out));
		CHECK(memcmp(in, out, sizeof(out)) == 0);
	}
}

static void a_datagram_that_is_too_long_fails(void)
{
	static char data[4096];
	FAILS(rsend(client, data, sizeof(data), 0), EMSGSIZE);
}

#define WITH_STREAM(function) { #function, function, open_stream, close_stream }
#define WITH_SMALL_STREAM(function) { #function, function, open_small_stream, close_stream }
#define WITH_MAPS(function) { #function, function, open_with_maps, close_stream }
#define WITH_DATAGRAMS(function) { #function, function, open_datagrams, close_datagrams }

static const struct test_case CASES[] = {
	WITH_STREAM(a_stream_echoes_what_was_sent),
	WITH_SMALL_STREAM(a_stream_with_small_buffers_echoes),
	WITH_STREAM(a_long_stream_echoes),
	WITH_SMALL_STREAM(a_long_stream_with_small_buffers_echoes),
	WITH_STREAM(getpeername_returns_the_peer),
	WITH_STREAM(without_data_a_receive_would_block),
	WITH_STREAM(peeking_leaves_the_data),
	WITH_STREAM(writev_sends_one_stream),
	WITH_STREAM(readv_fills_all_parts),
	WITH_STREAM(several_buffers_are_one_message),
	WITH_STREAM(after_shutdown_a_socket_still_receives),
	WITH_STREAM(after_shutdown_a_send_fails),
	WITH_STREAM(shutting_down_one_direction_after_the_other_ends_the_connection),
	CASE(a_closed_socket_is_ebadf),
	CASE(connecting_without_a_listener_fails),
	CASE(an_unbound_socket_has_an_address_of_its_family),
	CASE(an_address_of_another_host_is_not_bound),
	CASE(options_can_be_read_back),
	CASE(a_buffer_has_twice_the_size_that_is_set),
	CASE(lingering_is_read_back_as_a_structure),
	WITH_STREAM(queues_of_a_connection_keep_their_sizes),
	WITH_STREAM(an_idle_time_is_positive),
	CASE(datagram_sockets_can_share_a_port),
	CASE(accept_without_a_client_would_block),
	CASE(connect_can_be_non_blocking),
	WITH_STREAM(select_reports_data),
	WITH_STREAM(poll_reports_the_end_of_a_stream),
	WITH_MAPS(a_peer_writes_into_mapped_memory),
	WITH_MAPS(a_write_outside_of_a_mapping_fails),
	WITH_MAPS(the_error_of_a_broken_stream_is_read_once),
	WITH_DATAGRAMS(datagrams_are_echoed),
	CASE(without_datagrams_a_receive_would_block),
	WITH_DATAGRAMS(the_first_datagram_may_be_as_long_as_the_next),
	WITH_DATAGRAMS(a_datagram_that_is_too_long_fails),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
