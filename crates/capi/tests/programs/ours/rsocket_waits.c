/* Threads that wait for sockets over RDMA, for ordinary descriptors, and for what other threads do. */
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include "../check.h"

int repoll_create(int flags);
int repoll_ctl(int set, int operation, int member, struct epoll_event *event);
int repoll_wait(int set, struct epoll_event *events, int count, int timeout);

/* Where a wait in a hundred is not woken, and ends after a second, this many take longer than a case may. */
#define ROUNDS 2000

static int listener, client, accepted;
static atomic_int is_over;

static void *accept_one(void *unused)
{
	accepted = raccept(listener, NULL, NULL);
	CHECK(accepted >= 0);
	return unused;
}

static void open_stream(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	pthread_t server;
	CHECK(inet_pton(AF_INET, own_address(), &address.sin_addr) == 1);
	listener = rsocket(AF_INET, SOCK_STREAM, 0);
	client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(rbind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(rlisten(listener, 1) == 0);
	CHECK(rgetsockname(listener, (struct sockaddr *)&address, &length) == 0);
	CHECK(pthread_create(&server, NULL, accept_one, NULL) == 0);
	CHECK(rconnect(client, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(pthread_join(server, NULL) == 0);
}

static void close_stream(void)
{
	CHECK(rclose(client) == 0 && rclose(accepted) == 0 && rclose(listener) == 0);
}

/* Until the peer shuts down. */
static void *echo(void *unused)
{
	char data[64];
	ssize_t length;
	while ((length = rrecv(accepted, data, sizeof(data), 0)) > 0)
		CHECK(rsend(accepted, data, length, 0) == length);
	CHECK(length == 0);
	return unused;
}

static void *look_and_poll(void *unused)
{
	while (!is_over) {
		struct pollfd readable = { .fd = client, .events = POLLIN };
		CHECK(rpoll(&readable, 1, 5) >= 0);
	}
	return unused;
}

static void *look_and_peek(void *unused)
{
	char first;
	while (!is_over) {
		CHECK(rrecv(client, &first, 1, MSG_DONTWAIT | MSG_PEEK) != 0);
		usleep(20);
	}
	return unused;
}

static void call_the_echo(int rounds)
{
	for (int round = 0; round < rounds; round++) {
		char out = round, back = 0;
		CHECK(rsend(client, &out, 1, 0) == 1);
		CHECK(rrecv(client, &back, 1, 0) == 1 && back == out);
	}
}

/* A thread that looks takes the completion of a message for which another one is about to sleep. */
static void threads_that_look_at_a_socket_leave_its_messages_to_the_one_that_waits(void)
{
	pthread_t server, poller, peeker;
	CHECK(pthread_create(&server, NULL, echo, NULL) == 0);
	CHECK(pthread_create(&poller, NULL, look_and_poll, NULL) == 0);
	CHECK(pthread_create(&peeker, NULL, look_and_peek, NULL) == 0);
	call_the_echo(5 * ROUNDS);
	is_over = 1;
	CHECK(pthread_join(poller, NULL) == 0 && pthread_join(peeker, NULL) == 0);
	CHECK(rshutdown(client, SHUT_WR) == 0);
	CHECK(pthread_join(server, NULL) == 0);
}

static void *receive_nothing(void *unused)
{
	char nothing;
	CHECK(rrecv(accepted, &nothing, 1, 0) == 0);
	return unused;
}

static void a_receive_ends_when_another_thread_shuts_the_socket_down(void)
{
	pthread_t receiver;
	CHECK(pthread_create(&receiver, NULL, receive_nothing, NULL) == 0);
	usleep(2000);
	CHECK(rshutdown(accepted, SHUT_RD) == 0);
	CHECK(pthread_join(receiver, NULL) == 0);
}

static int ordinary;

static void *write_after_messages(void *unused)
{
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t one = 1;
		char byte;
		CHECK(rrecv(accepted, &byte, 1, 0) == 1);
		if (byte % 2)
			CHECK(write(ordinary, &one, sizeof(one)) == sizeof(one));
		else
			CHECK(rsend(accepted, &byte, 1, 0) == 1);
	}
	return unused;
}

/* More descriptors than the device watches at once, one of which is ready in turn with the socket. */
static void rpoll_waits_for_sockets_and_ordinary_descriptors(void)
{
	enum { COUNT = 100 };
	struct pollfd all[COUNT + 2];
	pthread_t server;
	ordinary = eventfd(0, 0);
	for (int i = 0; i < COUNT; i++)
		all[i] = (struct pollfd){ .fd = i % 2 ? -1 : listener, .events = POLLIN };
	all[COUNT] = (struct pollfd){ .fd = client, .events = POLLIN };
	all[COUNT + 1] = (struct pollfd){ .fd = ordinary, .events = POLLIN };
	CHECK(pthread_create(&server, NULL, write_after_messages, NULL) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t value;
		char byte = round % 2;
		CHECK(rsend(client, &byte, 1, 0) == 1);
		CHECK(rpoll(all, COUNT + 2, EVENT_TIMEOUT) == 1);
		SAME(all[COUNT + byte].revents, POLLIN);
		if (byte)
			CHECK(read(ordinary, &value, sizeof(value)) == sizeof(value));
		else
			CHECK(rrecv(client, &byte, 1, 0) == 1);
	}
	CHECK(pthread_join(server, NULL) == 0);
	all[COUNT + 1].fd = MAX_DESCRIPTORS;
	CHECK(rpoll(all, COUNT + 2, EVENT_TIMEOUT) == 1);
	SAME(all[COUNT + 1].revents, POLLNVAL);
	CHECK(close(ordinary) == 0);
}

static int set;

static void *wait_for_event(void *unused)
{
	struct epoll_event event;
	CHECK(repoll_wait(set, &event, 1, EVENT_TIMEOUT) == 1);
	CHECK(event.data.fd == client);
	return unused;
}

/* One socket without a connection is waited for without a device. */
static void a_socket_that_is_added_wakes_the_thread_that_waits(void)
{
	for (int has_other = 0; has_other < 2; has_other++) {
		struct epoll_event event = { .events = EPOLLIN, .data.fd = accepted };
		pthread_t waiting;
		set = repoll_create(0);
		if (has_other)
			CHECK(repoll_ctl(set, EPOLL_CTL_ADD, accepted, &event) == 0);
		CHECK(pthread_create(&waiting, NULL, wait_for_event, NULL) == 0);
		usleep(2000);
		event = (struct epoll_event){ .events = EPOLLOUT, .data.fd = client };
		CHECK(repoll_ctl(set, EPOLL_CTL_ADD, client, &event) == 0);
		CHECK(pthread_join(waiting, NULL) == 0);
		CHECK(rclose(set) == 0);
	}
}

/* Each side of an event loop only waits for its own messages. */
static void *echo_in_a_loop(void *unused)
{
	int own = repoll_create(0);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.fd = accepted };
	CHECK(repoll_ctl(own, EPOLL_CTL_ADD, accepted, &event) == 0);
	CHECK(rfcntl(accepted, F_SETFL, O_NONBLOCK) == 0);
	for (ssize_t length = 1; length != 0;) {
		char data[64];
		CHECK(repoll_wait(own, &event, 1, EVENT_TIMEOUT) == 1);
		while ((length = rrecv(accepted, data, sizeof(data), 0)) > 0)
			CHECK(rsend(accepted, data, length, 0) == length);
		CHECK(length == 0 || errno == EAGAIN);
	}
	CHECK(rclose(own) == 0);
	return unused;
}

static void an_event_loop_echoes(void)
{
	pthread_t server;
	CHECK(pthread_create(&server, NULL, echo_in_a_loop, NULL) == 0);
	call_the_echo(ROUNDS);
	CHECK(rshutdown(client, SHUT_WR) == 0);
	CHECK(pthread_join(server, NULL) == 0);
}

#define WITH_STREAM(function) { #function, function, open_stream, close_stream }

static const struct test_case CASES[] = {
	WITH_STREAM(threads_that_look_at_a_socket_leave_its_messages_to_the_one_that_waits),
	WITH_STREAM(a_receive_ends_when_another_thread_shuts_the_socket_down),
	WITH_STREAM(rpoll_waits_for_sockets_and_ordinary_descriptors),
	WITH_STREAM(a_socket_that_is_added_wakes_the_thread_that_waits),
	WITH_STREAM(an_event_loop_echoes),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
