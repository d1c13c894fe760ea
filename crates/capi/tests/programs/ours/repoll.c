/* Epoll over sockets over RDMA: `repoll_*`, which came with release 65. */
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "../check.h"

int repoll_create(int flags);
int repoll_ctl(int set, int operation, int member, struct epoll_event *event);
int repoll_wait(int set, struct epoll_event *events, int count, int timeout);

/* As rdma-core's librspreload does it: every epoll of the process comes to the library, its own too if it
   asked the C library. */
int epoll_create1(int flags)
{
	return repoll_create(flags);
}

int epoll_ctl(int set, int operation, int member, struct epoll_event *event)
{
	return repoll_ctl(set, operation, member, event);
}

int epoll_wait(int set, struct epoll_event *events, int count, int timeout)
{
	return repoll_wait(set, events, count, timeout);
}

#define FAILS_WITH(call, number) CHECK((call) == -1 && errno == (number))

static int set, listener, client, accepted;

static void open_set(void)
{
	set = repoll_create(EPOLL_CLOEXEC);
	CHECK(set >= 0);
}

static void close_set(void)
{
	CHECK(rclose(set) == 0);
}

static void add(int member, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.u64 = 0x100000000ull + member };
	CHECK(repoll_ctl(set, EPOLL_CTL_ADD, member, &event) == 0);
}

static void change(int member, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.u64 = 0x100000000ull + member };
	CHECK(repoll_ctl(set, EPOLL_CTL_MOD, member, &event) == 0);
}

/* One member is ready, for this. */
static void expect_event(int member, uint32_t events)
{
	struct epoll_event event;
	CHECK(repoll_wait(set, &event, 1, EVENT_TIMEOUT) == 1);
	CHECK(event.data.u64 == 0x100000000ull + member);
	CHECK(event.events == events);
}

static void expect_no_event(void)
{
	struct epoll_event event;
	CHECK(repoll_wait(set, &event, 1, 20) == 0);
}

static void *accept_one(void *unused)
{
	accepted = raccept(listener, NULL, NULL);
	CHECK(accepted >= 0);
	return unused;
}

static void listen_here(struct sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	*address = (struct sockaddr_in){ .sin_family = AF_INET };
	CHECK(inet_pton(AF_INET, own_address(), &address->sin_addr) == 1);
	listener = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(rbind(listener, (struct sockaddr *)address, sizeof(*address)) == 0);
	CHECK(rgetsockname(listener, (struct sockaddr *)address, &length) == 0);
	CHECK(rlisten(listener, 4) == 0);
	client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(client >= 0);
}

static void open_stream(void)
{
	struct sockaddr_in address;
	pthread_t server;
	open_set();
	listen_here(&address);
	CHECK(pthread_create(&server, NULL, accept_one, NULL) == 0);
	CHECK(rconnect(client, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(pthread_join(server, NULL) == 0);
}

static void close_stream(void)
{
	rclose(client);
	rclose(accepted);
	rclose(listener);
	close_set();
}

static void say(const char *word)
{
	CHECK(rsend(client, word, strlen(word), 0) == (ssize_t)strlen(word));
}

static void hear(size_t length)
{
	char data[100];
	CHECK(rrecv(accepted, data, length, MSG_WAITALL) == (ssize_t)length);
}

static void hear_everything(void)
{
	char data[100];
	while (rrecv(accepted, data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	CHECK(errno == EAGAIN);
}

static void level_triggered_data_is_reported_until_read(void)
{
	add(accepted, EPOLLIN);
	expect_no_event();
	say("word");
	expect_event(accepted, EPOLLIN);
	expect_event(accepted, EPOLLIN);
	hear(4);
	expect_no_event();
}

static void a_writable_socket_is_reported(void)
{
	add(client, EPOLLOUT);
	expect_event(client, EPOLLOUT);
	change(client, EPOLLIN);
	expect_no_event();
}

static void edge_triggered_changes_are_reported_once(void)
{
	add(accepted, EPOLLIN | EPOLLOUT | EPOLLET);
	expect_event(accepted, EPOLLOUT);
	expect_no_event();
	say("one");
	expect_event(accepted, EPOLLIN | EPOLLOUT);
	expect_no_event();
	/* Unread data, and more of it. */
	say("two");
	expect_event(accepted, EPOLLIN | EPOLLOUT);
	/* Read to the end, and new data before the set is asked again. */
	hear_everything();
	say("three");
	expect_event(accepted, EPOLLIN | EPOLLOUT);
	hear_everything();
}

static void one_shot_members_report_once(void)
{
	add(accepted, EPOLLIN | EPOLLONESHOT);
	say("word");
	expect_event(accepted, EPOLLIN);
	expect_no_event();
	change(accepted, EPOLLIN | EPOLLONESHOT);
	expect_event(accepted, EPOLLIN);
	hear(4);
}

static void ordinary_descriptors_are_members_too(void)
{
	int counter = eventfd(0, 0);
	uint64_t one = 1;
	struct epoll_event events[2];
	add(counter, EPOLLIN);
	add(accepted, EPOLLIN);
	expect_no_event();
	CHECK(write(counter, &one, sizeof(one)) == sizeof(one));
	expect_event(counter, EPOLLIN);
	say("word");
	/* The order is not defined. */
	while (repoll_wait(set, events, 2, EVENT_TIMEOUT) != 2)
		;
	CHECK(events[0].data.u64 != events[1].data.u64);
	CHECK(repoll_ctl(set, EPOLL_CTL_DEL, counter, NULL) == 0);
	hear(4);
	expect_no_event();
	close(counter);
}

static void every_ready_member_is_reported(void)
{
	struct epoll_event event;
	int reported[2] = { 0, 0 };
	add(client, EPOLLOUT);
	add(accepted, EPOLLOUT);
	for (int i = 0; i < 4; i++) {
		CHECK(repoll_wait(set, &event, 1, EVENT_TIMEOUT) == 1);
		reported[event.data.u64 == 0x100000000ull + (uint64_t)accepted]++;
	}
	CHECK(reported[0] == 2 && reported[1] == 2);
}

static void the_end_of_a_stream_is_reported(void)
{
	struct epoll_event event;
	add(accepted, EPOLLIN | EPOLLRDHUP);
	CHECK(rclose(client) == 0);
	CHECK(repoll_wait(set, &event, 1, EVENT_TIMEOUT) == 1);
	CHECK(event.events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP));
}

static void a_connecting_client_is_reported(void)
{
	struct sockaddr_in address;
	pthread_t server;
	listen_here(&address);
	CHECK(rfcntl(client, F_SETFL, O_NONBLOCK) == 0);
	add(listener, EPOLLIN);
	CHECK(rconnect(client, (struct sockaddr *)&address, sizeof(address)) == -1);
	CHECK(errno == EINPROGRESS);
	add(client, EPOLLOUT);
	expect_event(listener, EPOLLIN);
	CHECK(repoll_ctl(set, EPOLL_CTL_DEL, listener, NULL) == 0);
	CHECK(pthread_create(&server, NULL, accept_one, NULL) == 0);
	expect_event(client, EPOLLOUT);
	CHECK(pthread_join(server, NULL) == 0);
	rclose(client);
	rclose(accepted);
	rclose(listener);
}

static void *add_later(void *unused)
{
	struct timespec soon = { .tv_nsec = 20 * 1000 * 1000 };
	nanosleep(&soon, NULL);
	add(client, EPOLLOUT);
	return unused;
}

static void a_member_can_be_added_while_a_thread_waits(void)
{
	pthread_t other;
	CHECK(pthread_create(&other, NULL, add_later, NULL) == 0);
	expect_event(client, EPOLLOUT);
	CHECK(pthread_join(other, NULL) == 0);
}

static void a_closed_socket_is_no_member(void)
{
	struct epoll_event event = { .events = EPOLLOUT };
	add(client, EPOLLOUT);
	CHECK(rclose(client) == 0);
	expect_no_event();
	FAILS_WITH(repoll_ctl(set, EPOLL_CTL_MOD, client, &event), EBADF);
}

static void invalid_arguments_are_rejected(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	add(accepted, EPOLLIN);
	FAILS_WITH(repoll_ctl(set, EPOLL_CTL_ADD, accepted, &event), EEXIST);
	FAILS_WITH(repoll_ctl(set, EPOLL_CTL_MOD, client, &event), ENOENT);
	FAILS_WITH(repoll_ctl(set, EPOLL_CTL_DEL, client, &event), ENOENT);
	FAILS_WITH(repoll_ctl(set, EPOLL_CTL_ADD, client, NULL), EFAULT);
	FAILS_WITH(repoll_ctl(set, 77, client, &event), EINVAL);
	FAILS_WITH(repoll_ctl(set, EPOLL_CTL_ADD, -1, &event), EBADF);
	FAILS_WITH(repoll_wait(set, &event, 0, 0), EINVAL);
	FAILS_WITH(repoll_wait(set, &event, -1, 0), EINVAL);
	FAILS_WITH(repoll_create(0x12345), EINVAL);
	CHECK(repoll_ctl(set, EPOLL_CTL_DEL, accepted, NULL) == 0);
}

static void a_closed_set_is_ebadf(void)
{
	struct epoll_event event;
	int other = repoll_create(0);
	CHECK(other >= 0);
	CHECK(rclose(other) == 0);
	FAILS_WITH(repoll_wait(other, &event, 1, 0), EBADF);
	FAILS_WITH(rclose(other), EBADF);
}

#define WITH_STREAM(function) { #function, function, open_stream, close_stream }
#define WITH_SET(function) { #function, function, open_set, close_set }

static const struct test_case CASES[] = {
	WITH_STREAM(level_triggered_data_is_reported_until_read),
	WITH_STREAM(a_writable_socket_is_reported),
	WITH_STREAM(edge_triggered_changes_are_reported_once),
	WITH_STREAM(one_shot_members_report_once),
	WITH_STREAM(ordinary_descriptors_are_members_too),
	WITH_STREAM(every_ready_member_is_reported),
	WITH_STREAM(the_end_of_a_stream_is_reported),
	WITH_SET(a_connecting_client_is_reported),
	WITH_STREAM(a_member_can_be_added_while_a_thread_waits),
	WITH_STREAM(a_closed_socket_is_no_member),
	WITH_STREAM(invalid_arguments_are_rejected),
	WITH_SET(a_closed_set_is_ebadf),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
