/* A process that dies, in whatever way, is announced to its peers: the kernel does that for every program,
 * and so servers rely on it. */
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include "connection.h"

/* 0.1 s are promised; a loaded machine gets more. */
#define ALLOWED_IN_SECONDS 20

/* The one that dies gets the port and gives a sign; a pair of pipes each. */
static int port_pipe[2], sign_pipe[2];
static pid_t mortal;

static void give_sign(void)
{
	CHECK(write(sign_pipe[1], "!", 1) == 1);
}

static void await_sign(void)
{
	char sign;
	CHECK(read(sign_pipe[0], &sign, 1) == 1);
}

static void give_port(int port)
{
	CHECK(write(port_pipe[1], &port, sizeof(port)) == sizeof(port));
}

static int await_port(void)
{
	int port;
	CHECK(read(port_pipe[0], &port, sizeof(port)) == sizeof(port));
	return port;
}

static double seconds(void)
{
	struct timespec now;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void exit_at_once(void) { _exit(3); }
static void exit_in_order(void) { exit(0); }
static int *volatile nowhere;
static void crash(void) { *nowhere = 1; }
static void wait_for_a_signal(void) { for (;;) pause(); }

/* Starts a process that uses no device yet. */
static void start(void (*live)(void), void (*die)(void))
{
	CHECK(pipe(port_pipe) == 0 && pipe(sign_pipe) == 0);
	mortal = fork();
	CHECK(mortal >= 0);
	if (mortal > 0)
		return;
	struct rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	/* Some test runners ignore it. */
	signal(SIGINT, SIG_DFL);
	alarm(CASE_TIMEOUT_SECONDS / 2);
	live();
	give_sign();
	die();
}

/* How soon the peer gets an event after the process ends. */
static void expect_soon(int sent_signal, enum rdma_cm_event_type type)
{
	double begin = seconds();
	if (sent_signal)
		CHECK(kill(mortal, sent_signal) == 0);
	pass(type);
	double took = seconds() - begin;
	if (took > ALLOWED_IN_SECONDS)
		COMPLAIN("it took %f s", took);
	int status;
	CHECK(waitpid(mortal, &status, 0) == mortal);
}

static void resolve_to(int port)
{
	open_channel();
	client = new_id(RDMA_PS_TCP);
	struct sockaddr_in peer = at(own_address(), port);
	CHECK(rdma_resolve_addr(client, NULL, (struct sockaddr *)&peer, 1000) == 0);
	pass(RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(client, 1000) == 0);
	pass(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp_of(client);
}

static void connect_to_listener(void)
{
	resolve_to(await_port());
	CHECK(rdma_connect(client, &parameters) == 0);
	pass(RDMA_CM_EVENT_ESTABLISHED);
}

static void ask_listener(void)
{
	resolve_to(await_port());
	CHECK(rdma_connect(client, &parameters) == 0);
}

static void take_request(void)
{
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	accepted = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
}

static void get_request(void)
{
	open_listener();
	give_port(ntohs(rdma_get_src_port(listener)));
	take_request();
}

static void client_dies(void (*die)(void), int sent_signal)
{
	start(connect_to_listener, die);
	get_request();
	make_qp_of(accepted);
	CHECK(rdma_accept(accepted, &parameters) == 0);
	pass(RDMA_CM_EVENT_ESTABLISHED);
	await_sign();
	expect_soon(sent_signal, RDMA_CM_EVENT_DISCONNECTED);
}

static void a_client_that_calls_exit(void) { client_dies(exit_in_order, 0); }
static void a_client_that_calls__exit(void) { client_dies(exit_at_once, 0); }
static void a_client_that_aborts(void) { client_dies(abort, 0); }
static void a_client_that_crashes(void) { client_dies(crash, 0); }
static void a_client_that_is_interrupted(void) { client_dies(wait_for_a_signal, SIGINT); }
static void a_client_that_is_terminated(void) { client_dies(wait_for_a_signal, SIGTERM); }
static void a_client_that_is_killed(void) { client_dies(wait_for_a_signal, SIGKILL); }

static void become_another_program(void)
{
	execlp("sleep", "sleep", "2", NULL);
}

static void a_client_that_executes_another_program(void)
{
	client_dies(become_another_program, 0);
}

static void leave_a_child_behind(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		sleep(2);
	_exit(0);
}

static void a_client_that_leaves_a_child_behind(void)
{
	leave_out_with_others();
	client_dies(leave_a_child_behind, 0);
}

static void a_client_that_is_killed_before_it_is_accepted(void)
{
	start(ask_listener, wait_for_a_signal);
	get_request();
	await_sign();
	expect_soon(SIGKILL, RDMA_CM_EVENT_REJECTED);
}

static void a_server_that_is_killed_before_it_accepts(void)
{
	start(get_request, wait_for_a_signal);
	resolve_to(await_port());
	CHECK(rdma_connect(client, &parameters) == 0);
	await_sign();
	expect_soon(SIGKILL, RDMA_CM_EVENT_REJECTED);
}

/* The program's own children are all that it waits for. */
static void no_child_process_is_left(void)
{
	open_connection();
	errno = 0;
	CHECK(wait(NULL) == -1 && errno == ECHILD);
	close_all();
	client = accepted = listener = NULL;
}

int main(int words, char **word)
{
	struct test_case cases[] = {
		CASE(a_client_that_calls_exit),
		CASE(a_client_that_calls__exit),
		CASE(a_client_that_aborts),
		CASE(a_client_that_crashes),
		CASE(a_client_that_is_interrupted),
		CASE(a_client_that_is_terminated),
		CASE(a_client_that_is_killed),
		CASE(a_client_that_executes_another_program),
		CASE(a_client_that_leaves_a_child_behind),
		CASE(a_client_that_is_killed_before_it_is_accepted),
		CASE(a_server_that_is_killed_before_it_accepts),
		CASE(no_child_process_is_left),
	};
	return RUN(cases, words, word);
}
