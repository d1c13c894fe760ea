/* Multicast groups of ids. On a device with hardware, every address can be joined. */
#include "../connection.h"

static int of_first, of_second;

static void open_bound(void)
{
	open_channel();
	client = new_id(RDMA_PS_UDP);
	CHECK(bind_to(client, at(own_address(), 0)) == 0);
}

static int join_group(const char *group, void *context)
{
	struct sockaddr_in address = at(group, 0);
	return rdma_join_multicast(client, (struct sockaddr *)&address, context);
}

static int leave_group(const char *group)
{
	struct sockaddr_in address = at(group, 0);
	return rdma_leave_multicast(client, (struct sockaddr *)&address);
}

static void expect_context(enum rdma_cm_event_type type, void *context)
{
	struct rdma_cm_event *event = expect(type);
	CHECK(event->id == client && event->param.ud.private_data == context);
	CHECK(rdma_ack_cm_event(event) == 0);
}

static void a_group_is_joined_and_left(void)
{
	CHECK(join_group("239.31.7.1", &of_first) == 0);
	expect_context(RDMA_CM_EVENT_MULTICAST_JOIN, &of_first);
	CHECK(leave_group("239.31.7.1") == 0);
	FAILS(leave_group("239.31.7.1"), EADDRNOTAVAIL);
}

/* 192.0.2.9 is no group, so the system refuses. */
static void each_attempt_to_join_has_its_own_context(void)
{
	CHECK(join_group("192.0.2.9", &of_first) == 0);
	expect_context(RDMA_CM_EVENT_MULTICAST_ERROR, &of_first);
	CHECK(join_group("192.0.2.9", &of_second) == 0);
	expect_context(RDMA_CM_EVENT_MULTICAST_ERROR, &of_second);
	CHECK(leave_group("192.0.2.9") == 0 && leave_group("192.0.2.9") == 0);
	FAILS(leave_group("192.0.2.9"), EADDRNOTAVAIL);
}

static void each_attempt_has_its_own_context_although_no_event_was_fetched_between(void)
{
	CHECK(join_group("192.0.2.9", &of_first) == 0);
	CHECK(join_group("192.0.2.9", &of_second) == 0);
	expect_context(RDMA_CM_EVENT_MULTICAST_ERROR, &of_first);
	expect_context(RDMA_CM_EVENT_MULTICAST_ERROR, &of_second);
	CHECK(leave_group("192.0.2.9") == 0 && leave_group("192.0.2.9") == 0);
}

#define WITH_BOUND(function) { #function, function, open_bound, close_all }

static const struct test_case CASES[] = {
	WITH_BOUND(a_group_is_joined_and_left),
	WITH_BOUND(each_attempt_to_join_has_its_own_context),
	WITH_BOUND(each_attempt_has_its_own_context_although_no_event_was_fetched_between),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
