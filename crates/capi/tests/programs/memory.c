/* Regions, windows, device memory, null regions, and memory that isn't there. */
#include "check.h"

#define PAGE 4096

static char *map(size_t length, int protection)
{
	char *memory = mmap(NULL, length, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

/* Three pages, of which the middle one is missing. */
static char *map_around_a_hole(void)
{
	char *memory = map(3 * PAGE, PROT_READ | PROT_WRITE);
	CHECK(munmap(memory + PAGE, PAGE) == 0);
	return memory;
}

static struct ibv_mr *registered(struct ibv_pd *pd, void *memory, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, length, access);
	CHECK(mr != NULL);
	return mr;
}

static void a_region_has_its_address_and_length(void)
{
	struct ibv_mr *mr = registered(left.pd, left.memory + 8, 16, 0);
	CHECK(mr->addr == left.memory + 8 && mr->length == 16);
	CHECK(mr->pd == left.pd && mr->context == left.context);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void a_region_around_a_hole_is_rejected(void)
{
	char *memory = map_around_a_hole();
	RETURNS_NULL(ibv_reg_mr(left.pd, memory, 3 * PAGE, EVERYTHING), EFAULT);
	CHECK(ibv_dereg_mr(registered(left.pd, memory, PAGE, EVERYTHING)) == 0);
}

static void a_region_in_a_hole_is_rejected(void)
{
	char *memory = map_around_a_hole();
	RETURNS_NULL(ibv_reg_mr(left.pd, memory + PAGE, 16, 0), EFAULT);
}

static void read_only_memory_cannot_be_registered_for_writes(void)
{
	char *constant = map(PAGE, PROT_READ);
	RETURNS_NULL(ibv_reg_mr(left.pd, constant, PAGE, EVERYTHING), EFAULT);
}

static void read_only_memory_can_be_registered_for_reads(void)
{
	char *constant = map(PAGE, PROT_READ);
	CHECK(ibv_dereg_mr(registered(left.pd, constant, PAGE, IBV_ACCESS_REMOTE_READ)) == 0);
}

static void memory_without_permission_is_rejected(void)
{
	char *forbidden = map(PAGE, PROT_NONE);
	RETURNS_NULL(ibv_reg_mr(left.pd, forbidden, PAGE, 0), EFAULT);
}

static void on_demand_memory_may_be_mapped_later(void)
{
	char *memory = map_around_a_hole();
	int access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE;
	CHECK(ibv_dereg_mr(registered(left.pd, memory + PAGE, PAGE, access)) == 0);
}

static void all_memory_can_be_one_region(void)
{
	int access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE;
	CHECK(ibv_dereg_mr(registered(left.pd, NULL, SIZE_MAX, access)) == 0);
}

static void remote_write_needs_local_write(void)
{
	RETURNS_NULL(ibv_reg_mr(left.pd, left.memory, 16, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	RETURNS_NULL(ibv_reg_mr(left.pd, left.memory, 16, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
}

static void a_region_may_be_empty(void)
{
	struct ibv_mr *mr = registered(right.pd, right.memory + 8, 0, EVERYTHING);
	SAME(mr->length, 0);
	SAME(write_through(mr->rkey, right.memory + 8), IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void an_empty_region_between_pages_is_rejected(void)
{
	char *page = map(PAGE, PROT_READ | PROT_WRITE);
	RETURNS_NULL(ibv_reg_mr(left.pd, page, 0, EVERYTHING), EINVAL);
}

static void an_unknown_right_is_rejected(void)
{
	int unknown = 1 << 15;
	RETURNS_NULL(ibv_reg_mr(left.pd, left.memory, 16, unknown), EINVAL);
}

static void an_optional_right_may_be_unknown(void)
{
	int access = IBV_ACCESS_RELAXED_ORDERING;
	CHECK(ibv_dereg_mr(registered(left.pd, left.memory, 16, access)) == 0);
}

static void a_domain_with_a_region_cannot_be_freed(void)
{
	RETURNS_ERROR(ibv_dealloc_pd(left.pd), EBUSY);
}

static void rereg_changes_the_access_rights(void)
{
	struct ibv_mr *mr = registered(right.pd, right.memory, 64, 0);
	RETURNS_ERROR(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, EVERYTHING), 0);
	SAME(write_through(mr->rkey, right.memory), IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void rereg_changes_the_address(void)
{
	struct ibv_mr *mr = registered(left.pd, left.memory, 16, 0);
	RETURNS_ERROR(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, left.memory + 64, 64, 0), 0);
	CHECK(mr->addr == left.memory + 64 && mr->length == 64);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void rereg_without_changes_is_rejected(void)
{
	struct ibv_mr *mr = registered(left.pd, left.memory, 16, 0);
	SAME(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void an_unknown_rereg_flag_is_rejected(void)
{
	struct ibv_mr *mr = registered(left.pd, left.memory, 16, 0);
	SAME(ibv_rereg_mr(mr, 1 << 10, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void rereg_to_read_only_memory_needs_a_region_for_reads(void)
{
	char *constant = map(PAGE, PROT_READ);
	int flags = IBV_REREG_MR_CHANGE_TRANSLATION;
	struct ibv_mr *mr = registered(left.pd, left.memory, 16, IBV_ACCESS_REMOTE_READ);
	SAME(ibv_rereg_mr(mr, flags, NULL, constant, PAGE, 0), 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	mr = registered(left.pd, left.memory, 16, IBV_ACCESS_LOCAL_WRITE);
	SAME(ibv_rereg_mr(mr, flags, NULL, constant, PAGE, 0), IBV_REREG_MR_ERR_CMD);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void rereg_rejects_access_rights_without_their_flag(void)
{
	struct ibv_mr *mr = registered(left.pd, left.memory, 16, 0);
	int flags = IBV_REREG_MR_CHANGE_TRANSLATION;
	SAME(ibv_rereg_mr(mr, flags, NULL, left.memory, 16, EVERYTHING), IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void a_null_region_has_no_memory_to_change(void)
{
	struct ibv_mr *null = ibv_alloc_null_mr(left.pd);
	CHECK(null != NULL);
	int flags = IBV_REREG_MR_CHANGE_TRANSLATION;
	SAME(ibv_rereg_mr(null, flags, NULL, left.memory, 16, 0), IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_dereg_mr(null) == 0);
}

static void addresses_of_a_region_have_the_offset_of_its_memory_in_a_page(void)
{
	uint64_t at = 16 * PAGE + (uintptr_t)left.memory % PAGE;
	struct ibv_mr *mr = ibv_reg_mr_iova(left.pd, left.memory, 64, at, 0);
	CHECK(mr != NULL && mr->addr == left.memory && ibv_dereg_mr(mr) == 0);
	RETURNS_NULL(ibv_reg_mr_iova(left.pd, left.memory, 64, at + 8, 0), EINVAL);
}

static void advise_mr_prefetches(void)
{
	struct ibv_sge sge = part(&left, 0, sizeof(left.memory));
	RETURNS_ERROR(ibv_advise_mr(left.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), 0);
}

static void advise_mr_outside_of_the_region_is_rejected(void)
{
	struct ibv_sge sge = part(&left, 0, sizeof(left.memory) + 1);
	RETURNS_ERROR(ibv_advise_mr(left.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EFAULT);
}

static void advise_mr_needs_a_region_of_the_domain(void)
{
	struct ibv_pd *other = ibv_alloc_pd(left.context);
	CHECK(other != NULL);
	struct ibv_sge sge = part(&left, 0, 8);
	RETURNS_ERROR(ibv_advise_mr(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EPERM);
	CHECK(ibv_dealloc_pd(other) == 0);
	sge.lkey ^= 0x100;
	RETURNS_ERROR(ibv_advise_mr(left.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), ENOENT);
}

static void advise_mr_writes_only_what_may_be_written(void)
{
	struct ibv_mr *mr = registered(left.pd, left.memory, 64, 0);
	struct ibv_sge sge = { .addr = (uintptr_t)left.memory, .length = 64, .lkey = mr->lkey };
	RETURNS_ERROR(ibv_advise_mr(left.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), 0);
	RETURNS_ERROR(ibv_advise_mr(left.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1), EPERM);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void advise_mr_knows_the_addresses_of_a_region(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;
	struct ibv_mr *mr = registered(left.pd, left.memory, 64, access);
	struct ibv_sge sge = { .addr = 8, .length = 56, .lkey = mr->lkey };
	RETURNS_ERROR(ibv_advise_mr(left.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1), 0);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void an_unknown_advice_is_not_supported(void)
{
	struct ibv_sge sge = part(&left, 0, 8);
	RETURNS_ERROR(ibv_advise_mr(left.pd, 77, 0, &sge, 1), EOPNOTSUPP);
	RETURNS_ERROR(ibv_advise_mr(left.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, &sge, 1), EINVAL);
}

static struct ibv_dm *device_memory(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(left.context, &attr);
	CHECK(dm != NULL);
	return dm;
}

static void device_memory_keeps_its_content(void)
{
	struct ibv_dm *dm = device_memory();
	char out[64], in[64] = "kept by the device";
	CHECK(ibv_memcpy_to_dm(dm, 0, in, 64) == 0);
	CHECK(ibv_memcpy_from_dm(out, dm, 0, 64) == 0);
	CHECK(memcmp(in, out, 64) == 0);
	RETURNS_ERROR(ibv_memcpy_from_dm(out, dm, 32, 64), EINVAL);
	RETURNS_ERROR(ibv_memcpy_to_dm(dm, 0, in, 3), EINVAL);
	CHECK(ibv_free_dm(dm) == 0);
}

static void device_memory_can_be_a_region(void)
{
	struct ibv_dm *dm = device_memory();
	int access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
	struct ibv_mr *mr = ibv_reg_dm_mr(left.pd, dm, 0, 64, access);
	CHECK(mr != NULL);
	RETURNS_ERROR(ibv_free_dm(dm), EBUSY);
	RETURNS_NULL(ibv_reg_dm_mr(left.pd, dm, 60, 8, IBV_ACCESS_ZERO_BASED), EINVAL);
	RETURNS_NULL(ibv_reg_dm_mr(left.pd, dm, 0, 64, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_free_dm(dm) == 0);
}

/* What goes there is gone, and what comes from there is zero. */
static void a_null_region_accepts_writes(void)
{
	struct ibv_mr *null = ibv_alloc_null_mr(left.pd);
	CHECK(null != NULL);
	memset(right.memory, 0xee, 16);
	struct ibv_sge sge = { .addr = 0, .length = 16, .lkey = null->lkey };
	struct ibv_send_wr write = request(IBV_WR_RDMA_WRITE, &sge);
	SAME(fate_of(&left, &write), IBV_WC_SUCCESS);
	for (int i = 0; i < 16; i++)
		CHECK(right.memory[i] == 0);
	struct ibv_send_wr read = request(IBV_WR_RDMA_READ, &sge);
	SAME(fate_of(&left, &read), IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(null) == 0);
}

/* A page that peers may write, as long as it is there. */
static struct ibv_mr *page_on_demand(struct end *end)
{
	int access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	return registered(end->pd, map(PAGE, PROT_READ | PROT_WRITE), PAGE, access);
}

static void on_demand_memory_works_once_mapped(void)
{
	struct ibv_mr *mr = page_on_demand(&right);
	char *page = mr->addr;
	memcpy(left.memory, "arrived", 8);
	SAME(write_through(mr->rkey, page), IBV_WC_SUCCESS);
	CHECK(strcmp(page, "arrived") == 0);
	CHECK(munmap(page, PAGE) == 0);
	CHECK(mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == page);
	SAME(write_through(mr->rkey, page), IBV_WC_SUCCESS);
	CHECK(strcmp(page, "arrived") == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void on_demand_memory_that_became_read_only_is_rejected(void)
{
	struct ibv_mr *mr = page_on_demand(&right);
	CHECK(mprotect(mr->addr, PAGE, PROT_READ) == 0);
	SAME(write_through(mr->rkey, mr->addr), IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void unmapped_local_memory_fails_the_request(void)
{
	/* Far below other mappings: allocations of the library do not fill this hole. */
	void *far = mmap((void *)(1ul << 32), PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(far != MAP_FAILED);
	struct ibv_mr *mr = registered(left.pd, far, PAGE, IBV_ACCESS_ON_DEMAND);
	CHECK(munmap(mr->addr, PAGE) == 0);
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	SAME(fate_of(&left, &wr), IBV_WC_LOC_PROT_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void a_write_outside_of_its_region_is_rejected(void)
{
	char *behind = right.memory + sizeof(right.memory);
	SAME(write_through(right.mr->rkey, behind), IBV_WC_REM_ACCESS_ERR);
}

static void a_deregistered_region_is_rejected(void)
{
	struct ibv_mr *mr = registered(right.pd, right.memory, 64, EVERYTHING);
	uint32_t key = mr->rkey;
	CHECK(ibv_dereg_mr(mr) == 0);
	SAME(write_through(key, right.memory), IBV_WC_REM_ACCESS_ERR);
}

static void a_region_without_the_right_is_rejected(void)
{
	struct ibv_mr *mr = registered(right.pd, right.memory, 64, IBV_ACCESS_REMOTE_READ);
	SAME(write_through(mr->rkey, right.memory), IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static struct ibv_mw_bind_info window_on_right(void)
{
	return (struct ibv_mw_bind_info){ .mr = right.mr,
					  .addr = (uintptr_t)right.memory,
					  .length = 64,
					  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
}

static struct ibv_mw *window(enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(right.pd, type);
	CHECK(mw != NULL && mw->type == type && mw->pd == right.pd);
	return mw;
}

static void bind_first_type(struct ibv_mw *mw)
{
	struct ibv_mw_bind bind = { .wr_id = 7,
				    .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = window_on_right() };
	CHECK(ibv_bind_mw(right.qp, mw, &bind) == 0);
	struct ibv_wc wc = wait_for(right.cq);
	SAME(wc.status, IBV_WC_SUCCESS);
	SAME(wc.opcode, IBV_WC_BIND_MW);
	SAME(wc.wr_id, 7);
}

static void binding_a_window_gives_it_a_new_key(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_1);
	uint32_t born = mw->rkey;
	bind_first_type(mw);
	CHECK(mw->rkey != born);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static void a_write_through_a_window_succeeds(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_1);
	bind_first_type(mw);
	memcpy(left.memory, "window", 7);
	SAME(write_through(mw->rkey, right.memory), IBV_WC_SUCCESS);
	CHECK(strcmp(right.memory, "window") == 0);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static void a_write_beyond_a_window_fails(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_1);
	bind_first_type(mw);
	SAME(write_through(mw->rkey, right.memory + 60), IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static void a_region_with_a_window_cannot_be_deregistered(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_1);
	bind_first_type(mw);
	CHECK(ibv_dereg_mr(right.mr) != 0);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static void a_type_1_window_cannot_be_zero_based(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .bind_info = window_on_right() };
	bind.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
	RETURNS_ERROR(ibv_bind_mw(right.qp, mw, &bind), EINVAL);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static void a_type_2_window_is_bound_by_a_request(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = { .bind_info = window_on_right() };
	RETURNS_ERROR(ibv_bind_mw(right.qp, mw, &bind), EINVAL);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

/* Returns the key. */
static uint32_t bind_second_type(struct ibv_mw *mw)
{
	struct ibv_send_wr wr = { .wr_id = 8,
				  .opcode = IBV_WR_BIND_MW,
				  .send_flags = IBV_SEND_SIGNALED,
				  .bind_mw = { .mw = mw,
					       .rkey = ibv_inc_rkey(mw->rkey),
					       .bind_info = window_on_right() } };
	SAME(fate_of(&right, &wr), IBV_WC_SUCCESS);
	return wr.bind_mw.rkey;
}

static void invalidate(uint32_t key)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV,
				  .send_flags = IBV_SEND_SIGNALED,
				  .invalidate_rkey = key };
	SAME(fate_of(&right, &wr), IBV_WC_SUCCESS);
}

static void a_write_through_a_type_2_window_succeeds(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_2);
	uint32_t key = bind_second_type(mw);
	SAME(write_through(key, right.memory), IBV_WC_SUCCESS);
	invalidate(key);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static void a_write_through_an_invalidated_window_fails(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_2);
	uint32_t key = bind_second_type(mw);
	invalidate(key);
	SAME(write_through(key, right.memory), IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static const struct test_case CASES[] = {
	WITH_LEFT(a_region_has_its_address_and_length),
	WITH_LEFT(a_region_around_a_hole_is_rejected),
	WITH_LEFT(a_region_in_a_hole_is_rejected),
	WITH_LEFT(read_only_memory_cannot_be_registered_for_writes),
	WITH_LEFT(read_only_memory_can_be_registered_for_reads),
	WITH_LEFT(memory_without_permission_is_rejected),
	WITH_LEFT(on_demand_memory_may_be_mapped_later),
	WITH_LEFT(all_memory_can_be_one_region),
	WITH_LEFT(remote_write_needs_local_write),
	WITH_JOINED(a_region_may_be_empty),
	WITH_LEFT(an_empty_region_between_pages_is_rejected),
	WITH_LEFT(an_unknown_right_is_rejected),
	WITH_LEFT(an_optional_right_may_be_unknown),
	WITH_LEFT(a_domain_with_a_region_cannot_be_freed),
	WITH_JOINED(rereg_changes_the_access_rights),
	WITH_LEFT(rereg_changes_the_address),
	WITH_LEFT(rereg_without_changes_is_rejected),
	WITH_LEFT(an_unknown_rereg_flag_is_rejected),
	WITH_LEFT(rereg_to_read_only_memory_needs_a_region_for_reads),
	WITH_LEFT(rereg_rejects_access_rights_without_their_flag),
	WITH_LEFT(a_null_region_has_no_memory_to_change),
	WITH_LEFT(addresses_of_a_region_have_the_offset_of_its_memory_in_a_page),
	WITH_LEFT(advise_mr_prefetches),
	WITH_LEFT(advise_mr_outside_of_the_region_is_rejected),
	WITH_LEFT(advise_mr_needs_a_region_of_the_domain),
	WITH_LEFT(advise_mr_writes_only_what_may_be_written),
	WITH_LEFT(advise_mr_knows_the_addresses_of_a_region),
	WITH_LEFT(an_unknown_advice_is_not_supported),
	WITH_LEFT(device_memory_keeps_its_content),
	WITH_LEFT(device_memory_can_be_a_region),
	WITH_JOINED(a_null_region_accepts_writes),
	WITH_JOINED(on_demand_memory_works_once_mapped),
	WITH_JOINED(on_demand_memory_that_became_read_only_is_rejected),
	WITH_JOINED(unmapped_local_memory_fails_the_request),
	WITH_JOINED(a_write_outside_of_its_region_is_rejected),
	WITH_JOINED(a_deregistered_region_is_rejected),
	WITH_JOINED(a_region_without_the_right_is_rejected),
	WITH_JOINED(binding_a_window_gives_it_a_new_key),
	WITH_JOINED(a_write_through_a_window_succeeds),
	WITH_JOINED(a_write_beyond_a_window_fails),
	WITH_JOINED(a_region_with_a_window_cannot_be_deregistered),
	WITH_JOINED(a_type_1_window_cannot_be_zero_based),
	WITH_JOINED(a_type_2_window_is_bound_by_a_request),
	WITH_JOINED(a_write_through_a_type_2_window_succeeds),
	WITH_JOINED(a_write_through_an_invalidated_window_fails),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
