/* Calls that came after the release whose headers most distributions have: their structures are here. */
#include <rdma/rdma_cma.h>
#include "../check.h"

struct ibv_buf;
struct ibv_dmah;

/* Up to release 63 the structure ends before `buf`. */
struct region_request {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	struct ibv_dmah *dmah;
	struct ibv_buf *buf;
};

struct hints {
	uint32_t comp_mask;
	uint32_t cpu_id;
	uint8_t ph;
	uint8_t tph_mem_type;
};

enum { IOVA = 1, ADDRESS = 2, DESCRIPTOR = 4, HINTS = 16, BUFFER = 32, UNKNOWN = 64 };

void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
			      int access);
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct region_request *request);
struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct hints *hints);
int ibv_dealloc_dmah(struct ibv_dmah *dmah);
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints);
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
			uint64_t arg);

#define SIZE 10000

static struct ibv_buf *buffer;
static char *start;

static void open_buffer(void)
{
	open_end(&left, "left");
	start = ibv_alloc_buf(left.pd, SIZE, &buffer);
	CHECK(start != NULL && buffer != NULL);
	CHECK((uintptr_t)start % 4096 == 0);
}

static void close_buffer(void)
{
	ibv_free_buf(buffer);
}

static void a_buffer_is_memory(void)
{
	memset(start, 0x5a, SIZE);
	CHECK(start[SIZE - 1] == 0x5a);
	ibv_free_buf(NULL);
}

static void a_buffer_can_be_registered(void)
{
	struct ibv_mr *mr = ibv_reg_buf_mr(left.pd, buffer, start, SIZE, EVERYTHING);
	CHECK(mr != NULL && mr->addr == start && mr->length == SIZE);
	CHECK(ibv_dereg_mr(mr) == 0);
	mr = ibv_reg_buf_mr(left.pd, buffer, start + 100, SIZE - 100, EVERYTHING);
	CHECK(mr != NULL && mr->addr == start + 100);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void a_region_stays_inside_its_buffer(void)
{
	RETURNS_NULL(ibv_reg_buf_mr(left.pd, buffer, start, SIZE + 1, 0), EINVAL);
	RETURNS_NULL(ibv_reg_buf_mr(left.pd, buffer, start + 1, SIZE, 0), EINVAL);
	RETURNS_NULL(ibv_reg_buf_mr(left.pd, buffer, start - 1, 2, 0), EINVAL);
	RETURNS_NULL(ibv_reg_buf_mr(left.pd, buffer, start + 1, SIZE_MAX, 0), EINVAL);
}

static void a_buffer_belongs_to_its_domain(void)
{
	struct ibv_pd *other = ibv_alloc_pd(left.context);
	CHECK(other != NULL);
	RETURNS_NULL(ibv_reg_buf_mr(other, buffer, start, SIZE, 0), EINVAL);
	CHECK(ibv_dealloc_pd(other) == 0);
}

static void no_dma_buf_is_behind_a_buffer(void)
{
	CHECK(ibv_export_buf_dmabuf_fd(buffer) == -1 && errno == ENODATA);
}

static void a_null_buffer_is_rejected(void)
{
	struct ibv_buf *none;
	RETURNS_NULL(ibv_alloc_buf(left.pd, 0, &none), EINVAL);
	RETURNS_NULL(ibv_alloc_buf(left.pd, SIZE, NULL), EINVAL);
}

static void the_extended_registration_knows_buffers(void)
{
	struct region_request request = { .length = SIZE, .access = EVERYTHING, .addr = start,
					  .buf = buffer, .comp_mask = ADDRESS | BUFFER };
	struct ibv_mr *mr = ibv_reg_mr_ex(left.pd, &request);
	CHECK(mr != NULL && mr->addr == start && mr->length == SIZE);
	CHECK(ibv_dereg_mr(mr) == 0);
	request.iova = 0x1000;
	request.comp_mask |= IOVA;
	mr = ibv_reg_mr_ex(left.pd, &request);
	CHECK(mr != NULL);
	CHECK(ibv_dereg_mr(mr) == 0);
	request.comp_mask |= DESCRIPTOR;
	RETURNS_NULL(ibv_reg_mr_ex(left.pd, &request), EINVAL);
	request.comp_mask = BUFFER;
	RETURNS_NULL(ibv_reg_mr_ex(left.pd, &request), EINVAL);
	request.comp_mask = ADDRESS | BUFFER;
	request.length = SIZE + 1;
	RETURNS_NULL(ibv_reg_mr_ex(left.pd, &request), EINVAL);
	request.comp_mask = ADDRESS | UNKNOWN;
	RETURNS_NULL(ibv_reg_mr_ex(left.pd, &request), EOPNOTSUPP);
}

static void hints_in_use_cannot_be_destroyed(void)
{
	struct hints hints = { .comp_mask = 7, .cpu_id = 0, .ph = 1 };
	struct ibv_dmah *handle = ibv_alloc_dmah(left.context, &hints);
	CHECK(handle != NULL);
	struct region_request request = { .length = SIZE, .addr = start, .dmah = handle,
					  .comp_mask = ADDRESS | HINTS };
	struct ibv_mr *mr = ibv_reg_mr_ex(left.pd, &request);
	CHECK(mr != NULL);
	RETURNS_ERROR(ibv_dealloc_dmah(handle), EBUSY);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dealloc_dmah(handle) == 0);
	RETURNS_ERROR(ibv_dealloc_dmah(handle), EINVAL);
	RETURNS_NULL(ibv_reg_mr_ex(left.pd, &request), EINVAL);
	hints.comp_mask = 8;
	RETURNS_NULL(ibv_alloc_dmah(left.context, &hints), EINVAL);
}

static void hints_that_do_not_exist_are_rejected(void)
{
	struct hints processor = { .comp_mask = 1, .cpu_id = 1000000 };
	struct hints hint = { .comp_mask = 2, .ph = 4 };
	struct hints type = { .comp_mask = 4, .tph_mem_type = 2 };
	RETURNS_NULL(ibv_alloc_dmah(left.context, &processor), EINVAL);
	RETURNS_NULL(ibv_alloc_dmah(left.context, &hint), EINVAL);
	RETURNS_NULL(ibv_alloc_dmah(left.context, &type), EINVAL);
}

static void hints_are_not_for_memory_on_demand(void)
{
	struct hints none = { .comp_mask = 0 };
	struct region_request request = { .length = SIZE, .addr = start,
					  .access = IBV_ACCESS_ON_DEMAND,
					  .dmah = ibv_alloc_dmah(left.context, &none),
					  .comp_mask = ADDRESS | HINTS };
	CHECK(request.dmah != NULL);
	RETURNS_NULL(ibv_reg_mr_ex(left.pd, &request), EOPNOTSUPP);
	CHECK(ibv_dealloc_dmah(request.dmah) == 0);
}

static void each_service_pages_what_it_has(void)
{
	enum { SEND = 1, RECEIVE = 2, WRITE = 4, READ = 8, ATOMIC = 16, SHARED = 32, FLUSH = 64,
	       ATOMIC_WRITE = 128 };
	struct ibv_device_attr_ex attr;
	CHECK(ibv_query_device_ex(left.context, NULL, &attr) == 0);
	uint32_t datagram = SEND | RECEIVE | SHARED, unreliable = datagram | WRITE;
	uint32_t reliable = unreliable | READ | ATOMIC | FLUSH | ATOMIC_WRITE;
	CHECK(attr.odp_caps.per_transport_caps.rc_odp_caps == reliable);
	CHECK(attr.odp_caps.per_transport_caps.uc_odp_caps == unreliable);
	CHECK(attr.odp_caps.per_transport_caps.ud_odp_caps == datagram);
	CHECK(attr.xrc_odp_caps == reliable);
}

/* The events of these calls are not in the headers of older releases. */
#define ADDRINFO_RESOLVED 16
#define USER_EVENT 18
#define INTERNAL_EVENT 19

static void a_result_is_taken_before_the_next_lookup(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	struct rdma_addrinfo *found;
	CHECK(channel != NULL && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	FAILS(rdma_query_addrinfo(id, &found), ENOENT);
	CHECK(rdma_resolve_addrinfo(id, own_address(), "7171", NULL) == 0);
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	SAME(event->event, ADDRINFO_RESOLVED);
	CHECK(rdma_ack_cm_event(event) == 0);
	FAILS(rdma_resolve_addrinfo(id, own_address(), "7171", NULL), EBUSY);
	CHECK(rdma_query_addrinfo(id, &found) == 0 && found->ai_dst_addr != NULL);
	rdma_freeaddrinfo(found);
	FAILS(rdma_query_addrinfo(id, &found), ENOENT);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

#define ASK_ADMINISTRATOR 0x10
#define ASK_DNS 0x20

/* Ethernet has none. */
static void no_subnet_administrator_answers(void)
{
	struct rdma_addrinfo hints = { .ai_flags = ASK_ADMINISTRATOR }, *found;
	FAILS(rdma_getaddrinfo(NULL, "7171", &hints, &found), ENOENT);
	FAILS(rdma_getaddrinfo(NULL, NULL, &hints, &found), EINVAL);
	FAILS(rdma_getaddrinfo(own_address(), "7171", &hints, &found), EOPNOTSUPP);
	hints.ai_flags |= ASK_DNS;
	FAILS(rdma_getaddrinfo(NULL, "7171", &hints, &found), EOPNOTSUPP);
}

static void a_program_writes_events_of_its_own_only(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	CHECK(channel != NULL && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	FAILS(rdma_write_cm_event(id, INTERNAL_EVENT, 0, 0), EINVAL);
	CHECK(rdma_write_cm_event(id, USER_EVENT, 5, 0) == 0);
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	SAME(event->event, USER_EVENT);
	SAME(event->status, 5);
	CHECK(rdma_ack_cm_event(event) == 0 && rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

#define WITH_BUFFER(function) { #function, function, open_buffer, close_buffer }

static const struct test_case CASES[] = {
	WITH_BUFFER(a_buffer_is_memory),
	WITH_BUFFER(a_buffer_can_be_registered),
	WITH_BUFFER(a_region_stays_inside_its_buffer),
	WITH_BUFFER(a_buffer_belongs_to_its_domain),
	WITH_BUFFER(no_dma_buf_is_behind_a_buffer),
	WITH_BUFFER(a_null_buffer_is_rejected),
	WITH_BUFFER(the_extended_registration_knows_buffers),
	WITH_BUFFER(hints_in_use_cannot_be_destroyed),
	WITH_BUFFER(hints_that_do_not_exist_are_rejected),
	WITH_BUFFER(hints_are_not_for_memory_on_demand),
	WITH_BUFFER(each_service_pages_what_it_has),
	CASE(a_result_is_taken_before_the_next_lookup),
	CASE(no_subnet_administrator_answers),
	CASE(a_program_writes_events_of_its_own_only),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
