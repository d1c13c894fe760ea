/* What the calls do with numbers outside of the range of a field: accept, mask or reject them. Each case tries a
 * family of fields, and prints the result of every number; it must be the same with every library. */
#include <limits.h>
#include <stddef.h>
#include "check.h"

/* A field of `struct ibv_qp_attr`, and the bit that says that it is set. */
struct field {
	const char *name;
	size_t offset;
	size_t size;
	int bit;
};

#define FIELD(member, bit)                                                                         \
	{ #member, offsetof(struct ibv_qp_attr, member),                                           \
	  sizeof(((struct ibv_qp_attr *)NULL)->member), bit }

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* Edges of 3, 4, 5, 6, 7 and 8 bits. */
static const uint32_t BYTES[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 63, 64, 127, 128, 129, 255 };

/* Edges of 16, 20, 24 and 32 bits. */
static const uint32_t WORDS[] = { 0,	   1,	     0xffff,	0x10000,    0xfffff,
				  0x100000, 0xffffff, 0x1000000, UINT32_MAX };

static void set(struct ibv_qp_attr *attr, const struct field *field, uint32_t value)
{
	/* A smaller field gets the first bytes: all machines that we know are little-endian. */
	memcpy((char *)attr + field->offset, &value, field->size);
}

/* The attributes of the next state of an RC queue pair, and their mask. */
static struct ibv_qp_attr usual(enum ibv_qp_state state, int *mask)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1 };
	if (state == IBV_QPS_INIT) {
		*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		return attr;
	}
	if (state == IBV_QPS_RTR) {
		*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		attr.path_mtu = IBV_MTU_1024;
		attr.dest_qp_num = 1;
		attr.ah_attr = (struct ibv_ah_attr){ .is_global = 1,
						     .port_num = 1,
						     .grh = { .dgid = left.gid, .hop_limit = 64 } };
		return attr;
	}
	*mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC;
	attr.timeout = 14;
	return attr;
}

/* A queue pair in the state before that one. */
static struct ibv_qp *before(enum ibv_qp_state state)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	for (enum ibv_qp_state next = IBV_QPS_INIT; next < state; next++) {
		int mask;
		struct ibv_qp_attr attr = usual(next, &mask);
		CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
	}
	return qp;
}

static int try_value(enum ibv_qp_state state, const struct field *field, uint32_t value)
{
	int mask;
	struct ibv_qp *qp = before(state);
	struct ibv_qp_attr attr = usual(state, &mask);
	set(&attr, field, value);
	int error = ibv_modify_qp(qp, &attr, mask | field->bit);
	CHECK(ibv_destroy_qp(qp) == 0);
	return error;
}

/* Prints the values that are rejected. Devices differ in what they make of the others: one masks a number when it is
 * set, another one when it is sent. */
static void tell_field(enum ibv_qp_state state, const struct field *field)
{
	int is_byte = field->size == 1;
	const uint32_t *values = is_byte ? BYTES : WORDS;
	size_t count = is_byte ? COUNT(BYTES) : COUNT(WORDS);
	tell("  %s rejects", field->name);
	for (size_t i = 0; i < count; i++) {
		if (field->size == 2 && values[i] > 0xffff)
			continue;
		int error = try_value(state, field, values[i]);
		if (error)
			tell(" %#x (%d)", values[i], error);
	}
	tell("\n");
}

static void tell_fields(enum ibv_qp_state state, const struct field *fields, size_t count)
{
	for (size_t i = 0; i < count; i++)
		tell_field(state, &fields[i]);
}

static void attributes_of_the_state_init(void)
{
	const struct field fields[] = { FIELD(port_num, IBV_QP_PORT),
					FIELD(pkey_index, IBV_QP_PKEY_INDEX),
					FIELD(qp_access_flags, IBV_QP_ACCESS_FLAGS) };
	tell_fields(IBV_QPS_INIT, fields, COUNT(fields));
}

static void attributes_of_the_state_rtr(void)
{
	const struct field fields[] = {
		FIELD(dest_qp_num, IBV_QP_DEST_QPN),
		FIELD(rq_psn, IBV_QP_RQ_PSN),
		FIELD(min_rnr_timer, IBV_QP_MIN_RNR_TIMER),
	};
	tell_fields(IBV_QPS_RTR, fields, COUNT(fields));
}

static void responder_resources_up_to_the_limit(void)
{
	const struct field field = FIELD(max_dest_rd_atomic, IBV_QP_MAX_DEST_RD_ATOMIC);
	struct ibv_device_attr device;
	CHECK(ibv_query_device(left.context, &device) == 0);
	SAME(try_value(IBV_QPS_RTR, &field, 0), 0);
	SAME(try_value(IBV_QPS_RTR, &field, device.max_qp_rd_atom), 0);
	SAME(try_value(IBV_QPS_RTR, &field, device.max_qp_rd_atom + 1), EINVAL);
}

static void attributes_of_a_path(void)
{
	const struct field fields[] = {
		FIELD(ah_attr.grh.flow_label, IBV_QP_AV),
		FIELD(ah_attr.grh.hop_limit, IBV_QP_AV),
		FIELD(ah_attr.grh.traffic_class, IBV_QP_AV),
		FIELD(ah_attr.dlid, IBV_QP_AV),
		FIELD(ah_attr.sl, IBV_QP_AV),
		FIELD(ah_attr.src_path_bits, IBV_QP_AV),
		FIELD(ah_attr.static_rate, IBV_QP_AV),
		FIELD(ah_attr.is_global, IBV_QP_AV),
		FIELD(ah_attr.port_num, IBV_QP_AV),
	};
	tell_fields(IBV_QPS_RTR, fields, COUNT(fields));
}

static void attributes_of_the_state_rts(void)
{
	const struct field fields[] = {
		FIELD(timeout, IBV_QP_TIMEOUT),
		FIELD(retry_cnt, IBV_QP_RETRY_CNT),
		FIELD(rnr_retry, IBV_QP_RNR_RETRY),
		FIELD(sq_psn, IBV_QP_SQ_PSN),
		FIELD(max_rd_atomic, IBV_QP_MAX_QP_RD_ATOMIC),
		FIELD(min_rnr_timer, IBV_QP_MIN_RNR_TIMER),
	};
	tell_fields(IBV_QPS_RTS, fields, COUNT(fields));
}

/* Numbers that are no state, and states that can't follow. */
static void states(void)
{
	const struct field state = FIELD(qp_state, IBV_QP_STATE);
	const struct field present = FIELD(cur_qp_state, IBV_QP_CUR_STATE);
	const struct field migration = FIELD(path_mig_state, IBV_QP_PATH_MIG_STATE);
	for (uint32_t value = 0; value < 10; value++) {
		tell("  %u: qp_state errno %d", value, try_value(IBV_QPS_INIT, &state, value));
		tell(", cur_qp_state errno %d", try_value(IBV_QPS_RTS, &present, value));
		tell(", path_mig_state errno %d\n", try_value(IBV_QPS_RTS, &migration, value));
	}
}

static void path_mtus(void)
{
	const struct field field = FIELD(path_mtu, IBV_QP_PATH_MTU);
	const uint32_t values[] = { 1, 2, 3, 6, 7, 255, UINT32_MAX };
	for (size_t i = 0; i < COUNT(values); i++)
		tell("  %u: errno %d\n", values[i], try_value(IBV_QPS_RTR, &field, values[i]));
}

/* The smallest one has the number 1. */
static void path_mtu_zero_is_rejected(void)
{
	const struct field field = FIELD(path_mtu, IBV_QP_PATH_MTU);
	SAME(try_value(IBV_QPS_RTR, &field, 0), EINVAL);
}

/* Bits that no attribute has, and attributes that don't belong to the state. */
static void masks(void)
{
	for (int bit = 0; bit < 32; bit++) {
		struct ibv_qp *qp = before(IBV_QPS_INIT);
		int mask;
		struct ibv_qp_attr attr = usual(IBV_QPS_INIT, &mask);
		int more = ibv_modify_qp(qp, &attr, mask | (int)(1u << bit));
		CHECK(ibv_destroy_qp(qp) == 0);
		qp = before(IBV_QPS_INIT);
		int fewer = ibv_modify_qp(qp, &attr, mask & ~(int)(1u << bit));
		CHECK(ibv_destroy_qp(qp) == 0);
		tell("  bit %d: with errno %d, without errno %d\n", bit, more, fewer);
	}
}

static void completion_queues(void)
{
	const int lengths[] = { INT_MIN, -1, 0, 1, INT_MAX };
	const int vectors[] = { INT_MIN, -1, 0, left.context->num_comp_vectors, INT_MAX };
	struct ibv_device_attr device;
	CHECK(ibv_query_device(left.context, &device) == 0);
	for (size_t i = 0; i < COUNT(lengths); i++) {
		errno = 0;
		struct ibv_cq *cq = ibv_create_cq(left.context, lengths[i], NULL, NULL, 0);
		tell("  length %d: errno %d\n", lengths[i], cq ? 0 : errno);
		if (cq)
			CHECK(ibv_destroy_cq(cq) == 0);
	}
	RETURNS_NULL(ibv_create_cq(left.context, device.max_cqe + 1, NULL, NULL, 0), EINVAL);
	for (size_t i = 0; i < COUNT(vectors); i++) {
		errno = 0;
		struct ibv_cq *cq = ibv_create_cq(left.context, 4, NULL, NULL, vectors[i]);
		tell("  vector %zu: errno %d\n", i, cq ? 0 : errno);
		if (cq)
			CHECK(ibv_destroy_cq(cq) == 0);
	}
}

static void tell_queue_pair(const char *name, size_t index, struct ibv_qp_init_attr *init)
{
	errno = 0;
	struct ibv_qp *qp = ibv_create_qp(left.pd, init);
	tell("  %s %zu: errno %d\n", name, index, qp ? 0 : errno);
	if (qp)
		CHECK(ibv_destroy_qp(qp) == 0);
}

static struct ibv_qp_init_attr small_queue_pair(void)
{
	return (struct ibv_qp_init_attr){ .send_cq = left.cq,
					  .recv_cq = left.cq,
					  .cap = { 4, 4, 1, 1, 0 },
					  .qp_type = IBV_QPT_RC };
}

static void queue_pairs(void)
{
	struct ibv_device_attr device;
	CHECK(ibv_query_device(left.context, &device) == 0);
	const uint32_t lengths[] = { 0, 1, device.max_qp_wr + 1, UINT32_MAX };
	const uint32_t parts[] = { 0, 1, device.max_sge, device.max_sge + 1, UINT32_MAX };
	for (size_t i = 0; i < COUNT(lengths); i++) {
		struct ibv_qp_init_attr init = small_queue_pair();
		init.cap.max_send_wr = lengths[i];
		tell_queue_pair("max_send_wr", i, &init);
		init = small_queue_pair();
		init.cap.max_recv_wr = lengths[i];
		tell_queue_pair("max_recv_wr", i, &init);
	}
	for (size_t i = 0; i < COUNT(parts); i++) {
		struct ibv_qp_init_attr init = small_queue_pair();
		init.cap.max_send_sge = parts[i];
		tell_queue_pair("max_send_sge", i, &init);
		init = small_queue_pair();
		init.cap.max_recv_sge = parts[i];
		tell_queue_pair("max_recv_sge", i, &init);
	}
	for (int i = -1; i < 3; i++) {
		struct ibv_qp_init_attr init = small_queue_pair();
		init.sq_sig_all = i;
		tell_queue_pair("sq_sig_all", i + 1, &init);
	}
	const int types[] = { -1, 0, 1, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, 5, 6, 7, 11, 254, 256 };
	for (size_t i = 0; i < COUNT(types); i++) {
		struct ibv_qp_init_attr init = small_queue_pair();
		init.qp_type = types[i];
		tell_queue_pair("qp_type", i, &init);
	}
	struct ibv_qp_init_attr init = small_queue_pair();
	init.cap.max_inline_data = UINT32_MAX;
	tell_queue_pair("max_inline_data", 0, &init);
}

static void tell_shared_queue(const char *name, size_t index, struct ibv_srq_attr attr)
{
	struct ibv_srq_init_attr init = { .attr = attr };
	errno = 0;
	struct ibv_srq *srq = ibv_create_srq(left.pd, &init);
	tell("  %s %zu: errno %d\n", name, index, srq ? 0 : errno);
	if (srq)
		CHECK(ibv_destroy_srq(srq) == 0);
}

static void shared_receive_queues(void)
{
	struct ibv_device_attr device;
	CHECK(ibv_query_device(left.context, &device) == 0);
	const uint32_t lengths[] = { 0, 1, device.max_srq_wr + 1, UINT32_MAX };
	const uint32_t parts[] = { 0, 1, device.max_srq_sge, device.max_srq_sge + 1, UINT32_MAX };
	for (size_t i = 0; i < COUNT(lengths); i++)
		tell_shared_queue("max_wr", i, (struct ibv_srq_attr){ lengths[i], 1, 0 });
	for (size_t i = 0; i < COUNT(parts); i++)
		tell_shared_queue("max_sge", i, (struct ibv_srq_attr){ 4, parts[i], 0 });
	const uint32_t limits[] = { 0, 1, 4, 5, UINT32_MAX };
	for (size_t i = 0; i < COUNT(limits); i++)
		tell_shared_queue("srq_limit", i, (struct ibv_srq_attr){ 4, 1, limits[i] });
}

static void changes_of_a_shared_receive_queue(void)
{
	const uint32_t limits[] = { 0, 1, 3, 64, 1 << 20, UINT32_MAX };
	for (size_t i = 0; i < COUNT(limits); i++) {
		struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
		struct ibv_srq *srq = ibv_create_srq(left.pd, &init);
		CHECK(srq != NULL);
		struct ibv_srq_attr attr = { .max_wr = 4, .srq_limit = limits[i] };
		tell("  srq_limit %#x: errno %d\n", limits[i],
		     ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
		CHECK(ibv_destroy_srq(srq) == 0);
	}
}

static void address_handles(void)
{
	for (size_t i = 0; i < COUNT(BYTES); i++) {
		uint8_t value = BYTES[i];
		tell("  %u:", value);
		for (int field = 0; field < 5; field++) {
			int mask;
			struct ibv_ah_attr attr = usual(IBV_QPS_RTR, &mask).ah_attr;
			uint8_t *fields[] = { &attr.sl, &attr.src_path_bits, &attr.static_rate,
					      &attr.is_global, &attr.port_num };
			*fields[field] = value;
			errno = 0;
			struct ibv_ah *ah = ibv_create_ah(left.pd, &attr);
			tell(" errno %d", ah ? 0 : errno);
			if (ah)
				CHECK(ibv_destroy_ah(ah) == 0);
		}
		tell("\n");
	}
}

/* The permissions that only newer devices have: on demand, and to flush. */
#define NEWER (1 << 6 | 1 << 8 | 1 << 9)

/* Prints the result for some bits of the permissions, with and without the permission to write. */
static void tell_permissions(uint32_t bits)
{
	for (int bit = 0; bit < 32; bit++) {
		if (!(bits & 1u << bit))
			continue;
		tell("  bit %d:", bit);
		for (uint32_t write = 0; write < 2; write++) {
			errno = 0;
			int access = (int)(write | 1u << bit);
			struct ibv_mr *mr = ibv_reg_mr(left.pd, left.memory, 64, access);
			tell(" errno %d", mr ? 0 : errno);
			if (mr)
				CHECK(ibv_dereg_mr(mr) == 0);
		}
		tell("\n");
	}
}

static void permissions_of_memory(void)
{
	tell_permissions(~(uint32_t)NEWER);
}

static void newer_permissions_of_memory(void)
{
	struct ibv_mr *mr = ibv_reg_mr(left.pd, left.memory, 64, NEWER);
	CHECK(mr != NULL);
	CHECK(ibv_dereg_mr(mr) == 0);
}

int main(int words, char **word)
{
	static const struct test_case cases[] = {
		WITH_LEFT(attributes_of_the_state_init),
		WITH_LEFT(attributes_of_the_state_rtr),
		WITH_LEFT(responder_resources_up_to_the_limit),
		WITH_LEFT(attributes_of_a_path),
		WITH_LEFT(attributes_of_the_state_rts),
		WITH_LEFT(states),
		WITH_LEFT(path_mtus),
		WITH_LEFT(path_mtu_zero_is_rejected),
		WITH_LEFT(masks),
		WITH_LEFT(completion_queues),
		WITH_LEFT(queue_pairs),
		WITH_LEFT(shared_receive_queues),
		WITH_LEFT(changes_of_a_shared_receive_queue),
		WITH_LEFT(address_handles),
		WITH_LEFT(permissions_of_memory),
		WITH_LEFT(newer_permissions_of_memory),
	};
	return RUN(cases, words, word);
}
