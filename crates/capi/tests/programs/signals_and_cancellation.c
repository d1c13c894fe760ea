/* Threads that wait, and are cancelled or get a signal. */
#define _GNU_SOURCE
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include "check.h"

static struct rdma_event_channel *connections;
static int cleaned_up;
static volatile sig_atomic_t signals;

static void clean_up(void *unused)
{
	(void)unused;
	cleaned_up++;
}

static void *errno_of(int result)
{
	return (void *)(intptr_t)(result == -1 ? errno : 0);
}

static void *wait_for_completion(void *unused)
{
	struct ibv_cq *cq;
	void *context, *result;
	pthread_cleanup_push(clean_up, unused);
	result = errno_of(ibv_get_cq_event(left.channel, &cq, &context));
	pthread_cleanup_pop(0);
	return result;
}

static void *wait_for_trouble(void *unused)
{
	struct ibv_async_event event;
	void *result;
	pthread_cleanup_push(clean_up, unused);
	result = errno_of(ibv_get_async_event(left.context, &event));
	pthread_cleanup_pop(0);
	return result;
}

static void *wait_for_connection(void *unused)
{
	struct rdma_cm_event *event;
	void *result;
	pthread_cleanup_push(clean_up, unused);
	result = errno_of(rdma_get_cm_event(connections, &event));
	pthread_cleanup_pop(0);
	return result;
}

static void count(int signal)
{
	(void)signal;
	signals++;
}

static void handle_signal(int flags)
{
	struct sigaction action = { .sa_handler = count, .sa_flags = flags };
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
}

static void send_signals(pthread_t thread)
{
	while (signals < 20) {
		CHECK(pthread_kill(thread, SIGUSR1) == 0);
		usleep(1000);
	}
}

/* A call with SA_RESTART continues to wait; a cancelled one ends its thread. */
static void cancel(void *(*waiting)(void *))
{
	pthread_t thread;
	void *result;
	cleaned_up = 0;
	signals = 0;
	handle_signal(SA_RESTART);
	CHECK(pthread_create(&thread, NULL, waiting, NULL) == 0);
	send_signals(thread);
	CHECK(pthread_tryjoin_np(thread, &result) == EBUSY);
	CHECK(pthread_cancel(thread) == 0);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED && cleaned_up == 1);
}

static void interrupt(void *(*waiting)(void *))
{
	pthread_t thread;
	void *result;
	handle_signal(0);
	CHECK(pthread_create(&thread, NULL, waiting, NULL) == 0);
	/* One that comes before the thread waits is lost. */
	while (pthread_tryjoin_np(thread, &result) == EBUSY) {
		CHECK(pthread_kill(thread, SIGUSR1) == 0);
		usleep(1000);
	}
	SAME((intptr_t)result, EINTR);
}

static void waiting_for_completions_is_cancelled(void)
{
	cancel(wait_for_completion);
}

static void waiting_for_completions_is_interrupted(void)
{
	interrupt(wait_for_completion);
}

static void waiting_for_events_is_cancelled(void)
{
	cancel(wait_for_trouble);
}

static void waiting_for_events_is_interrupted(void)
{
	interrupt(wait_for_trouble);
}

static void waiting_for_connections_is_cancelled(void)
{
	cancel(wait_for_connection);
}

static void waiting_for_connections_is_interrupted(void)
{
	interrupt(wait_for_connection);
}

static void open_connections(void)
{
	connections = rdma_create_event_channel();
	CHECK(connections != NULL);
}

static void close_connections(void)
{
	rdma_destroy_event_channel(connections);
}

static void cancel_everywhere(void)
{
	open_left();
	open_connections();
	cancel(wait_for_completion);
	cancel(wait_for_trouble);
	cancel(wait_for_connection);
	close_connections();
	close_left();
}

static void a_cancelled_thread_leaks_no_descriptor(void)
{
	/* What the first one leaves open is shared by all that follow. */
	cancel_everywhere();
	int before = count_descriptors();
	cancel_everywhere();
	check_that_none_is_left_open(before);
}

#define WITH_CONNECTIONS(function) { #function, function, open_connections, close_connections }

static const struct test_case CASES[] = {
	WITH_LEFT(waiting_for_completions_is_cancelled),
	WITH_LEFT(waiting_for_completions_is_interrupted),
	WITH_LEFT(waiting_for_events_is_cancelled),
	WITH_LEFT(waiting_for_events_is_interrupted),
	WITH_CONNECTIONS(waiting_for_connections_is_cancelled),
	WITH_CONNECTIONS(waiting_for_connections_is_interrupted),
	CASE(a_cancelled_thread_leaks_no_descriptor),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
