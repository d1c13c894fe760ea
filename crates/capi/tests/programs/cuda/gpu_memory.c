/* Memory of a GPU: the processor can't touch it, and every byte goes through libcuda. The library here is a stand-in, whose memory
 * has no access rights: a forgotten access of the processor ends the case with a signal. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/mman.h>
#include "../check.h"
#include "stand_in.h"

#define MIB ((size_t)1 << 20)
#define SIZE (3 * MIB)

static const struct stand_in *cuda;

static void load_cuda(void)
{
	const char *path = getenv("CUDA_STAND_IN");
	CHECK(path != NULL);
	void *library = dlopen(path, RTLD_NOW);
	CHECK(library != NULL);
	cuda = dlsym(library, "stand_in");
	CHECK(cuda != NULL);
}

/* Registered memory, of a GPU or of the host, and where this program sees its bytes. */
struct memory {
	struct ibv_mr *mr;
	uint64_t address;
	unsigned char *bytes;
};

static struct memory on_gpu(struct end *end, size_t size)
{
	struct memory it = { .address = cuda->allocate(size) };
	it.bytes = cuda->window(it.address);
	it.mr = ibv_reg_mr(end->pd, (void *)it.address, size, EVERYTHING);
	CHECK(it.mr != NULL);
	SAME(it.mr->length, size);
	CHECK((uint64_t)it.mr->addr == it.address);
	return it;
}

static struct memory on_host(struct end *end, size_t size)
{
	struct memory it = { .bytes = aligned_alloc(4096, size) };
	it.address = (uintptr_t)it.bytes;
	it.mr = ibv_reg_mr(end->pd, it.bytes, size, EVERYTHING);
	CHECK(it.mr != NULL);
	return it;
}

static void forget(struct memory it)
{
	CHECK(ibv_dereg_mr(it.mr) == 0);
}

static struct ibv_sge piece(struct memory it, size_t offset, uint32_t length)
{
	return (struct ibv_sge){ .addr = it.address + offset, .length = length, .lkey = it.mr->lkey };
}

static void fill(struct memory it, unsigned seed)
{
	for (size_t i = 0; i < it.mr->length; i++)
		it.bytes[i] = (seed + i * 7 + (i >> 8) * 13) & 0xff;
}

/* One-sided requests of every length, between all kinds of memory. */
static const size_t lengths[] = { 1, 7, 8, 64, 1000, 1024, 1025, 5000, 65536, 100001, MIB, 2 * MIB + 77 };

static void move(enum ibv_wr_opcode opcode, struct memory own, struct memory other)
{
	struct memory from = opcode == IBV_WR_RDMA_READ ? other : own;
	struct memory to = opcode == IBV_WR_RDMA_READ ? own : other;
	static unsigned seed;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t length = lengths[i], there = 5 + 8 * (i % 2), here = 1 + i % 3;
		fill(from, ++seed);
		fill(to, ~seed);
		unsigned char *expected = malloc(SIZE);
		memcpy(expected, to.bytes, SIZE);
		size_t from_offset = opcode == IBV_WR_RDMA_READ ? there : here;
		size_t to_offset = opcode == IBV_WR_RDMA_READ ? here : there;
		memcpy(expected + to_offset, from.bytes + from_offset, length);
		struct ibv_sge sge = piece(own, here, length);
		struct ibv_send_wr wr = request(opcode, &sge);
		wr.wr.rdma.remote_addr = other.address + there;
		wr.wr.rdma.rkey = other.mr->rkey;
		SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
		CHECK(memcmp(to.bytes, expected, SIZE) == 0);
		free(expected);
	}
}

static void every_byte_is_written_and_read(void)
{
	struct memory host = on_host(&left, SIZE), gpu = on_gpu(&left, SIZE);
	struct memory far_host = on_host(&right, SIZE), far_gpu = on_gpu(&right, SIZE);
	for (int reads = 0; reads < 2; reads++) {
		enum ibv_wr_opcode opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		move(opcode, host, far_gpu);
		move(opcode, gpu, far_host);
		move(opcode, gpu, far_gpu);
	}
	forget(host);
	forget(gpu);
	forget(far_host);
	forget(far_gpu);
}

/* A message out of several pieces, into several pieces, each on a GPU or not, that does not fill the receive. */
static void messages_are_gathered_and_scattered(void)
{
	struct memory host = on_host(&left, SIZE), gpu = on_gpu(&left, SIZE);
	struct memory far_host = on_host(&right, SIZE), far_gpu = on_gpu(&right, SIZE);
	for (uint32_t unit = 3; unit < 60000; unit = unit * 5 + 1) {
		fill(host, unit);
		fill(gpu, 2 * unit);
		fill(far_host, 0);
		fill(far_gpu, 0);
		struct ibv_sge out[] = { piece(gpu, 9, unit), piece(host, 3, 2 * unit), piece(gpu, 4 * unit, unit) };
		struct ibv_sge in[] = { piece(far_host, 1, unit / 2), piece(far_gpu, 2, 3 * unit),
					piece(far_host, MIB, 2 * unit) };
		struct ibv_recv_wr receive = { .sg_list = in, .num_sge = 3 }, *bad;
		CHECK(ibv_post_recv(right.qp, &receive, &bad) == 0);
		struct ibv_send_wr wr = request(IBV_WR_SEND, out);
		wr.num_sge = 3;
		SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
		struct ibv_wc wc = wait_for(right.cq);
		SAME(wc.status, IBV_WC_SUCCESS);
		SAME(wc.byte_len, 4 * unit);
		unsigned char *sent = malloc(4 * unit), *received = malloc(4 * unit);
		memcpy(sent, gpu.bytes + 9, unit);
		memcpy(sent + unit, host.bytes + 3, 2 * unit);
		memcpy(sent + 3 * unit, gpu.bytes + 4 * unit, unit);
		memcpy(received, far_host.bytes + 1, unit / 2);
		uint32_t second = 3 * unit, third = 4 * unit - unit / 2 - second;
		memcpy(received + unit / 2, far_gpu.bytes + 2, second);
		memcpy(received + unit / 2 + second, far_host.bytes + MIB, third);
		CHECK(memcmp(sent, received, 4 * unit) == 0);
		free(sent);
		free(received);
	}
	forget(host);
	forget(gpu);
	forget(far_host);
	forget(far_gpu);
}

/* A receive that is longer than the message: its bytes are there although more would have room. */
static void a_receive_is_complete_when_it_says_so(void)
{
	struct memory far_gpu = on_gpu(&right, SIZE);
	for (uint32_t length = 1; length <= 8192; length = length * 3 + 2) {
		memset(left.memory, length & 0xff, sizeof(left.memory));
		struct ibv_sge in = piece(far_gpu, length, 2 * MIB), out = part(&left, 0, length);
		post_receive(right.qp, 0, &in);
		struct ibv_send_wr wr = request(IBV_WR_SEND, &out);
		post(left.qp, &wr);
		SAME(wait_for(right.cq).byte_len, length);
		CHECK(memcmp(far_gpu.bytes + length, left.memory, length) == 0);
		SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
	}
	forget(far_gpu);
}

static void inline_data_is_written(void)
{
	struct memory far_gpu = on_gpu(&right, 4096);
	char data[] = "inline data of the host";
	struct ibv_sge sge = { .addr = (uintptr_t)data, .length = sizeof(data) };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.send_flags |= IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = far_gpu.address + 3;
	wr.wr.rdma.rkey = far_gpu.mr->rkey;
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	CHECK(memcmp(far_gpu.bytes + 3, data, sizeof(data)) == 0);
	forget(far_gpu);
}

static void datagrams_are_received(void)
{
	struct memory gpu = on_gpu(&left, 4096), far_gpu = on_gpu(&right, 4096);
	struct ibv_qp *from = make_qp(&left, IBV_QPT_UD), *to = make_qp(&right, IBV_QPT_UD);
	join(from, to);
	struct ibv_ah_attr way = { .is_global = 1, .port_num = 1, .grh = { .dgid = right.gid, .hop_limit = 64 } };
	struct ibv_ah *ah = ibv_create_ah(left.pd, &way);
	CHECK(ah != NULL);
	fill(gpu, 4);
	struct ibv_sge in = piece(far_gpu, 8, 2000), out = piece(gpu, 1, 1000);
	post_receive(to, 0, &in);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &out);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = to->qp_num;
	wr.wr.ud.remote_qkey = QUEUE_KEY;
	post(from, &wr);
	SAME(wait_for(right.cq).byte_len, 1040);
	CHECK(memcmp(far_gpu.bytes + 48, gpu.bytes + 1, 1000) == 0);
	SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
	CHECK(ibv_destroy_ah(ah) == 0);
	CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
	forget(gpu);
	forget(far_gpu);
}

static enum ibv_wc_status change_word(struct memory result, struct memory target, size_t offset,
				      enum ibv_wr_opcode opcode, uint64_t operand, uint64_t swap)
{
	struct ibv_sge sge = piece(result, 16, 8);
	struct ibv_send_wr wr = request(opcode, &sge);
	wr.wr.atomic.remote_addr = target.address + offset;
	wr.wr.atomic.rkey = target.mr->rkey;
	wr.wr.atomic.compare_add = operand;
	wr.wr.atomic.swap = swap;
	return fate_of(&left, &wr);
}

static void words_are_changed_atomically(void)
{
	struct memory gpu = on_gpu(&left, 4096), far_gpu = on_gpu(&right, 4096);
	uint64_t *word = (uint64_t *)(far_gpu.bytes + 64), *result = (uint64_t *)(gpu.bytes + 16);
	*word = 40;
	SAME(change_word(gpu, far_gpu, 64, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0), IBV_WC_SUCCESS);
	SAME(*word, 42);
	SAME(*result, 40);
	SAME(change_word(gpu, far_gpu, 64, IBV_WR_ATOMIC_CMP_AND_SWP, 41, 7), IBV_WC_SUCCESS);
	SAME(*word, 42);
	SAME(change_word(gpu, far_gpu, 64, IBV_WR_ATOMIC_CMP_AND_SWP, 42, 7), IBV_WC_SUCCESS);
	SAME(*word, 7);
	SAME(*result, 42);
	forget(gpu);
	forget(far_gpu);
}

/* A message that is cut off leaves nothing behind that a later one takes for its own bytes. */
static void bytes_that_were_read_ahead_are_not_sent_later(void)
{
	struct memory gpu = on_gpu(&left, SIZE), far_host = on_host(&right, SIZE);
	fill(gpu, 1);
	for (int too_small = 1; too_small >= 0; too_small--) {
		struct ibv_sge out = piece(gpu, 3, MIB), in = piece(far_host, 0, too_small ? 70000 : MIB);
		post_receive(right.qp, 0, &in);
		struct ibv_send_wr wr = request(IBV_WR_SEND, &out);
		SAME(fate_of(&left, &wr), too_small ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS);
		SAME(wait_for(right.cq).status, too_small ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS);
		if (too_small) {
			CHECK(ibv_destroy_qp(left.qp) == 0 && ibv_destroy_qp(right.qp) == 0);
			left.qp = make_qp(&left, IBV_QPT_RC);
			right.qp = make_qp(&right, IBV_QPT_RC);
			join(left.qp, right.qp);
			fill(gpu, 2);
		}
	}
	CHECK(memcmp(far_host.bytes, gpu.bytes + 3, MIB) == 0);
	forget(gpu);
	forget(far_host);
}

static enum ibv_wc_status one_sided(enum ibv_wr_opcode opcode, struct memory own, struct memory other, uint32_t length)
{
	struct ibv_sge sge = piece(own, 0, length);
	struct ibv_send_wr wr = request(opcode, &sge);
	wr.wr.rdma.remote_addr = other.address;
	wr.wr.rdma.rkey = other.mr->rkey;
	return fate_of(&left, &wr);
}

/* Sets the timeout after which packets are sent again; 0 is never. The queue pair has no requests. */
static void set_timeout(struct ibv_qp *qp, uint8_t code)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .timeout = code };
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
}

static void a_short_message_is_one_copy_and_a_long_one_a_few(void)
{
	struct memory host = on_host(&left, SIZE), gpu = on_gpu(&right, SIZE);
	struct stand_in_counts before = cuda->counts();
	/* A READ whose response is late would be executed again, with a second copy. */
	set_timeout(left.qp, 0);
	SAME(one_sided(IBV_WR_RDMA_WRITE, host, gpu, 64), IBV_WC_SUCCESS);
	SAME(one_sided(IBV_WR_RDMA_READ, host, gpu, 64), IBV_WC_SUCCESS);
	struct stand_in_counts after = cuda->counts();
	SAME(after.to_device - before.to_device, 1);
	SAME(after.to_host - before.to_host, 1);
	SAME(after.waits - before.waits, 2);
	set_timeout(left.qp, ACK_TIMEOUT);
	SAME(one_sided(IBV_WR_RDMA_WRITE, host, gpu, MIB), IBV_WC_SUCCESS);
	SAME(one_sided(IBV_WR_RDMA_READ, host, gpu, MIB), IBV_WC_SUCCESS);
	struct stand_in_counts last = cuda->counts();
	CHECK(last.to_device - after.to_device <= 4);
	/* A packet that was lost is read again, and what follows it. */
	CHECK(last.to_host - after.to_host <= 64);
	forget(host);
	forget(gpu);
}

static void a_copy_that_fails_fails_the_request(void)
{
	static const char *const of_writes[] = { "cuMemcpyHtoDAsync", "cuStreamSynchronize", "cuCtxPushCurrent" };
	struct memory host = on_host(&left, SIZE), gpu = on_gpu(&right, SIZE);
	for (size_t i = 0; i < 3; i++) {
		for (uint32_t length = 8; length <= MIB; length *= 64) {
			left.qp = make_qp(&left, IBV_QPT_RC);
			right.qp = make_qp(&right, IBV_QPT_RC);
			join(left.qp, right.qp);
			cuda->fail(of_writes[i]);
			SAME(one_sided(IBV_WR_RDMA_WRITE, host, gpu, length), IBV_WC_REM_ACCESS_ERR);
			cuda->fail(NULL);
			CHECK(ibv_destroy_qp(left.qp) == 0 && ibv_destroy_qp(right.qp) == 0);
		}
	}
	/* Nobody knows which bytes are missing, until the region is registered anew. */
	for (int anew = 0; anew < 2; anew++) {
		if (anew) {
			forget(gpu);
			gpu = on_gpu(&right, SIZE);
		}
		left.qp = make_qp(&left, IBV_QPT_RC);
		right.qp = make_qp(&right, IBV_QPT_RC);
		join(left.qp, right.qp);
		SAME(one_sided(IBV_WR_RDMA_WRITE, host, gpu, 8), anew ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
		CHECK(ibv_destroy_qp(left.qp) == 0 && ibv_destroy_qp(right.qp) == 0);
	}
	forget(host);
	forget(gpu);
	left.qp = right.qp = NULL;
}

static void own_memory_that_fails_is_an_error_of_the_request(void)
{
	struct memory gpu = on_gpu(&left, SIZE), far_host = on_host(&right, SIZE);
	cuda->fail("cuMemcpyDtoHAsync");
	SAME(one_sided(IBV_WR_RDMA_WRITE, gpu, far_host, 5000), IBV_WC_LOC_PROT_ERR);
	cuda->fail(NULL);
	forget(gpu);
	forget(far_host);
}

static void memory_that_the_program_freed_is_not_accessed(void)
{
	struct memory host = on_host(&left, SIZE), gpu = on_gpu(&right, SIZE);
	cuda->release(gpu.address);
	SAME(one_sided(IBV_WR_RDMA_WRITE, host, gpu, 5000), IBV_WC_REM_ACCESS_ERR);
	forget(host);
	forget(gpu);
}

static void registrations_are_checked(void)
{
	void *reserved = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	RETURNS_NULL(ibv_reg_mr(left.pd, reserved, 4096, EVERYTHING), EFAULT);
	uint64_t gpu = cuda->allocate(10000);
	RETURNS_NULL(ibv_reg_mr(left.pd, (void *)gpu, 10001, EVERYTHING), EFAULT);
	RETURNS_NULL(ibv_reg_mr(left.pd, (void *)gpu, 0, EVERYTHING), EINVAL);
	RETURNS_NULL(ibv_reg_mr(left.pd, (void *)(gpu + 1), 10000, EVERYTHING), EFAULT);
	static const char *const of_registrations[] = { "cuCtxCreate", "cuCtxPushCurrent", "cuMemHostRegister" };
	for (size_t i = 0; i < 3; i++) {
		cuda->fail(of_registrations[i]);
		RETURNS_NULL(ibv_reg_mr(left.pd, (void *)gpu, 10000, EVERYTHING), EFAULT);
	}
	cuda->fail(NULL);
	RETURNS_NULL(ibv_reg_mr(left.pd, (void *)gpu, 10000, EVERYTHING | IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
	RETURNS_NULL(ibv_reg_mr(left.pd, (void *)gpu, 10000, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	struct ibv_mr *mr = ibv_reg_mr(left.pd, (void *)gpu, 10000, EVERYTHING);
	CHECK(mr != NULL);
	uint64_t other = cuda->allocate(20000);
	SAME(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)other, 20000, 0), 0);
	SAME(mr->length, 20000);
	CHECK(ibv_dereg_mr(mr) == 0);
	cuda->release(gpu);
	RETURNS_NULL(ibv_reg_mr(left.pd, (void *)gpu, 10000, EVERYTHING), EFAULT);
}

static void managed_memory_is_like_any_other(void)
{
	uint64_t managed = cuda->allocate_managed(SIZE);
	struct ibv_mr *mr = ibv_reg_mr(right.pd, (void *)managed, SIZE, EVERYTHING);
	CHECK(mr != NULL);
	struct memory there = { mr, managed, (void *)managed }, host = on_host(&left, SIZE);
	fill(host, 9);
	SAME(one_sided(IBV_WR_RDMA_WRITE, host, there, MIB), IBV_WC_SUCCESS);
	CHECK(memcmp(host.bytes, there.bytes, MIB) == 0);
	SAME(cuda->counts().waits, 0);
	struct ibv_mr *on_demand = ibv_reg_mr(right.pd, (void *)managed, SIZE, EVERYTHING | IBV_ACCESS_ON_DEMAND);
	CHECK(on_demand != NULL && ibv_dereg_mr(on_demand) == 0);
	forget(host);
	forget(there);
}

/* A file that can't be mapped, as a DMA-buf of CUDA memory. */
static int unmappable(void)
{
	int file = memfd_create("dma-buf", 0);
	CHECK(file >= 0 && ftruncate(file, SIZE) == 0);
	char name[64];
	snprintf(name, sizeof(name), "/proc/self/fd/%d", file);
	int again = open(name, O_WRONLY);
	CHECK(again >= 0);
	close(file);
	return again;
}

static void a_dma_buf_that_cannot_be_mapped_is_found_by_its_address(void)
{
	int file = unmappable();
	int access = EVERYTHING & ~IBV_ACCESS_MW_BIND;
	uint64_t address = cuda->allocate(SIZE);
	RETURNS_NULL(ibv_reg_dmabuf_mr(right.pd, 0, SIZE, 0, file, access), EOPNOTSUPP);
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(right.pd, 4096, MIB, address + 4096, file, access);
	CHECK(mr != NULL);
	CHECK(mr->addr == (void *)4096 && mr->length == MIB);
	struct memory there = { mr, address + 4096, cuda->window(address + 4096) }, host = on_host(&left, SIZE);
	fill(host, 3);
	SAME(one_sided(IBV_WR_RDMA_WRITE, host, there, MIB), IBV_WC_SUCCESS);
	CHECK(memcmp(host.bytes, there.bytes, MIB) == 0);
	forget(host);
	forget(there);
	close(file);
}

/* Two processes, each with a GPU's memory: through rings in shared memory. */
struct card {
	uint32_t number, key;
	uint64_t address;
	union ibv_gid gid;
};

static void exchange(int in, int out, struct end *end, struct memory memory, struct ibv_sge receive,
		     struct card *peer)
{
	struct card own = { end->qp->qp_num, memory.mr->rkey, memory.address, end->gid };
	CHECK(write(out, &own, sizeof(own)) == sizeof(own));
	CHECK(read(in, peer, sizeof(*peer)) == sizeof(*peer));
	to_init(end->qp);
	post_receive(end->qp, 1, &receive);
	to_rts(end->qp, peer->number, peer->gid);
	char ready = 1;
	CHECK(write(out, &ready, 1) == 1 && read(in, &ready, 1) == 1);
}

static void serve(int in, int out)
{
	struct card peer;
	open_end(&right, "right");
	right.qp = make_qp(&right, IBV_QPT_RC);
	struct memory gpu = on_gpu(&right, SIZE);
	fill(gpu, 77);
	struct ibv_sge sge = piece(gpu, 2 * MIB, MIB);
	exchange(in, out, &right, gpu, sge, &peer);
	SAME(wait_for(right.cq).byte_len, 500000);
	/* What came by WRITE came before what came by SEND. */
	CHECK(memcmp(gpu.bytes + 7, gpu.bytes + 2 * MIB, 500000) == 0);
	struct ibv_sge answer = piece(gpu, 2 * MIB, 500000);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &answer);
	SAME(fate_of(&right, &wr), IBV_WC_SUCCESS);
	char done;
	CHECK(read(in, &done, 1) == 1);
	forget(gpu);
	close_end(&right);
}

static void two_processes_exchange_messages(void)
{
	int down[2], up[2];
	CHECK(pipe(down) == 0 && pipe(up) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		serve(down[0], up[1]);
		exit(0);
	}
	struct card peer;
	open_end(&left, "left");
	left.qp = make_qp(&left, IBV_QPT_RC);
	struct memory gpu = on_gpu(&left, SIZE);
	fill(gpu, 5);
	struct ibv_sge out = piece(gpu, 3, 500000), in = piece(gpu, MIB + 5, 500000);
	exchange(up[0], down[1], &left, gpu, in, &peer);
	struct ibv_send_wr wr = { .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .wr.rdma = { peer.address + 7, peer.key } };
	post(left.qp, &wr);
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED;
	post(left.qp, &wr);
	for (int i = 0; i < 2; i++)
		SAME(wait_for(left.cq).status, IBV_WC_SUCCESS);
	CHECK(memcmp(gpu.bytes + 3, gpu.bytes + MIB + 5, 500000) == 0);
	fill(gpu, 6);
	struct ibv_sge back = piece(gpu, 11, 500000);
	wr = (struct ibv_send_wr){ .sg_list = &back, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
				   .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { peer.address + 7, peer.key } };
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	struct memory expected = on_host(&left, SIZE);
	fill(expected, 5);
	CHECK(memcmp(gpu.bytes + 11, expected.bytes + 3, 500000) == 0);
	char done = 1;
	CHECK(write(down[1], &done, 1) == 1);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	forget(expected);
	forget(gpu);
	close_end(&left);
}

static void open_one_device(void)
{
	load_cuda();
	open_left();
	right = left;
	right.cq = ibv_create_cq(left.context, 64, &right, left.channel, 0);
	CHECK(right.cq != NULL);
	left.qp = make_qp(&left, IBV_QPT_RC);
	right.qp = make_qp(&right, IBV_QPT_RC);
	join(left.qp, right.qp);
}

static void close_one_device(void)
{
	if (right.qp)
		CHECK(ibv_destroy_qp(right.qp) == 0);
	CHECK(ibv_destroy_cq(right.cq) == 0);
	close_left();
}

static void open_two_devices(void)
{
	load_cuda();
	open_and_join();
}

static void open_two_without_queue_pairs(void)
{
	load_cuda();
	open_both();
}

static void close_nothing(void)
{
}

static void without_libcuda_it_is_unmapped_memory(void)
{
	void *reserved = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	RETURNS_NULL(ibv_reg_mr(left.pd, reserved, 4096, EVERYTHING), EFAULT);
	CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL);
}

#define ON_ONE(function) { #function " (one device)", function, open_one_device, close_one_device }
#define ON_TWO(function) { #function " (two devices)", function, open_two_devices, close_both }
#define ON_BOTH(function) ON_ONE(function), ON_TWO(function)

static const struct test_case cases[] = {
	WITH_LEFT(without_libcuda_it_is_unmapped_memory),
	ON_BOTH(every_byte_is_written_and_read),
	ON_BOTH(messages_are_gathered_and_scattered),
	ON_BOTH(a_receive_is_complete_when_it_says_so),
	ON_BOTH(inline_data_is_written),
	ON_BOTH(datagrams_are_received),
	ON_BOTH(words_are_changed_atomically),
	ON_BOTH(bytes_that_were_read_ahead_are_not_sent_later),
	ON_BOTH(a_short_message_is_one_copy_and_a_long_one_a_few),
	ON_BOTH(own_memory_that_fails_is_an_error_of_the_request),
	ON_BOTH(memory_that_the_program_freed_is_not_accessed),
	ON_BOTH(managed_memory_is_like_any_other),
	ON_BOTH(a_dma_buf_that_cannot_be_mapped_is_found_by_its_address),
	{ "a_copy_that_fails_fails_the_request", a_copy_that_fails_fails_the_request, open_two_without_queue_pairs,
	  close_both },
	{ "registrations_are_checked", registrations_are_checked, open_two_without_queue_pairs, close_both },
	{ "two_processes_exchange_messages", two_processes_exchange_messages, load_cuda, close_nothing },
};

int main(int words, char **word)
{
	return RUN(cases, words, word);
}
