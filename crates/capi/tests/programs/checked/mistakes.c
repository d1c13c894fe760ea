/* Small programs with one mistake each, and their corrected versions, for `ROCI_CHECK`. The first word is the name of the
 * program, the second `wrong` or `right`. */
#include <sched.h>
#include <sys/mman.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include "../check.h"

static int wrong;

/* A SEND of `left` that is under way until `finish_send` posts its receive. */
static void send_under_way(struct ibv_sge *sge)
{
	struct ibv_send_wr wr = request(IBV_WR_SEND, sge);
	post(left.qp, &wr);
}

static void finish_send(void)
{
	struct ibv_sge sge = part(&right, 4096, 4096);
	post_receive(right.qp, 0, &sge);
	SAME(wait_for(right.cq).status, IBV_WC_SUCCESS);
	SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
}

/* A first message, so that no later one finds a queue pair without receives. */
static void exchange(void)
{
	struct ibv_sge from = part(&left, 0, 8), to = part(&right, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &from);
	post_receive(right.qp, 0, &to);
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	SAME(wait_for(right.cq).status, IBV_WC_SUCCESS);
}

static void change_message(void)
{
	struct ibv_sge sge = part(&left, 0, 64);
	send_under_way(&sge);
	if (wrong)
		left.memory[63]++;
	finish_send();
	left.memory[63]++;
}

/* The WRITE may end within the post, but the program cannot know that. */
static void change_at_once(void)
{
	struct ibv_sge sge = part(&left, 0, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	post(left.qp, &wr);
	if (wrong)
		left.memory[0]++;
	SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
	left.memory[0]++;
}

/* As a function that registers a variable of its own and forgets that the request outlives it. */
static void reuse_message(void)
{
	struct ibv_sge sge = part(&left, 128, 64);
	for (int i = 0; i < 2; i++) {
		memset(left.memory + 128, 'a' + i, 64);
		send_under_way(&sge);
		if (!wrong)
			finish_send();
	}
	for (int i = 0; wrong && i < 2; i++)
		finish_send();
}

static void read_into_message(void)
{
	struct ibv_qp *other = make_qp(&left, IBV_QPT_RC), *peer = make_qp(&right, IBV_QPT_RC);
	join(other, peer);
	struct ibv_sge sge = part(&left, 0, 64), target = part(&left, wrong ? 56 : 64, 8);
	send_under_way(&sge);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &target);
	post(other, &wr);
	SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
	finish_send();
	CHECK(ibv_destroy_qp(other) == 0 && ibv_destroy_qp(peer) == 0);
}

static void share_receives(void)
{
	for (int i = 0; i < 2; i++) {
		struct ibv_sge sge = part(&right, wrong ? 0 : 64 * i, 64);
		post_receive(right.qp, i, &sge);
	}
}

static void change_receive(void)
{
	struct ibv_sge from = part(&left, 0, 64), to = part(&right, 4096, 64);
	if (!wrong)
		memset(right.memory + 4096, 7, 64);
	post_receive(right.qp, 0, &to);
	if (wrong)
		memset(right.memory + 4096, 7, 64);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &from);
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	SAME(wait_for(right.cq).status, IBV_WC_SUCCESS);
}

/* Two requests through two queue pairs; the right program polls between them. */
static void race(enum ibv_wr_opcode first, enum ibv_wr_opcode second)
{
	struct ibv_qp *other = make_qp(&left, IBV_QPT_RC), *peer = make_qp(&right, IBV_QPT_RC);
	join(other, peer);
	struct ibv_sge one = part(&left, 0, 8), two = part(&left, 8, 8);
	struct ibv_send_wr wr = request(first, &one);
	post(left.qp, &wr);
	if (!wrong)
		SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
	wr = request(second, &two);
	post(other, &wr);
	for (int i = 0; i < 1 + wrong; i++)
		SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
	CHECK(ibv_destroy_qp(other) == 0 && ibv_destroy_qp(peer) == 0);
}

static void write_twice(void)
{
	race(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE);
}

static void write_and_add(void)
{
	race(IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

static void read_then_write(void)
{
	struct ibv_sge one = part(&left, 0, 8), two = part(&left, 8, 8);
	struct ibv_send_wr read = request(IBV_WR_RDMA_READ, &one);
	struct ibv_send_wr write = request(IBV_WR_RDMA_WRITE, &two);
	read.next = &write;
	write.send_flags |= wrong ? 0 : IBV_SEND_FENCE;
	post(left.qp, &read);
	for (int i = 0; i < 2; i++)
		SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
}

static void never_signal(void)
{
	struct ibv_sge sge = part(&left, 0, 8);
	for (int i = 1; i <= 2 * QUEUE_LENGTH; i++) {
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
		int signaled = i % (wrong ? 2 * QUEUE_LENGTH : QUEUE_LENGTH / 2) == 0;
		wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
		struct ibv_wc wc;
		while (ibv_post_send(left.qp, &wr, &bad) != 0)
			CHECK(ibv_poll_cq(left.cq, 1, &wc) == 0);
		if (signaled)
			SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
	}
}

static void destroy_early(void)
{
	struct ibv_sge sge = part(&left, 0, 64);
	send_under_way(&sge);
	if (!wrong)
		finish_send();
	CHECK(ibv_destroy_qp(left.qp) == 0);
	left.qp = NULL;
}

/* Takes the event of a violation by the peer. */
static void fetch_event(void)
{
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(right.context, &event) == 0);
	SAME(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
	ibv_ack_async_event(&event);
}

static void deregister_early(void)
{
	struct ibv_mr *mr = ibv_reg_mr(right.pd, right.memory, 64, EVERYTHING);
	CHECK(mr != NULL);
	uint32_t key = mr->rkey;
	if (wrong)
		CHECK(ibv_dereg_mr(mr) == 0);
	SAME(write_through(key, right.memory), wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
	if (wrong)
		fetch_event();
	else
		CHECK(ibv_dereg_mr(mr) == 0);
}

/* Gives a region other memory and keeps its keys. */
static void move_region(struct ibv_mr *mr, char *to)
{
	int flags = IBV_REREG_MR_CHANGE_TRANSLATION;
	CHECK(ibv_rereg_mr(mr, flags, mr->pd, to, 64, 0) == 0);
}

/* The peer uses the addresses that the region had before. */
static void move_early(void)
{
	struct ibv_mr *mr = ibv_reg_mr(right.pd, right.memory, 64, EVERYTHING);
	CHECK(mr != NULL);
	if (wrong)
		move_region(mr, right.memory + 256);
	SAME(write_through(mr->rkey, right.memory), wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
	if (wrong)
		fetch_event();
	else
		move_region(mr, right.memory + 256);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void move_at_once(void)
{
	struct ibv_mr *mr = ibv_reg_mr(left.pd, left.memory, 64, EVERYTHING);
	CHECK(mr != NULL);
	struct ibv_sge sge = { .addr = (uintptr_t)left.memory, .length = 64, .lkey = mr->lkey };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	post(left.qp, &wr);
	if (wrong)
		move_region(mr, left.memory + 256);
	wait_for(left.cq);
	if (!wrong)
		move_region(mr, left.memory + 256);
	CHECK(ibv_dereg_mr(mr) == 0);
}

/* A block of this size is a mapping of its own, which `free` unmaps. */
static void free_early(void)
{
	size_t length = 4 << 20;
	char *block = malloc(length);
	CHECK(block != NULL);
	struct ibv_mr *mr = ibv_reg_mr(left.pd, block, length, EVERYTHING);
	CHECK(mr != NULL);
	if (wrong)
		free(block);
	CHECK(ibv_dereg_mr(mr) == 0);
	if (!wrong)
		free(block);
}

/* The memory is there, but a device that writes it would not change what the program sees. */
static void change_mapping(int (*change)(void *, size_t))
{
	size_t length = 1 << 20;
	char *block = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(block != MAP_FAILED);
	struct ibv_mr *mr = ibv_reg_mr(left.pd, block, length, EVERYTHING);
	CHECK(mr != NULL);
	if (wrong)
		CHECK(change(block + 8192, 4096) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	if (!wrong)
		CHECK(change(block + 8192, 4096) == 0);
	CHECK(munmap(block, length) == 0);
}

static int protect(void *page, size_t length)
{
	return mprotect(page, length, PROT_READ);
}

static void protect_early(void)
{
	change_mapping(protect);
}

static int map_again(void *page, size_t length)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	return mmap(page, length, PROT_READ | PROT_WRITE, flags, -1, 0) == page ? 0 : -1;
}

static void replace_early(void)
{
	change_mapping(map_again);
}

static int give_back(void *page, size_t length)
{
	return madvise(page, length, MADV_DONTNEED);
}

static void give_back_early(void)
{
	change_mapping(give_back);
}

static void deregister_at_once(void)
{
	struct ibv_mr *mr = ibv_reg_mr(left.pd, left.memory, 64, EVERYTHING);
	CHECK(mr != NULL);
	struct ibv_sge sge = { .addr = (uintptr_t)left.memory, .length = 64, .lkey = mr->lkey };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	post(left.qp, &wr);
	if (wrong)
		CHECK(ibv_dereg_mr(mr) == 0);
	wait_for(left.cq);
	if (!wrong)
		CHECK(ibv_dereg_mr(mr) == 0);
}

/* Two regions of the same memory. */
static void write_by_two_keys(void)
{
	struct ibv_mr *mr = ibv_reg_mr(right.pd, right.memory, 64, EVERYTHING);
	CHECK(mr != NULL);
	struct ibv_qp *other = make_qp(&left, IBV_QPT_RC), *peer = make_qp(&right, IBV_QPT_RC);
	join(other, peer);
	struct ibv_sge one = part(&left, 0, 8), two = part(&left, 8, 8);
	struct ibv_send_wr first = request(IBV_WR_RDMA_WRITE, &one);
	struct ibv_send_wr second = request(IBV_WR_RDMA_WRITE, &two);
	second.wr.rdma.remote_addr = (uintptr_t)right.memory + (wrong ? 0 : 8);
	second.wr.rdma.rkey = mr->rkey;
	post(left.qp, &first);
	post(other, &second);
	for (int i = 0; i < 2; i++)
		SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
	CHECK(ibv_destroy_qp(other) == 0 && ibv_destroy_qp(peer) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void forget_completions(void)
{
	struct ibv_sge sge = part(&left, 0, 8);
	for (int i = 0; i <= QUEUE_LENGTH; i++) {
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
		while (ibv_post_send(left.qp, &wr, &bad) != 0)
			sched_yield();
		if (!wrong)
			SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
	}
	for (int i = 0; wrong && i <= QUEUE_LENGTH; i++)
		SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
}

static void ignore_event(void)
{
	struct ibv_mr *mr = ibv_reg_mr(right.pd, right.memory, 64, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL);
	SAME(write_through(mr->rkey, right.memory), IBV_WC_REM_ACCESS_ERR);
	if (!wrong)
		fetch_event();
	CHECK(ibv_dereg_mr(mr) == 0);
}

/* Such a request fails on every device. The program polls its completion, but no rule of the check is about it. */
static void use_wrong_key(void)
{
	struct ibv_sge sge = part(&left, 0, 64);
	sge.lkey ^= wrong ? 0x100 : 0;
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	SAME(fate_of(&left, &wr), wrong ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
}

static void forget_objects(void)
{
	if (wrong)
		exit(0);
}

/* librdmacm has a domain for each device of an id. That one is not the program's. */
static void forget_domain(void)
{
	struct rdma_cm_id *id;
	struct sockaddr_in address = { .sin_family = AF_INET };
	memcpy(&address.sin_addr, right.gid.raw + 12, 4);
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
	struct ibv_pd *domain = ibv_alloc_pd(id->verbs);
	CHECK(id->pd != NULL && domain != NULL);
	if (!wrong)
		CHECK(ibv_dealloc_pd(domain) == 0);
	CHECK(rdma_destroy_id(id) == 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} programs[] = {
	{ "change_message", change_message },
	{ "change_at_once", change_at_once },
	{ "reuse_message", reuse_message },
	{ "read_into_message", read_into_message },
	{ "share_receives", share_receives },
	{ "change_receive", change_receive },
	{ "write_twice", write_twice },
	{ "write_and_add", write_and_add },
	{ "read_then_write", read_then_write },
	{ "never_signal", never_signal },
	{ "destroy_early", destroy_early },
	{ "deregister_early", deregister_early },
	{ "free_early", free_early },
	{ "protect_early", protect_early },
	{ "replace_early", replace_early },
	{ "give_back_early", give_back_early },
	{ "deregister_at_once", deregister_at_once },
	{ "move_early", move_early },
	{ "move_at_once", move_at_once },
	{ "write_by_two_keys", write_by_two_keys },
	{ "forget_completions", forget_completions },
	{ "ignore_event", ignore_event },
	{ "use_wrong_key", use_wrong_key },
	{ "forget_objects", forget_objects },
	{ "forget_domain", forget_domain },
};

int main(int count, char **word)
{
	if (count != 3)
		return 2;
	wrong = strcmp(word[2], "wrong") == 0;
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		if (strcmp(word[1], programs[i].name) != 0)
			continue;
		open_and_join();
		exchange();
		programs[i].run();
		close_both();
		return 0;
	}
	return 2;
}
