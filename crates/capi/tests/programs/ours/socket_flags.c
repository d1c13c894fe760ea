/* Flags and options of sockets over RDMA that applications use, and that recent releases of rdma-core have. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>
#include "../check.h"

static int of_type(int type)
{
	int socket = rsocket(AF_INET, type, 0);
	CHECK(socket >= 0);
	return socket;
}

static int option(int socket, int level, int name)
{
	int value = -1;
	socklen_t length = sizeof(value);
	CHECK(rgetsockopt(socket, level, name, &value, &length) == 0);
	return value;
}

static void the_type_may_contain_flags(void)
{
	const int types[] = { SOCK_STREAM, SOCK_DGRAM };
	for (int i = 0; i < 2; i++) {
		int socket = of_type(types[i] | SOCK_CLOEXEC | SOCK_NONBLOCK);
		SAME(rfcntl(socket, F_GETFD), FD_CLOEXEC);
		SAME(rfcntl(socket, F_GETFL), O_NONBLOCK);
		SAME(option(socket, SOL_SOCKET, SO_TYPE), types[i]);
		CHECK(rclose(socket) == 0);
	}
	FAILS(rsocket(AF_INET, SOCK_STREAM | 0x100000, 0), ENOTSUP);
}

static void a_nonblocking_type_does_not_block(void)
{
	int socket = of_type(SOCK_STREAM | SOCK_NONBLOCK);
	struct sockaddr_in address = { .sin_family = AF_INET };
	CHECK(inet_pton(AF_INET, own_address(), &address.sin_addr) == 1);
	CHECK(rbind(socket, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(rlisten(socket, 4) == 0);
	FAILS(raccept(socket, NULL, NULL), EAGAIN);
	CHECK(rclose(socket) == 0);
	char nothing;
	socket = of_type(SOCK_DGRAM | SOCK_NONBLOCK);
	FAILS(rrecv(socket, &nothing, 1, 0), EAGAIN);
	CHECK(rclose(socket) == 0);
}

static void descriptor_flags_can_be_set(void)
{
	int socket = of_type(SOCK_STREAM);
	SAME(rfcntl(socket, F_GETFD), 0);
	SAME(rfcntl(socket, F_SETFD, FD_CLOEXEC), 0);
	SAME(rfcntl(socket, F_GETFD), FD_CLOEXEC);
	SAME(rfcntl(socket, F_GETFL), 0);
	FAILS(rfcntl(socket, F_GETOWN), ENOTSUP);
	CHECK(rclose(socket) == 0);
	FAILS(rfcntl(socket, F_GETFD), EBADF);
}

static void a_socket_knows_what_it_is(void)
{
	int stream = of_type(SOCK_STREAM), datagram = of_type(SOCK_DGRAM);
	SAME(option(stream, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
	SAME(option(datagram, SOL_SOCKET, SO_PROTOCOL), IPPROTO_UDP);
	SAME(option(stream, SOL_SOCKET, SO_ACCEPTCONN), 0);
	SAME(option(datagram, SOL_SOCKET, SO_ACCEPTCONN), 0);
	struct sockaddr_in address = { .sin_family = AF_INET };
	CHECK(inet_pton(AF_INET, own_address(), &address.sin_addr) == 1);
	CHECK(rbind(stream, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(rlisten(stream, 4) == 0);
	SAME(option(stream, SOL_SOCKET, SO_ACCEPTCONN), 1);
	CHECK(rclose(stream) == 0 && rclose(datagram) == 0);
}

static void a_type_of_service_is_a_number_or_a_byte(void)
{
	int socket = of_type(SOCK_STREAM), number = 16;
	uint8_t byte = 32;
	CHECK(rsetsockopt(socket, IPPROTO_IP, IP_TOS, &number, sizeof(number)) == 0);
	SAME(option(socket, IPPROTO_IP, IP_TOS), 16);
	CHECK(rsetsockopt(socket, IPPROTO_IP, IP_TOS, &byte, sizeof(byte)) == 0);
	SAME(option(socket, IPPROTO_IP, IP_TOS), 32);
	CHECK(rclose(socket) == 0);
}

static void reuse_can_be_set_at_any_time(void)
{
	int socket = of_type(SOCK_STREAM);
	struct sockaddr_in address = { .sin_family = AF_INET };
	CHECK(inet_pton(AF_INET, own_address(), &address.sin_addr) == 1);
	CHECK(rbind(socket, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(rlisten(socket, 4) == 0);
	for (int on = 0; on < 2; on++)
		CHECK(rsetsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
	CHECK(rclose(socket) == 0);
}

static void an_unknown_direction_is_not_shut_down(void)
{
	int socket = of_type(SOCK_STREAM);
	FAILS(rshutdown(socket, 3), EINVAL);
	FAILS(rshutdown(socket, SHUT_WR), ENOTCONN);
	CHECK(rclose(socket) == 0);
}

static void a_datagram_option_has_its_whole_length(void)
{
	int socket = of_type(SOCK_DGRAM);
	struct timeval time = { .tv_sec = 3, .tv_usec = 500000 };
	socklen_t length = sizeof(time);
	CHECK(rsetsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, length) == 0);
	memset(&time, 0, sizeof(time));
	CHECK(rgetsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, &length) == 0);
	SAME(length, sizeof(time));
	CHECK(time.tv_sec == 3 && time.tv_usec == 500000);
	CHECK(rclose(socket) == 0);
}

static void a_congestion_algorithm_changes_nothing(void)
{
	int socket = of_type(SOCK_STREAM);
	CHECK(rsetsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) == 0);
	CHECK(rclose(socket) == 0);
}

static const struct test_case CASES[] = {
	CASE(the_type_may_contain_flags),
	CASE(a_nonblocking_type_does_not_block),
	CASE(descriptor_flags_can_be_set),
	CASE(a_socket_knows_what_it_is),
	CASE(a_type_of_service_is_a_number_or_a_byte),
	CASE(reuse_can_be_set_at_any_time),
	CASE(an_unknown_direction_is_not_shut_down),
	CASE(a_datagram_option_has_its_whole_length),
	CASE(a_congestion_algorithm_changes_nothing),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
