/* DMA-bufs that can be mapped. `udmabuf` makes them of shared memory, and few machines have it; here shared memory stands in
 * for them, which a NIC would not accept. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include "../check.h"

#define PAGE 4096
#define SIZE (16 * PAGE)
#define ACCESS (EVERYTHING & ~IBV_ACCESS_MW_BIND)

static int shared_memory(void)
{
	int file = memfd_create("dma-buf", 0);
	CHECK(file >= 0 && ftruncate(file, SIZE) == 0);
	return file;
}

static char *view_of(int file)
{
	char *view = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(view != MAP_FAILED);
	return view;
}

/* How programs find out whether dma-bufs are supported: NCCL and UCX want EBADF. */
static void a_wrong_descriptor_is_told_from_a_missing_function(void)
{
	RETURNS_NULL(ibv_reg_dmabuf_mr(left.pd, 0, 0, 0, -1, 0), EBADF);
	RETURNS_NULL(ibv_reg_dmabuf_mr(left.pd, 0, PAGE, 0, -1, ACCESS), EBADF);
	int ends[2];
	CHECK(pipe(ends) == 0);
	RETURNS_NULL(ibv_reg_dmabuf_mr(left.pd, 0, PAGE, 0, ends[0], ACCESS), EINVAL);
}

static void offsets_and_lengths_are_checked(void)
{
	int file = shared_memory();
	RETURNS_NULL(ibv_reg_dmabuf_mr(left.pd, 0, SIZE + 1, 0, file, ACCESS), EINVAL);
	RETURNS_NULL(ibv_reg_dmabuf_mr(left.pd, PAGE, SIZE, 0, file, ACCESS), EINVAL);
	RETURNS_NULL(ibv_reg_dmabuf_mr(left.pd, UINT64_MAX, PAGE, PAGE - 1, file, ACCESS), EINVAL);
	RETURNS_NULL(ibv_reg_dmabuf_mr(left.pd, 8, PAGE, 0, file, ACCESS), EINVAL);
	RETURNS_NULL(ibv_reg_dmabuf_mr(left.pd, 0, 0, 0, file, ACCESS), EINVAL);
	RETURNS_NULL(ibv_reg_dmabuf_mr(left.pd, 0, PAGE, 0, file, EVERYTHING), EINVAL);
	RETURNS_NULL(ibv_reg_dmabuf_mr(left.pd, 0, PAGE, 0, file, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	int descriptors = count_descriptors();
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(left.pd, PAGE, PAGE, 0, file, ACCESS);
	CHECK(mr != NULL);
	CHECK(mr->addr == (void *)PAGE && mr->length == PAGE && mr->pd == left.pd);
	check_that_none_is_left_open(descriptors);
	CHECK(ibv_dereg_mr(mr) == 0);
}

/* The program may close the descriptor: the memory stays. */
static void peers_read_and_write_it(void)
{
	int file = shared_memory();
	char *view = view_of(file);
	uint64_t iova = (uint64_t)1 << 40 | 24;
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(right.pd, 2 * PAGE + 24, 3 * PAGE, iova, file, ACCESS);
	CHECK(mr != NULL);
	close(file);
	memset(left.memory, 'w', sizeof(left.memory));
	struct ibv_sge sge = part(&left, 0, 5000);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = iova + 100;
	wr.wr.rdma.rkey = mr->rkey;
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	char *start = view + 2 * PAGE + 24;
	CHECK(start[99] == 0 && start[5100] == 0);
	CHECK(memcmp(start + 100, left.memory, 5000) == 0);
	memset(start, 'r', 3 * PAGE);
	wr.opcode = IBV_WR_RDMA_READ;
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	CHECK(memcmp(start, left.memory, 5000) == 0);
	*(uint64_t *)(start + 8) = 40;
	wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
	sge.length = 8;
	wr.wr.atomic.remote_addr = iova + 8;
	wr.wr.atomic.rkey = mr->rkey;
	wr.wr.atomic.compare_add = 2;
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	SAME(*(uint64_t *)(start + 8), 42);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void a_deregistered_one_is_unmapped(void)
{
	int file = shared_memory();
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(left.pd, 0, SIZE, 0, file, ACCESS);
	CHECK(mr != NULL);
	CHECK(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE) == -1);
	CHECK(ibv_dereg_mr(mr) == 0);
	/* A seal against writes is refused while the file is mapped. */
	int sealable = memfd_create("sealable", MFD_ALLOW_SEALING);
	CHECK(sealable >= 0 && ftruncate(sealable, SIZE) == 0);
	mr = ibv_reg_dmabuf_mr(left.pd, 0, SIZE, 0, sealable, ACCESS);
	CHECK(mr != NULL);
	CHECK(fcntl(sealable, F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EBUSY);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(fcntl(sealable, F_ADD_SEALS, F_SEAL_WRITE) == 0);
}

static const struct test_case cases[] = {
	WITH_LEFT(a_wrong_descriptor_is_told_from_a_missing_function),
	WITH_LEFT(offsets_and_lengths_are_checked),
	WITH_JOINED(peers_read_and_write_it),
	WITH_LEFT(a_deregistered_one_is_unmapped),
};

int main(int words, char **word)
{
	return RUN(cases, words, word);
}
