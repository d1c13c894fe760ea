/* Destructors of thread-local variables. glibc ends a process that has no memory to register one, so no thread of a
 * program registers one in a call that needs no memory otherwise. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include "../check.h"

static __thread int registered;
static atomic_int registered_by_all;

/* Replaces that of glibc for the library: counts, and registers. */
int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *library)
{
	int (*next)(void (*)(void *), void *, void *) = dlsym(RTLD_NEXT, "__cxa_thread_atexit_impl");
	registered++;
	atomic_fetch_add(&registered_by_all, 1);
	return next(destructor, object, library);
}

static void *count_registered(void *call)
{
	((void (*)(void))call)();
	return (void *)(intptr_t)registered;
}

/* How many destructors a new thread registers when it calls this. */
static int registered_by(void (*call)(void))
{
	pthread_t thread;
	void *count;
	CHECK(pthread_create(&thread, NULL, count_registered, call) == 0);
	CHECK(pthread_join(thread, &count) == 0);
	return (intptr_t)count;
}

static void open_and_close(void)
{
	struct ibv_context *context = open_by_name("right");
	CHECK(ibv_close_device(context) == 0);
}

/* The library's own threads register some: otherwise this program counts nothing. */
static void they_are_counted(void)
{
	int before = atomic_load(&registered_by_all);
	open_and_close();
	CHECK(atomic_load(&registered_by_all) > before);
}

static void poll_nothing(void)
{
	struct ibv_wc completion;
	SAME(ibv_poll_cq(left.cq, 1, &completion), 0);
}

static void a_poll_registers_none(void)
{
	SAME(registered_by(poll_nothing), 0);
}

static void write_and_poll(void)
{
	SAME(write_through(right.mr->rkey, right.memory), IBV_WC_SUCCESS);
}

static void a_write_registers_none(void)
{
	SAME(registered_by(write_and_poll), 0);
}

static void take_event(void)
{
	struct ibv_cq *cq;
	void *context;
	CHECK(ibv_get_cq_event(left.channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
}

static void *write_later(void *unused)
{
	usleep(50000);
	write_and_poll();
	return unused;
}

/* The event comes when the thread has slept for a while. */
static void sleeping_registers_none(void)
{
	pthread_t writer;
	CHECK(ibv_req_notify_cq(left.cq, 0) == 0);
	CHECK(pthread_create(&writer, NULL, write_later, NULL) == 0);
	SAME(registered_by(take_event), 0);
	CHECK(pthread_join(writer, NULL) == 0);
}

/* A thread that starts registers some. The device's has started when the device is open. */
static void the_thread_of_a_device_starts_before_the_memory_ends(void)
{
	for (int i = 0; i < 100; i++) {
		struct ibv_context *context = open_by_name("left");
		int before = atomic_load(&registered_by_all);
		usleep(1000);
		SAME(atomic_load(&registered_by_all), before);
		CHECK(ibv_close_device(context) == 0);
	}
}

static const struct test_case CASES[] = {
	CASE(they_are_counted),
	WITH_LEFT(a_poll_registers_none),
	WITH_JOINED(a_write_registers_none),
	WITH_JOINED(sleeping_registers_none),
	CASE(the_thread_of_a_device_starts_before_the_memory_ends),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
