/* Small programs with one mistake each, and their corrected twins, for `ROCI_CHECK`. The first word is the name of the
 * program, the second `wrong` or `right`. */
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

static void deregister_early(void)
{
	struct ibv_mr *mr = ibv_reg_mr(right.pd, right.memory, 64, EVERYTHING);
	CHECK(mr != NULL);
	uint32_t key = mr->rkey;
	if (wrong)
		CHECK(ibv_dereg_mr(mr) == 0);
	SAME(write_through(key, right.memory), wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
	if (!wrong)
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

static void forget_objects(void)
{
	if (wrong)
		exit(0);
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
	{ "write_twice", write_twice },
	{ "write_and_add", write_and_add },
	{ "read_then_write", read_then_write },
	{ "never_signal", never_signal },
	{ "destroy_early", destroy_early },
	{ "deregister_early", deregister_early },
	{ "free_early", free_early },
	{ "forget_objects", forget_objects },
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
