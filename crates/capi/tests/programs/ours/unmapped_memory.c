/* Memory that a program unmaps, protects or truncates while it is registered. Hardware has pinned the
 * pages; here the request fails, and the process lives. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "../check.h"

#define PAGE 4096

typedef void way(char *page);

/* A page of a file, so that it can be truncated as well. */
static int file = -1;

static char *map_page(void)
{
	file = memfd_create("vanishing", 0);
	CHECK(file >= 0 && ftruncate(file, PAGE) == 0);
	char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(page != MAP_FAILED);
	return page;
}

static void unmap(char *page)
{
	CHECK(munmap(page, PAGE) == 0);
}

static void forbid(char *page)
{
	CHECK(mprotect(page, PAGE, PROT_NONE) == 0);
}

static void make_constant(char *page)
{
	CHECK(mprotect(page, PAGE, PROT_READ) == 0);
}

static void truncate_file(char *page)
{
	(void)page;
	CHECK(ftruncate(file, 0) == 0);
}

static struct ibv_mr *register_page(struct end *end)
{
	struct ibv_mr *mr = ibv_reg_mr(end->pd, map_page(), PAGE, EVERYTHING);
	CHECK(mr != NULL);
	return mr;
}

static struct ibv_sge all_of(struct ibv_mr *mr)
{
	return (struct ibv_sge){ .addr = (uintptr_t)mr->addr, .length = PAGE, .lkey = mr->lkey };
}

/* The peer's request fails, and the owner gets an event. */
static void expect_remote_error(struct ibv_send_wr *wr)
{
	SAME(fate_of(&left, wr), IBV_WC_REM_ACCESS_ERR);
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(right.context, &event) == 0);
	SAME(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
	CHECK(event.element.qp == right.qp);
	ibv_ack_async_event(&event);
}

static void one_sided(enum ibv_wr_opcode opcode, uint32_t length, way *vanish)
{
	struct ibv_mr *mr = register_page(&right);
	vanish(mr->addr);
	struct ibv_sge sge = part(&left, 0, length);
	struct ibv_send_wr wr = request(opcode, &sge);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)mr->addr;
		wr.wr.atomic.rkey = mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)mr->addr;
		wr.wr.rdma.rkey = mr->rkey;
	}
	expect_remote_error(&wr);
	CHECK(ibv_dereg_mr(mr) == 0);
}

/* The receiver's memory is unmapped: its receive fails, and so does the send. */
static void sent_into(way *vanish)
{
	struct ibv_mr *mr = register_page(&right);
	struct ibv_sge into = all_of(mr), sge = part(&left, 0, PAGE);
	post_receive(right.qp, 5, &into);
	vanish(mr->addr);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge);
	SAME(fate_of(&left, &wr), IBV_WC_REM_OP_ERR);
	struct ibv_wc wc = wait_for(right.cq);
	SAME(wc.status, IBV_WC_LOC_PROT_ERR);
	SAME(wc.wr_id, 5);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void gathered_from(way *vanish)
{
	struct ibv_mr *mr = register_page(&left);
	vanish(mr->addr);
	struct ibv_sge sge = all_of(mr);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	SAME(fate_of(&left, &wr), IBV_WC_LOC_PROT_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
}

/* What a READ brings has nowhere to go. */
static void read_into(way *vanish)
{
	struct ibv_mr *mr = register_page(&left);
	vanish(mr->addr);
	struct ibv_sge sge = all_of(mr);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &sge);
	SAME(fate_of(&left, &wr), IBV_WC_LOC_PROT_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
}

#define FOR_EACH_OPERATION(name, vanish)                                                           \
	static void name##_and_written(void) { one_sided(IBV_WR_RDMA_WRITE, PAGE, vanish); }       \
	static void name##_and_added_to(void) { one_sided(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, vanish); } \
	static void name##_and_sent_into(void) { sent_into(vanish); }                              \
	static void name##_and_read_into(void) { read_into(vanish); }

#define FOR_EACH_READING(name, vanish)                                                             \
	static void name##_and_read(void) { one_sided(IBV_WR_RDMA_READ, PAGE, vanish); }           \
	static void name##_and_gathered(void) { gathered_from(vanish); }

FOR_EACH_OPERATION(unmapped, unmap)
FOR_EACH_READING(unmapped, unmap)
FOR_EACH_OPERATION(forbidden, forbid)
FOR_EACH_READING(forbidden, forbid)
FOR_EACH_OPERATION(truncated, truncate_file)
FOR_EACH_READING(truncated, truncate_file)
FOR_EACH_OPERATION(made_constant, make_constant)

static void constant_memory_can_still_be_read(void)
{
	struct ibv_mr *mr = register_page(&right);
	strcpy(mr->addr, "constant");
	make_constant(mr->addr);
	struct ibv_sge sge = part(&left, 0, PAGE);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)mr->addr;
	wr.wr.rdma.rkey = mr->rkey;
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	CHECK(strcmp(left.memory, "constant") == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
}

/* All signals blocked before the device was opened: its own thread serves the peer. */
static void a_program_that_blocks_all_signals(void)
{
	sigset_t all, former;
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_BLOCK, &all, &former) == 0);
	open_and_join();
	CHECK(pthread_sigmask(SIG_SETMASK, &former, NULL) == 0);
	one_sided(IBV_WR_RDMA_WRITE, PAGE, unmap);
	close_both();
}

static sigjmp_buf out;
static volatile int seen_signal, seen_code;
static void *volatile seen_address;
static volatile int mask_held;

static void take_fault(int signal, siginfo_t *info, void *context)
{
	(void)context;
	sigset_t now;
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	mask_held = sigismember(&now, SIGUSR1) == 1;
	seen_signal = signal;
	seen_code = info->si_code;
	seen_address = info->si_addr;
	siglongjmp(out, 1);
}

static void take_plain(int signal)
{
	seen_signal = signal;
	siglongjmp(out, 1);
}

/* Touches memory that isn't there, as a fault of the program's own. */
static void fault_at(volatile char *address)
{
	if (sigsetjmp(out, 1) == 0)
		*address = 1;
}

/* What the program had set before it registered anything is called for its own faults. */
static void a_handler_gets_the_programs_own_faults(void)
{
	struct sigaction mine = { .sa_sigaction = take_fault, .sa_flags = SA_SIGINFO };
	sigaddset(&mine.sa_mask, SIGUSR1);
	CHECK(sigaction(SIGSEGV, &mine, NULL) == 0);
	CHECK(sigaction(SIGBUS, &mine, NULL) == 0);
	open_and_join();
	one_sided(IBV_WR_RDMA_WRITE, PAGE, unmap);
	CHECK(seen_signal == 0);
	char *page = map_page();
	forbid(page);
	fault_at(page + 7);
	CHECK(seen_signal == SIGSEGV && seen_code == SEGV_ACCERR && seen_address == page + 7);
	CHECK(mask_held);
	page = map_page();
	truncate_file(page);
	fault_at(page + 8);
	CHECK(seen_signal == SIGBUS && seen_address == page + 8);
	close_both();
}

static void a_handler_without_information_is_called(void)
{
	CHECK(signal(SIGSEGV, take_plain) != SIG_ERR);
	open_left();
	char *page = map_page();
	forbid(page);
	fault_at(page);
	CHECK(seen_signal == SIGSEGV);
	close_left();
}

static void a_handler_that_is_set_later_is_the_only_one(void)
{
	open_left();
	CHECK(signal(SIGSEGV, take_plain) != SIG_ERR);
	char *page = map_page();
	forbid(page);
	fault_at(page);
	CHECK(seen_signal == SIGSEGV);
	close_left();
}

/* How a child ends in which the program's own fault is not handled. */
static int end_of_child(void (*child)(void))
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		child();
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

static void fault_in_a_child(void)
{
	open_left();
	char *page = map_page();
	forbid(page);
	*(volatile char *)page = 1;
}

static void bus_error_in_a_child(void)
{
	open_left();
	char *page = map_page();
	truncate_file(page);
	*(volatile char *)page = 1;
}

static void kill_in_a_child(void)
{
	open_left();
	raise(SIGSEGV);
}

static void ignored_kill_in_a_child(void)
{
	signal(SIGSEGV, SIG_IGN);
	open_left();
	raise(SIGSEGV);
}

static void ignored_fault_in_a_child(void)
{
	signal(SIGSEGV, SIG_IGN);
	fault_in_a_child();
}

static void handle_once(int signal)
{
	(void)signal;
}

/* The first fault takes the handler away, the second one ends the process. */
static void handled_once_in_a_child(void)
{
	struct sigaction mine = { .sa_handler = handle_once, .sa_flags = SA_RESETHAND };
	CHECK(sigaction(SIGSEGV, &mine, NULL) == 0);
	fault_in_a_child();
}

static void the_default_action_is_what_it_was(void)
{
	SAME(end_of_child(fault_in_a_child), SIGSEGV);
	SAME(end_of_child(bus_error_in_a_child), SIGBUS);
	SAME(end_of_child(kill_in_a_child), SIGSEGV);
	SAME(end_of_child(ignored_kill_in_a_child), -1);
	SAME(end_of_child(ignored_fault_in_a_child), SIGSEGV);
	SAME(end_of_child(handled_once_in_a_child), SIGSEGV);
}

#define OPERATIONS(name)                                                                           \
	WITH_JOINED(name##_and_written), WITH_JOINED(name##_and_added_to),                         \
		WITH_JOINED(name##_and_sent_into), WITH_JOINED(name##_and_read_into)
#define READINGS(name) WITH_JOINED(name##_and_read), WITH_JOINED(name##_and_gathered)

static const struct test_case CASES[] = {
	OPERATIONS(unmapped),
	READINGS(unmapped),
	OPERATIONS(forbidden),
	READINGS(forbidden),
	OPERATIONS(truncated),
	READINGS(truncated),
	OPERATIONS(made_constant),
	WITH_JOINED(constant_memory_can_still_be_read),
	CASE(a_program_that_blocks_all_signals),
	CASE(a_handler_gets_the_programs_own_faults),
	CASE(a_handler_without_information_is_called),
	CASE(a_handler_that_is_set_later_is_the_only_one),
	CASE(the_default_action_is_what_it_was),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
