/* Regions, windows, device memory, null regions, and memory that isn't there. */
#include <sys/mman.h>
#include "check.h"

static void register_what_is_not_there(struct end *end)
{
	char *hole = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(hole != MAP_FAILED);
	CHECK(munmap(hole + 4096, 4096) == 0);
	REFUSES_POINTER(ibv_reg_mr(end->pd, hole, 3 * 4096, EVERYTHING), EFAULT);
	REFUSES_POINTER(ibv_reg_mr(end->pd, hole + 4096, 16, 0), EFAULT);
	struct ibv_mr *mr = ibv_reg_mr(end->pd, hole, 4096, EVERYTHING);
	CHECK(mr != NULL && ibv_dereg_mr(mr) == 0);

	char *constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
			      -1, 0);
	REFUSES_POINTER(ibv_reg_mr(end->pd, constant, 4096, EVERYTHING), EFAULT);
	mr = ibv_reg_mr(end->pd, constant, 4096, IBV_ACCESS_REMOTE_READ);
	CHECK(mr != NULL && ibv_dereg_mr(mr) == 0);

	/* Without permission even to read. */
	CHECK(mprotect(constant, 4096, PROT_NONE) == 0);
	REFUSES_POINTER(ibv_reg_mr(end->pd, constant, 4096, 0), EFAULT);
	/* On demand it may come later. */
	mr = ibv_reg_mr(end->pd, hole + 4096, 4096,
			IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL && ibv_dereg_mr(mr) == 0);
	mr = ibv_reg_mr(end->pd, NULL, SIZE_MAX,
			IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL && ibv_dereg_mr(mr) == 0);
	munmap(hole, 4096);
	munmap(hole + 2 * 4096, 4096);
	munmap(constant, 4096);
}

static void register_with_rights(struct end *end)
{
	REFUSES_POINTER(ibv_reg_mr(end->pd, end->memory, 16,
				   IBV_ACCESS_REMOTE_WRITE),
			EINVAL);
	REFUSES_POINTER(ibv_reg_mr(end->pd, end->memory, 0, 0), EINVAL);
	int unknown = 1 << 15;
	REFUSES_POINTER(ibv_reg_mr(end->pd, end->memory, 16, unknown), EINVAL);
	struct ibv_mr *mr = ibv_reg_mr(end->pd, end->memory, 16,
				       IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr != NULL);
	CHECK(mr->addr == end->memory && mr->length == 16);
	REFUSES(ibv_dealloc_pd(end->pd), EBUSY);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   EVERYTHING) == 0);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
			   end->memory + 64, 64, 0) == 0);
	CHECK(mr->addr == end->memory + 64 && mr->length == 64);
	CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	struct ibv_sge sge = { .addr = (uintptr_t)end->memory + 64,
			       .length = 64,
			       .lkey = mr->lkey };
	CHECK(ibv_advise_mr(end->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge,
			    1) == 0);
	sge.length = 65;
	REFUSES(ibv_advise_mr(end->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1),
		EFAULT);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void use_device_memory(struct end *end)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(end->context, &attr);
	CHECK(dm != NULL);
	char out[64], in[64] = "kept by the device";
	CHECK(ibv_memcpy_to_dm(dm, 0, in, 64) == 0);
	CHECK(ibv_memcpy_from_dm(out, dm, 0, 64) == 0);
	CHECK(memcmp(in, out, 64) == 0);
	REFUSES(ibv_memcpy_from_dm(out, dm, 32, 64), EINVAL);
	struct ibv_mr *mr = ibv_reg_dm_mr(end->pd, dm, 0, 64,
					  IBV_ACCESS_ZERO_BASED |
						  IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL);
	REFUSES(ibv_free_dm(dm), EBUSY);
	REFUSES_POINTER(ibv_reg_dm_mr(end->pd, dm, 60, 8, IBV_ACCESS_ZERO_BASED),
			EINVAL);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_free_dm(dm) == 0);
}

/* What goes to a null region is gone, what comes from it is zero. */
static void use_null_region(struct end *a, struct end *b)
{
	struct ibv_mr *null = ibv_alloc_null_mr(a->pd);
	CHECK(null != NULL);
	memset(b->memory, 0xee, 16);
	struct ibv_sge sge = { .addr = 0, .length = 16, .lkey = null->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)b->memory,
			     .rkey = b->mr->rkey },
	};
	struct ibv_send_wr *bad;
	CHECK(ibv_post_send(a->qp, &wr, &bad) == 0);
	CHECK(wait_for(a->cq).status == IBV_WC_SUCCESS);
	for (int i = 0; i < 16; i++)
		CHECK(b->memory[i] == 0);
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(ibv_post_send(a->qp, &wr, &bad) == 0);
	CHECK(wait_for(a->cq).status == IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(null) == 0);
}

static struct ibv_wc write_through(struct end *from, uint32_t key, uint64_t to)
{
	struct ibv_sge sge = { .addr = (uintptr_t)from->memory,
			       .length = 8,
			       .lkey = from->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = to, .rkey = key },
	};
	struct ibv_send_wr *bad;
	CHECK(ibv_post_send(from->qp, &wr, &bad) == 0);
	return wait_for(from->cq);
}

/* What the program has unmapped is refused, and comes to life with its pages. */
static void use_memory_on_demand(struct end *a, struct end *b)
{
	int access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE |
		     IBV_ACCESS_REMOTE_WRITE;
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	struct ibv_mr *mr = ibv_reg_mr(b->pd, page, 4096, access);
	if (mr == NULL && !is_ours(b->context))
		return;
	CHECK(mr != NULL);
	memcpy(a->memory, "arrived", 8);
	struct ibv_wc wc = write_through(a, mr->rkey, (uintptr_t)page);
	CHECK(wc.status == IBV_WC_SUCCESS && strcmp(page, "arrived") == 0);
	CHECK(munmap(page, 4096) == 0);
	CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
	wc = write_through(a, mr->rkey, (uintptr_t)page);
	CHECK(wc.status == IBV_WC_SUCCESS && strcmp(page, "arrived") == 0);
	CHECK(mprotect(page, 4096, PROT_READ) == 0);
	wc = write_through(a, mr->rkey, (uintptr_t)page);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
	CHECK(munmap(page, 4096) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	reconnect_ends(a, b);

	/* The sender's own memory is not there either. */
	mr = ibv_reg_mr(a->pd, page, 4096, access);
	CHECK(mr != NULL);
	struct ibv_sge sge = { .addr = (uintptr_t)page, .length = 8,
			       .lkey = mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)b->memory,
			     .rkey = b->mr->rkey },
	};
	struct ibv_send_wr *bad;
	CHECK(ibv_post_send(a->qp, &wr, &bad) == 0);
	CHECK(wait_for(a->cq).status == IBV_WC_LOC_PROT_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
	reconnect_ends(a, b);
}

static void use_windows(struct end *a, struct end *b)
{
	struct ibv_mw *one = ibv_alloc_mw(b->pd, IBV_MW_TYPE_1);
	CHECK(one != NULL);
	uint32_t born = one->rkey;
	struct ibv_mw_bind bind = {
		.wr_id = 7,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = b->mr,
			       .addr = (uintptr_t)b->memory,
			       .length = 64,
			       .mw_access_flags = IBV_ACCESS_REMOTE_WRITE },
	};
	CHECK(ibv_bind_mw(b->qp, one, &bind) == 0);
	struct ibv_wc wc = wait_for(b->cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW);
	CHECK(wc.wr_id == 7 && one->rkey != born);
	memcpy(a->memory, "window", 7);
	wc = write_through(a, one->rkey, (uintptr_t)b->memory);
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(strcmp(b->memory, "window") == 0);
	CHECK(ibv_dereg_mr(b->mr) != 0);

	struct ibv_mw *two = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
	CHECK(two != NULL);
	REFUSES(ibv_bind_mw(b->qp, two, &bind), EINVAL);
	struct ibv_send_wr wr = {
		.wr_id = 8,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = two,
			     .rkey = ibv_inc_rkey(two->rkey),
			     .bind_info = bind.bind_info },
	};
	struct ibv_send_wr *bad;
	CHECK(ibv_post_send(b->qp, &wr, &bad) == 0);
	CHECK(wait_for(b->cq).status == IBV_WC_SUCCESS);
	wc = write_through(a, wr.bind_mw.rkey, (uintptr_t)b->memory);
	CHECK(wc.status == IBV_WC_SUCCESS);
	struct ibv_send_wr invalidate = { .opcode = IBV_WR_LOCAL_INV,
					  .send_flags = IBV_SEND_SIGNALED,
					  .invalidate_rkey = wr.bind_mw.rkey };
	CHECK(ibv_post_send(b->qp, &invalidate, &bad) == 0);
	CHECK(wait_for(b->cq).status == IBV_WC_SUCCESS);
	CHECK(ibv_dealloc_mw(two) == 0);
	CHECK(ibv_dealloc_mw(one) == 0);
	wc = write_through(a, b->mr->rkey, (uintptr_t)b->memory + 8192);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
}

int main(void)
{
	static struct end a, b;
	open_end(&a, "left");
	open_end(&b, "right");
	connect_ends(&a, &b);
	register_what_is_not_there(&a);
	register_with_rights(&a);
	use_device_memory(&a);
	use_null_region(&a, &b);
	use_memory_on_demand(&a, &b);
	use_windows(&a, &b);
	close_end(&a);
	close_end(&b);
	return finish();
}
