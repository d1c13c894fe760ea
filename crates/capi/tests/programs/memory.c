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

static void a_region_knows_where_it_is(void)
{
	struct ibv_mr *mr = registered(left.pd, left.memory + 8, 16, 0);
	CHECK(mr->addr == left.memory + 8 && mr->length == 16);
	CHECK(mr->pd == left.pd && mr->context == left.context);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void a_region_around_a_hole_is_refused(void)
{
	char *memory = map_around_a_hole();
	REFUSES_POINTER(ibv_reg_mr(left.pd, memory, 3 * PAGE, EVERYTHING), EFAULT);
	CHECK(ibv_dereg_mr(registered(left.pd, memory, PAGE, EVERYTHING)) == 0);
}

static void a_region_in_a_hole_is_refused(void)
{
	char *memory = map_around_a_hole();
	REFUSES_POINTER(ibv_reg_mr(left.pd, memory + PAGE, 16, 0), EFAULT);
}

static void constant_memory_can_not_be_written(void)
{
	char *constant = map(PAGE, PROT_READ);
	REFUSES_POINTER(ibv_reg_mr(left.pd, constant, PAGE, EVERYTHING), EFAULT);
}

static void constant_memory_can_be_read(void)
{
	char *constant = map(PAGE, PROT_READ);
	CHECK(ibv_dereg_mr(registered(left.pd, constant, PAGE, IBV_ACCESS_REMOTE_READ)) == 0);
}

static void memory_without_permission_is_refused(void)
{
	char *forbidden = map(PAGE, PROT_NONE);
	REFUSES_POINTER(ibv_reg_mr(left.pd, forbidden, PAGE, 0), EFAULT);
}

static void memory_on_demand_may_come_later(void)
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

static void who_lets_others_write_must_write_itself(void)
{
	REFUSES_POINTER(ibv_reg_mr(left.pd, left.memory, 16, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	REFUSES_POINTER(ibv_reg_mr(left.pd, left.memory, 16, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
}

static void a_region_may_be_empty(void)
{
	struct ibv_mr *mr = registered(right.pd, right.memory + 8, 0, EVERYTHING);
	SAME(mr->length, 0);
	SAME(write_through(mr->rkey, right.memory + 8), IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void an_empty_region_between_pages_is_refused(void)
{
	char *page = map(PAGE, PROT_READ | PROT_WRITE);
	REFUSES_POINTER(ibv_reg_mr(left.pd, page, 0, EVERYTHING), EINVAL);
}

static void an_unknown_right_is_refused(void)
{
	int unknown = 1 << 15;
	REFUSES_POINTER(ibv_reg_mr(left.pd, left.memory, 16, unknown), EINVAL);
}

static void an_optional_right_may_be_unknown(void)
{
	int access = IBV_ACCESS_RELAXED_ORDERING;
	CHECK(ibv_dereg_mr(registered(left.pd, left.memory, 16, access)) == 0);
}

static void a_domain_with_a_region_stays(void)
{
	REFUSES(ibv_dealloc_pd(left.pd), EBUSY);
}

static void a_region_changes_its_rights(void)
{
	struct ibv_mr *mr = registered(right.pd, right.memory, 64, 0);
	REFUSES(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, EVERYTHING), 0);
	SAME(write_through(mr->rkey, right.memory), IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void a_region_moves(void)
{
	struct ibv_mr *mr = registered(left.pd, left.memory, 16, 0);
	REFUSES(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, left.memory + 64, 64, 0), 0);
	CHECK(mr->addr == left.memory + 64 && mr->length == 64);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void a_region_changes_nothing(void)
{
	struct ibv_mr *mr = registered(left.pd, left.memory, 16, 0);
	SAME(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void an_unknown_change_is_refused(void)
{
	struct ibv_mr *mr = registered(left.pd, left.memory, 16, 0);
	SAME(ibv_rereg_mr(mr, 1 << 10, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void memory_can_be_fetched_in_advance(void)
{
	struct ibv_sge sge = part(&left, 0, sizeof(left.memory));
	REFUSES(ibv_advise_mr(left.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), 0);
}

static void advice_about_what_is_outside_is_refused(void)
{
	struct ibv_sge sge = part(&left, 0, sizeof(left.memory) + 1);
	REFUSES(ibv_advise_mr(left.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EFAULT);
}

static struct ibv_dm *device_memory(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(left.context, &attr);
	CHECK(dm != NULL);
	return dm;
}

static void device_memory_keeps_what_is_put_there(void)
{
	struct ibv_dm *dm = device_memory();
	char out[64], in[64] = "kept by the device";
	CHECK(ibv_memcpy_to_dm(dm, 0, in, 64) == 0);
	CHECK(ibv_memcpy_from_dm(out, dm, 0, 64) == 0);
	CHECK(memcmp(in, out, 64) == 0);
	REFUSES(ibv_memcpy_from_dm(out, dm, 32, 64), EINVAL);
	CHECK(ibv_free_dm(dm) == 0);
}

static void device_memory_can_be_a_region(void)
{
	struct ibv_dm *dm = device_memory();
	int access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
	struct ibv_mr *mr = ibv_reg_dm_mr(left.pd, dm, 0, 64, access);
	CHECK(mr != NULL);
	REFUSES(ibv_free_dm(dm), EBUSY);
	REFUSES_POINTER(ibv_reg_dm_mr(left.pd, dm, 60, 8, IBV_ACCESS_ZERO_BASED), EINVAL);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_free_dm(dm) == 0);
}

/* What goes there is gone, and what comes from there is zero. */
static void a_null_region_takes_everything(void)
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

static void memory_on_demand_comes_to_life_with_its_pages(void)
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

static void memory_on_demand_that_became_constant_is_refused(void)
{
	struct ibv_mr *mr = page_on_demand(&right);
	CHECK(mprotect(mr->addr, PAGE, PROT_READ) == 0);
	SAME(write_through(mr->rkey, mr->addr), IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void the_senders_own_memory_may_be_gone(void)
{
	struct ibv_mr *mr = page_on_demand(&left);
	CHECK(munmap(mr->addr, PAGE) == 0);
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	SAME(fate_of(&left, &wr), IBV_WC_LOC_PROT_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void a_write_outside_of_its_region_is_refused(void)
{
	char *behind = right.memory + sizeof(right.memory);
	SAME(write_through(right.mr->rkey, behind), IBV_WC_REM_ACCESS_ERR);
}

static void a_region_that_is_gone_is_refused(void)
{
	struct ibv_mr *mr = registered(right.pd, right.memory, 64, EVERYTHING);
	uint32_t key = mr->rkey;
	CHECK(ibv_dereg_mr(mr) == 0);
	SAME(write_through(key, right.memory), IBV_WC_REM_ACCESS_ERR);
}

static void a_region_without_the_right_is_refused(void)
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

static void a_window_can_be_written_through(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_1);
	bind_first_type(mw);
	memcpy(left.memory, "window", 7);
	SAME(write_through(mw->rkey, right.memory), IBV_WC_SUCCESS);
	CHECK(strcmp(right.memory, "window") == 0);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static void a_window_ends_where_it_ends(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_1);
	bind_first_type(mw);
	SAME(write_through(mw->rkey, right.memory + 60), IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static void a_region_with_a_window_stays(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_1);
	bind_first_type(mw);
	CHECK(ibv_dereg_mr(right.mr) != 0);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static void a_window_of_the_second_type_is_bound_by_a_request(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = { .bind_info = window_on_right() };
	REFUSES(ibv_bind_mw(right.qp, mw, &bind), EINVAL);
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

static void a_window_of_the_second_type_can_be_written_through(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_2);
	uint32_t key = bind_second_type(mw);
	SAME(write_through(key, right.memory), IBV_WC_SUCCESS);
	invalidate(key);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static void an_invalidated_window_is_closed(void)
{
	struct ibv_mw *mw = window(IBV_MW_TYPE_2);
	uint32_t key = bind_second_type(mw);
	invalidate(key);
	SAME(write_through(key, right.memory), IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dealloc_mw(mw) == 0);
}

static const struct test_case CASES[] = {
	WITH_LEFT(a_region_knows_where_it_is),
	WITH_LEFT(a_region_around_a_hole_is_refused),
	WITH_LEFT(a_region_in_a_hole_is_refused),
	WITH_LEFT(constant_memory_can_not_be_written),
	WITH_LEFT(constant_memory_can_be_read),
	WITH_LEFT(memory_without_permission_is_refused),
	WITH_LEFT(memory_on_demand_may_come_later),
	WITH_LEFT(all_memory_can_be_one_region),
	WITH_LEFT(who_lets_others_write_must_write_itself),
	WITH_JOINED(a_region_may_be_empty),
	WITH_LEFT(an_empty_region_between_pages_is_refused),
	WITH_LEFT(an_unknown_right_is_refused),
	WITH_LEFT(an_optional_right_may_be_unknown),
	WITH_LEFT(a_domain_with_a_region_stays),
	WITH_JOINED(a_region_changes_its_rights),
	WITH_LEFT(a_region_moves),
	WITH_LEFT(a_region_changes_nothing),
	WITH_LEFT(an_unknown_change_is_refused),
	WITH_LEFT(memory_can_be_fetched_in_advance),
	WITH_LEFT(advice_about_what_is_outside_is_refused),
	WITH_LEFT(device_memory_keeps_what_is_put_there),
	WITH_LEFT(device_memory_can_be_a_region),
	WITH_JOINED(a_null_region_takes_everything),
	WITH_JOINED(memory_on_demand_comes_to_life_with_its_pages),
	WITH_JOINED(memory_on_demand_that_became_constant_is_refused),
	WITH_JOINED(the_senders_own_memory_may_be_gone),
	WITH_JOINED(a_write_outside_of_its_region_is_refused),
	WITH_JOINED(a_region_that_is_gone_is_refused),
	WITH_JOINED(a_region_without_the_right_is_refused),
	WITH_JOINED(binding_a_window_gives_it_a_new_key),
	WITH_JOINED(a_window_can_be_written_through),
	WITH_JOINED(a_window_ends_where_it_ends),
	WITH_JOINED(a_region_with_a_window_stays),
	WITH_JOINED(a_window_of_the_second_type_is_bound_by_a_request),
	WITH_JOINED(a_window_of_the_second_type_can_be_written_through),
	WITH_JOINED(an_invalidated_window_is_closed),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
