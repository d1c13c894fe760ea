/* Small programs that access memory which a device uses, and their corrected versions, for ThreadSanitizer. The first word is
 * the name of the program, the second `wrong` or `right`. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "../connection.h"

static int wrong;

/* What a thread reads goes here, so that the compiler keeps the load. */
static volatile long seen;

static void post_one(enum ibv_wr_opcode opcode, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = request(opcode, sge);
	post(left.qp, &wr);
}

static void succeed(struct ibv_cq *cq)
{
	SAME(wait_for(cq).status, IBV_WC_SUCCESS);
}

static void start(pthread_t *thread, void *(*run)(void *))
{
	CHECK(pthread_create(thread, NULL, run, NULL) == 0);
}

static void join_thread(pthread_t thread)
{
	CHECK(pthread_join(thread, NULL) == 0);
}

/* Two threads meet here. The order of memory is relaxed in the wrong programs, so that it orders nothing else. */
static atomic_int stage;

static void reach(int value)
{
	atomic_store_explicit(&stage, value, wrong ? memory_order_relaxed : memory_order_release);
}

static void await(int value)
{
	while (atomic_load_explicit(&stage, wrong ? memory_order_relaxed : memory_order_acquire) < value)
		sched_yield();
}

static void *poll_left(void *unused)
{
	succeed(left.cq);
	reach(1);
	return unused;
}

static void store_after_post(void)
{
	struct ibv_sge sge = part(&left, 0, 64);
	post_one(IBV_WR_RDMA_WRITE, &sge);
	if (wrong)
		left.memory[5] = 1;
	succeed(left.cq);
	left.memory[5] = 2;
}

/* A connection starts another process. ThreadSanitizer takes processes for copies of this one, and this one must stay as it
 * is. */
static void store_after_connection(void)
{
	open_connection();
	pthread_t other;
	start(&other, poll_left);
	struct ibv_sge sge = part(&left, 0, 64);
	post_one(IBV_WR_RDMA_WRITE, &sge);
	if (wrong)
		left.memory[5] = 1;
	join_thread(other);
	left.memory[5] = 2;
	close_all();
}

static void load_receive_early(void)
{
	struct ibv_sge from = part(&left, 0, 64), to = part(&right, 64, 64);
	post_receive(right.qp, 0, &to);
	post_one(IBV_WR_SEND, &from);
	succeed(left.cq);
	if (wrong)
		seen = right.memory[70];
	succeed(right.cq);
	seen = right.memory[70];
}

static void load_read_early(void)
{
	struct ibv_sge sge = part(&left, 128, 64);
	post_one(IBV_WR_RDMA_READ, &sge);
	if (wrong)
		seen = left.memory[130];
	succeed(left.cq);
	seen = left.memory[130];
}

static void *load_target(void *unused)
{
	await(1);
	seen = right.memory[9];
	return unused;
}

/* The first thread knows that its WRITE was executed, the second one does not. */
static void load_write_target(void)
{
	pthread_t other;
	start(&other, load_target);
	struct ibv_sge sge = part(&left, 0, 64);
	post_one(IBV_WR_RDMA_WRITE, &sge);
	succeed(left.cq);
	reach(1);
	join_thread(other);
}

static void *store_source(void *unused)
{
	await(1);
	right.memory[3] = 1;
	return unused;
}

static void store_read_source(void)
{
	pthread_t other;
	start(&other, store_source);
	struct ibv_sge sge = part(&left, 0, 64);
	post_one(IBV_WR_RDMA_READ, &sge);
	succeed(left.cq);
	reach(1);
	join_thread(other);
}

static void write_through_two(void)
{
	struct ibv_qp *other = make_qp(&left, IBV_QPT_RC), *peer = make_qp(&right, IBV_QPT_RC);
	join(other, peer);
	struct ibv_sge sge = part(&left, 0, 64);
	post_one(IBV_WR_RDMA_WRITE, &sge);
	if (!wrong)
		succeed(left.cq);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	post(other, &wr);
	for (int i = 0; i < 1 + wrong; i++)
		succeed(left.cq);
	CHECK(ibv_destroy_qp(other) == 0 && ibv_destroy_qp(peer) == 0);
}

static void *count(void *unused)
{
	if (wrong)
		++*(long *)right.memory;
	else
		atomic_fetch_add((atomic_long *)right.memory, 1);
	return unused;
}

static void count_together(void)
{
	pthread_t other;
	start(&other, count);
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
	wr.wr.atomic.compare_add = 1;
	post(left.qp, &wr);
	succeed(left.cq);
	join_thread(other);
}

/* Another thread polls the completion. */
static void reuse_after_other_thread(void)
{
	struct ibv_sge sge = part(&left, 0, 64);
	post_one(IBV_WR_RDMA_WRITE, &sge);
	pthread_t other;
	start(&other, poll_left);
	await(1);
	left.memory[1] = 1;
	join_thread(other);
}

static void *await_word(void *unused)
{
	atomic_long *word = (atomic_long *)(right.memory + 1024);
	while (!atomic_load_explicit(word, wrong ? memory_order_relaxed : memory_order_acquire))
		sched_yield();
	seen = right.memory[20];
	return unused;
}

/* A second WRITE of one word tells that the first one is complete. */
static void poll_on_memory(void)
{
	pthread_t other;
	start(&other, await_word);
	*(long *)(left.memory + 1024) = 1;
	struct ibv_sge data = part(&left, 0, 64), word = part(&left, 1024, 8);
	post_one(IBV_WR_RDMA_WRITE, &data);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &word);
	wr.wr.rdma.remote_addr += 1024;
	post(left.qp, &wr);
	join_thread(other);
	succeed(left.cq);
	succeed(left.cq);
}

/* Two buffers are filled in turn, as long as the other one is sent. */
static void fill_two_buffers(void)
{
	for (int i = 0; i < 6; i++) {
		struct ibv_sge sge = part(&left, 512 * (i % 2), 512);
		if (!wrong && i >= 2)
			succeed(left.cq);
		memset(left.memory + 512 * (i % 2), i, 512);
		post_one(IBV_WR_RDMA_WRITE, &sge);
	}
	for (int i = 0; i < (wrong ? 6 : 2); i++)
		succeed(left.cq);
}

enum { SLOTS = 4, SLOT = 128 };

static void post_slot(int slot)
{
	struct ibv_sge sge = part(&right, SLOT * slot, SLOT);
	post_receive(right.qp, slot, &sge);
}

static int poll_slot(void)
{
	struct ibv_wc wc = wait_for(right.cq);
	SAME(wc.status, IBV_WC_SUCCESS);
	return wc.wr_id;
}

/* A ring of receives. The wrong program reads the next message, which has arrived, before it polls its completion. */
static void read_ring_of_receives(void)
{
	for (int i = 0; i < SLOTS; i++)
		post_slot(i);
	for (int i = 0; i < 2 * SLOTS; i++) {
		struct ibv_sge sge = part(&left, 0, SLOT);
		for (int message = 0; message < 2; message++)
			post_one(IBV_WR_SEND, &sge);
		succeed(left.cq);
		succeed(left.cq);
		for (int message = 0; message < 2; message++) {
			int slot = poll_slot();
			seen = right.memory[SLOT * slot];
			if (wrong && message == 0)
				seen = right.memory[SLOT * ((slot + 1) % SLOTS)];
			post_slot(slot);
		}
	}
}

static void *get_event(void *unused)
{
	struct ibv_cq *cq;
	void *context;
	CHECK(ibv_get_cq_event(left.channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
	if (wrong)
		seen = left.memory[130];
	succeed(cq);
	seen = left.memory[130];
	return unused;
}

/* An event tells that there is a completion, but only the poll tells of which request. */
static void wait_for_event(void)
{
	CHECK(ibv_req_notify_cq(left.cq, 0) == 0);
	pthread_t other;
	start(&other, get_event);
	struct ibv_sge sge = part(&left, 128, 64);
	post_one(IBV_WR_RDMA_READ, &sge);
	join_thread(other);
}

static void free_while_sent(void)
{
	char *memory = malloc(4096);
	memset(memory, 1, 4096);
	struct ibv_mr *mr = ibv_reg_mr(left.pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL);
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 64, .lkey = mr->lkey };
	post_one(IBV_WR_RDMA_WRITE, &sge);
	if (wrong)
		memory[63] = 0;
	succeed(left.cq);
	CHECK(ibv_dereg_mr(mr) == 0);
	free(memory);
}

/* The immediate data tells the other end of the WRITE. */
static void load_before_immediate(void)
{
	struct ibv_sge from = part(&left, 0, 64), unused = part(&right, 4096, 8);
	post_receive(right.qp, 0, &unused);
	post_one(IBV_WR_RDMA_WRITE_WITH_IMM, &from);
	if (wrong)
		seen = right.memory[8];
	succeed(right.cq);
	seen = right.memory[8];
	succeed(left.cq);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *fill(void *unused)
{
	await(1);
	pthread_mutex_lock(&lock);
	memset(left.memory, 2, 64);
	pthread_mutex_unlock(&lock);
	return unused;
}

/* A lock around the post does not protect the memory of the request. */
static void fill_under_a_lock(void)
{
	pthread_t other;
	start(&other, fill);
	struct ibv_sge sge = part(&left, 0, 64);
	pthread_mutex_lock(&lock);
	post_one(IBV_WR_RDMA_WRITE, &sge);
	if (!wrong)
		succeed(left.cq);
	pthread_mutex_unlock(&lock);
	reach(1);
	join_thread(other);
	if (wrong)
		succeed(left.cq);
}

/* Both ends of a ping-pong have one buffer for all messages. */
static void play_with_one_buffer(void)
{
	struct ibv_sge ours = part(&left, 0, 64), theirs = part(&right, 0, 64);
	for (int i = 0; i < 8; i++) {
		post_receive(left.qp, i, &ours);
		post_receive(right.qp, i, &theirs);
	}
	for (int i = 0; i < 8; i++) {
		left.memory[0] = i;
		post_one(IBV_WR_SEND, &ours);
		succeed(right.cq);
		SAME(right.memory[0], i);
		struct ibv_send_wr wr = request(IBV_WR_SEND, &theirs);
		post(right.qp, &wr);
		if (wrong && i == 7)
			right.memory[0] = 0;
		for (int ended = 0; ended < 2; ended++)
			succeed(left.cq);
		succeed(right.cq);
		SAME(left.memory[0], i);
	}
}

/* What a process tells the other one. */
struct place {
	uint32_t qp;
	union ibv_gid gid;
};

/* The other process. */
static int other_process;
static pid_t child;

static void await_other(void)
{
	char byte = 0;
	CHECK(write(other_process, &byte, 1) == 1);
	CHECK(read(other_process, &byte, 1) == 1);
}

/* Continues in two processes, each with one end. Peers may only send messages. Returns this process's end. */
static struct end *split(void)
{
	int sockets[2];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	child = fork();
	CHECK(child >= 0);
	alarm(CASE_TIMEOUT_SECONDS);
	other_process = sockets[child == 0];
	struct end *own = child ? &left : &right;
	open_end_with(own, child ? "left" : "right", IBV_ACCESS_LOCAL_WRITE);
	own->qp = make_qp(own, IBV_QPT_RC);
	struct place here = { own->qp->qp_num, own->gid }, there;
	CHECK(write(other_process, &here, sizeof(here)) == sizeof(here));
	CHECK(read(other_process, &there, sizeof(there)) == sizeof(there));
	to_init(own->qp);
	to_rts(own->qp, there.qp, there.gid);
	return own;
}

static void end_process(struct end *own)
{
	await_other();
	close_end(own);
	if (child == 0)
		exit(0);
	CHECK(waitpid(child, NULL, 0) == child);
}

static void store_in_one_of_two_processes(void)
{
	struct end *own = split();
	struct ibv_sge sge = part(own, 0, 64);
	if (own == &right)
		post_receive(own->qp, 0, &sge);
	await_other();
	if (own == &left) {
		struct ibv_send_wr wr = request(IBV_WR_SEND, &sge);
		post(own->qp, &wr);
		if (wrong)
			own->memory[7] = 1;
	}
	succeed(own->cq);
	own->memory[7] = 2;
	end_process(own);
}

static void load_in_one_of_two_processes(void)
{
	struct end *own = split();
	struct ibv_sge sge = part(own, 0, 64);
	if (own == &right)
		post_receive(own->qp, 0, &sge);
	await_other();
	if (own == &left) {
		struct ibv_send_wr wr = request(IBV_WR_SEND, &sge);
		post(own->qp, &wr);
		succeed(own->cq);
	}
	/* The message has arrived, and only the first process knows it. */
	await_other();
	if (own == &right) {
		if (wrong)
			seen = own->memory[9];
		succeed(own->cq);
	}
	seen = own->memory[9];
	end_process(own);
}

/* One buffer for all messages, and for both directions. The reply tells that the message was received. */
static void play_in_two_processes(void)
{
	struct end *own = split();
	struct ibv_sge sge = part(own, 0, 64);
	for (int i = 0; i < 4; i++)
		post_receive(own->qp, i, &sge);
	await_other();
	for (int i = 0; i < 4; i++) {
		struct ibv_send_wr wr = request(IBV_WR_SEND, &sge);
		if (own == &right)
			succeed(own->cq);
		own->memory[0] = i;
		post(own->qp, &wr);
		if (wrong && own == &left && i == 0)
			own->memory[0] = 9;
		succeed(own->cq);
		if (own == &left)
			succeed(own->cq);
	}
	end_process(own);
}

#define PROGRAM(name) { #name, name, 1 }
#define PROGRAM_OF_TWO_PROCESSES(name) { #name, name, 0 }

static const struct {
	const char *name;
	void (*run)(void);
	int has_both_ends;
} programs[] = {
	PROGRAM(store_after_post),
	PROGRAM(store_after_connection),
	PROGRAM(load_receive_early),
	PROGRAM(load_read_early),
	PROGRAM(load_write_target),
	PROGRAM(store_read_source),
	PROGRAM(write_through_two),
	PROGRAM(count_together),
	PROGRAM(reuse_after_other_thread),
	PROGRAM(poll_on_memory),
	PROGRAM(fill_two_buffers),
	PROGRAM(read_ring_of_receives),
	PROGRAM(wait_for_event),
	PROGRAM(free_while_sent),
	PROGRAM(load_before_immediate),
	PROGRAM(fill_under_a_lock),
	PROGRAM(play_with_one_buffer),
	PROGRAM_OF_TWO_PROCESSES(store_in_one_of_two_processes),
	PROGRAM_OF_TWO_PROCESSES(load_in_one_of_two_processes),
	PROGRAM_OF_TWO_PROCESSES(play_in_two_processes),
};

int main(int words, char **word)
{
	static struct report alone = { .runs_alone = 1 };
	report = &alone;
	alarm(CASE_TIMEOUT_SECONDS);
	CHECK(words == 3);
	wrong = strcmp(word[2], "wrong") == 0;
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		if (strcmp(programs[i].name, word[1]) != 0)
			continue;
		if (programs[i].has_both_ends)
			open_and_join();
		programs[i].run();
		if (programs[i].has_both_ends)
			close_both();
		return 0;
	}
	COMPLAIN("there is no program `%s`", word[1]);
}
