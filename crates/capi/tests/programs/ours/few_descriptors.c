/* Few descriptors: every call says EMFILE or succeeds, and none is lost. Closed ones: calls say EBADF. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include "../check.h"

/* With so many, everything works. */
#define ENOUGH 64

static int limit;
static struct rlimit former;

static void set_limit(int descriptors)
{
	struct rlimit now = former;
	now.rlim_cur = descriptors;
	CHECK(setrlimit(RLIMIT_NOFILE, &now) == 0);
}

/* Whether it succeeded. Otherwise there must have been too few descriptors. */
#define TRIED(done)                                                                                \
	({                                                                                         \
		errno = 0;                                                                         \
		int done_ = (done);                                                                \
		if (!done_ && errno != EMFILE)                                                     \
			COMPLAIN("%s: errno %d with %d descriptors", #done, errno, limit);         \
		done_;                                                                             \
	})

static struct ibv_context *try_device(void)
{
	struct ibv_device **list = NULL;
	if (!TRIED((list = ibv_get_device_list(NULL)) != NULL))
		return NULL;
	struct ibv_context *context = NULL;
	(void)TRIED((context = ibv_open_device(list[0])) != NULL);
	ibv_free_device_list(list);
	return context;
}

static int verbs_work(void)
{
	struct ibv_context *context = try_device();
	if (!context)
		return 0;
	struct ibv_comp_channel *channel = NULL;
	int all = TRIED((channel = ibv_create_comp_channel(context)) != NULL);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd != NULL);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0);
	CHECK(cq != NULL);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	if (channel)
		CHECK(ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_close_device(context) == 0);
	return all;
}

static struct sockaddr_in here(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	CHECK(inet_pton(AF_INET, own_address(), &address.sin_addr) == 1);
	return address;
}

static int ids_work(void)
{
	struct rdma_event_channel *channel = NULL;
	if (!TRIED((channel = rdma_create_event_channel()) != NULL))
		return 0;
	struct rdma_cm_id *id = NULL, *other = NULL;
	int all = TRIED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0) &&
		  TRIED(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP) == 0);
	struct sockaddr_in address = here(0), peer = here(4711);
	all = all && TRIED(rdma_bind_addr(id, (struct sockaddr *)&address) == 0) &&
	      TRIED(rdma_listen(id, 1) == 0) &&
	      TRIED(rdma_resolve_addr(other, NULL, (struct sockaddr *)&peer, 1000) == 0);
	if (other)
		CHECK(rdma_destroy_id(other) == 0);
	if (id)
		CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
	return all;
}

static int sockets_work(void)
{
	int descriptor = -1;
	if (!TRIED((descriptor = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0))
		return 0;
	struct sockaddr_in address = here(0);
	int all = TRIED(rbind(descriptor, (struct sockaddr *)&address, sizeof(address)) == 0) &&
		  TRIED(rlisten(descriptor, 1) == 0);
	CHECK(rclose(descriptor) == 0);
	return all;
}

/* Does it with each limit, from the three that every process has up to enough. */
static void walk(int (*work)(void))
{
	CHECK(getrlimit(RLIMIT_NOFILE, &former) == 0);
	int worked = 0;
	for (limit = 3; limit <= ENOUGH; limit++) {
		int before = count_descriptors();
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			alarm(CASE_TIMEOUT_SECONDS / 2);
			set_limit(limit);
			int all = work();
			/* Some are kept for the next time; a second time takes no more. */
			int kept = count_descriptors();
			all = work() && all;
			check_that_none_is_left_open(kept);
			_exit(all ? 0 : 3);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3));
		worked = WEXITSTATUS(status) == 0;
		SAME(count_descriptors(), before);
	}
	CHECK(worked);
}

static void devices_with_few_descriptors(void)
{
	walk(verbs_work);
}

static void ids_with_few_descriptors(void)
{
	walk(ids_work);
}

static void sockets_with_few_descriptors(void)
{
	walk(sockets_work);
}

/* How much processor time this process has used, in milliseconds. */
static long used_time(void)
{
	struct timespec used;
	CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0);
	return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

static void *wait_at_left(void *unused)
{
	struct ibv_cq *cq;
	void *context;
	(void)unused;
	FAILS(ibv_get_cq_event(left.channel, &cq, &context), EBADF);
	return NULL;
}

static int is_socket(int descriptor)
{
	struct stat about;
	return fstat(descriptor, &about) == 0 && S_ISSOCK(about.st_mode);
}

/* A thread that spins uses every interval. A host that is late takes time from one of them only. */
static void check_that_all_sleep(void)
{
	long least = LONG_MAX;
	for (int interval = 0; interval < 5; interval++) {
		long before = used_time();
		usleep(100000);
		long used = used_time() - before;
		least = used < least ? used : least;
	}
	CHECK(least < 50);
}

/* Neither a thread that waits nor the device's own, which has to send a message again. */
static void no_thread_spins_on_closed_descriptors(void)
{
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
	pthread_t waiting;
	post(left.qp, &wr);
	CHECK(pthread_create(&waiting, NULL, wait_at_left, NULL) == 0);
	for (int descriptor = 0; descriptor < ENOUGH; descriptor++)
		if (is_socket(descriptor))
			close(descriptor);
	CHECK(pthread_join(waiting, NULL) == 0);
	check_that_all_sleep();
	_exit(0);
}

/* A program that closes everything opens its own files under the same numbers. These are always readable. */
static void no_thread_spins_on_replaced_descriptors(void)
{
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
	pthread_t waiting;
	int readable = open("/dev/zero", O_RDONLY);
	CHECK(readable >= 0);
	post(left.qp, &wr);
	CHECK(pthread_create(&waiting, NULL, wait_at_left, NULL) == 0);
	for (int descriptor = 0; descriptor < ENOUGH; descriptor++)
		if (is_socket(descriptor))
			CHECK(dup2(readable, descriptor) == descriptor);
	CHECK(pthread_join(waiting, NULL) == 0);
	check_that_all_sleep();
	_exit(0);
}

static const struct test_case CASES[] = {
	WITH_JOINED(no_thread_spins_on_closed_descriptors),
	WITH_JOINED(no_thread_spins_on_replaced_descriptors),
	CASE(devices_with_few_descriptors),
	CASE(ids_with_few_descriptors),
	CASE(sockets_with_few_descriptors),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
