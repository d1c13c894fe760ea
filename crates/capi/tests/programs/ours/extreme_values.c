/* Values at and beyond every edge: each call succeeds or names an error, and none ends the process.
 * EFAULT would be a panic of the library. */
#include <limits.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <sys/resource.h>
#include "../connection.h"

/* Values that are too small, too large, or have every bit. */
static const int NUMBERS[] = { 0, 1, -1, 2, 16, 17, 1 << 20, (1 << 20) + 1, (1 << 22) + 1, INT_MAX, INT_MIN };

#define FOR_EACH_NUMBER(name) \
	for (size_t name##_ = 0; name##_ < sizeof(NUMBERS) / sizeof(NUMBERS[0]); name##_++) \
		for (int name = NUMBERS[name##_], once_ = 1; once_; once_ = 0)

/* A verb that returns an error number, perhaps a negative one. */
#define TRY(call)                                                                                  \
	({                                                                                         \
		int tried_ = (call);                                                               \
		if (tried_ == EFAULT || tried_ == -EFAULT)                                         \
			COMPLAIN("%s panics", #call);                                              \
		tried_;                                                                            \
	})

/* One that returns a pointer. */
#define TRY_POINTER(call)                                                                          \
	({                                                                                         \
		errno = 0;                                                                         \
		__typeof__(call) tried_ = (call);                                                  \
		if (!tried_ && (errno == 0 || errno == EFAULT))                                    \
			COMPLAIN("%s: errno %d", #call, errno);                                    \
		tried_;                                                                            \
	})

/* One that returns -1 and sets errno. */
#define TRY_ERRNO(call)                                                                            \
	({                                                                                         \
		errno = 0;                                                                         \
		long tried_ = (call);                                                              \
		if (tried_ < 0 && (errno == 0 || errno == EFAULT))                                 \
			COMPLAIN("%s: errno %d", #call, errno);                                    \
		tried_;                                                                            \
	})

static void sizes_of_completion_queues(void)
{
	FOR_EACH_NUMBER(size) {
		struct ibv_cq *cq = TRY_POINTER(ibv_create_cq(left.context, size, NULL, NULL, 0));
		CHECK((cq != NULL) == (size > 0 && size <= 1 << 22));
		if (cq)
			CHECK(ibv_destroy_cq(cq) == 0);
		struct ibv_cq_init_attr_ex init = { .cqe = size, .comp_mask = size, .flags = size };
		struct ibv_cq_ex *extended = TRY_POINTER(ibv_create_cq_ex(left.context, &init));
		if (extended)
			CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(extended)) == 0);
		int resized = TRY(ibv_resize_cq(left.cq, size));
		CHECK((resized == 0) == (size > 0 && size <= 1 << 22));
		if (size < 0 || size >= left.context->num_comp_vectors) {
			RETURNS_NULL(ibv_create_cq(left.context, 1, NULL, NULL, size), EINVAL);
		} else {
			cq = TRY_POINTER(ibv_create_cq(left.context, 1, NULL, NULL, size));
			CHECK(cq != NULL && ibv_destroy_cq(cq) == 0);
		}
	}
}

/* rxe rejects the flag. */
static void a_queue_that_may_overrun_has_the_newest_completions(void)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 2, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					    .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct ibv_cq_ex *small = ibv_create_cq_ex(left.context, &init);
	CHECK(small != NULL);
	struct ibv_cq *usual = left.cq;
	left.cq = ibv_cq_ex_to_cq(small);
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	to_init(qp);
	to_error(qp);
	for (uint64_t id = 1; id <= 5; id++) {
		struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
		wr.wr_id = id;
		post(qp, &wr);
	}
	for (uint64_t id = 4; id <= 5; id++) {
		struct ibv_wc wc = wait_for(left.cq);
		CHECK(wc.wr_id == id && wc.status == IBV_WC_WR_FLUSH_ERR);
	}
	struct ibv_async_event event;
	set_nonblocking(left.context->async_fd);
	FAILS(ibv_get_async_event(left.context, &event), EAGAIN);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(left.cq) == 0);
	left.cq = usual;
}

static void counts_of_completions(void)
{
	struct ibv_wc wc[2];
	SAME(ibv_poll_cq(left.cq, 0, wc), 0);
	SAME(ibv_poll_cq(left.cq, 0, NULL), 0);
	SAME(ibv_poll_cq(left.cq, INT_MAX, wc), 0);
	CHECK(TRY(ibv_poll_cq(left.cq, -1, wc)) <= 0);
	CHECK(TRY(ibv_poll_cq(left.cq, INT_MIN, wc)) <= 0);
	ibv_ack_cq_events(left.cq, 0);
	ibv_ack_cq_events(left.cq, UINT_MAX);
	FOR_EACH_NUMBER(only)
		TRY(ibv_req_notify_cq(left.cq, only));
	struct ibv_modify_cq_attr attr = { 0 };
	FOR_EACH_NUMBER(mask) {
		attr.attr_mask = mask;
		TRY(ibv_modify_cq(left.cq, &attr));
	}
}

static void completions_read_before_there_are_any(void)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 4, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(left.context, &init);
	CHECK(cq != NULL);
	struct ibv_poll_cq_attr attr = { .comp_mask = UINT_MAX };
	CHECK(TRY(ibv_start_poll(cq, &attr)) != 0);
	attr.comp_mask = 0;
	SAME(ibv_next_poll(cq), ENOENT);
	SAME(ibv_start_poll(cq, &attr), ENOENT);
	ibv_wc_read_opcode(cq);
	ibv_wc_read_byte_len(cq);
	ibv_wc_read_imm_data(cq);
	ibv_wc_read_qp_num(cq);
	ibv_wc_read_src_qp(cq);
	ibv_wc_read_wc_flags(cq);
	ibv_wc_read_sl(cq);
	ibv_end_poll(cq);
	ibv_end_poll(cq);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

static void sizes_of_queue_pairs(void)
{
	FOR_EACH_NUMBER(size) for (int field = 0; field < 8; field++) {
		struct ibv_qp_init_attr init = { .send_cq = left.cq, .recv_cq = left.cq,
						 .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
		uint32_t *fields[] = { &init.cap.max_send_wr, &init.cap.max_recv_wr,
				       &init.cap.max_send_sge, &init.cap.max_recv_sge,
				       &init.cap.max_inline_data, &init.qp_type,
				       (uint32_t *)&init.sq_sig_all, &init.cap.max_send_wr };
		*fields[field] = size;
		struct ibv_qp *qp = TRY_POINTER(ibv_create_qp(left.pd, &init));
		if (field < 2)
			CHECK((qp != NULL) == (size >= 0 && size <= 1 << 20));
		if (qp)
			CHECK(ibv_destroy_qp(qp) == 0);
		struct ibv_qp_init_attr_ex extended = { .send_cq = left.cq, .recv_cq = left.cq,
							.qp_type = IBV_QPT_RC, .pd = left.pd,
							.comp_mask = size, .create_flags = size,
							.send_ops_flags = size };
		qp = TRY_POINTER(ibv_create_qp_ex(left.context, &extended));
		if (qp)
			CHECK(ibv_destroy_qp(qp) == 0);
	}
}

static void sizes_of_shared_queues(void)
{
	FOR_EACH_NUMBER(size) for (int field = 0; field < 3; field++) {
		struct ibv_srq_init_attr init = { .attr = { 4, 1, 0 } };
		uint32_t *fields[] = { &init.attr.max_wr, &init.attr.max_sge, &init.attr.srq_limit };
		*fields[field] = size;
		struct ibv_srq *srq = TRY_POINTER(ibv_create_srq(left.pd, &init));
		if (field == 0)
			CHECK((srq != NULL) == (size > 0 && size <= 1 << 20));
		if (!srq)
			continue;
		FOR_EACH_NUMBER(mask) {
			struct ibv_srq_attr attr = { .max_wr = size, .srq_limit = size };
			TRY(ibv_modify_srq(srq, &attr, mask));
		}
		struct ibv_srq_attr huge = { .max_wr = (1 << 20) + 1 };
		RETURNS_ERROR(ibv_modify_srq(srq, &huge, IBV_SRQ_MAX_WR), EINVAL);
		uint32_t number;
		TRY(ibv_get_srq_num(srq, &number));
		CHECK(ibv_destroy_srq(srq) == 0);
	}
}

static void odd_requests(void)
{
	struct ibv_sge sge = part(&left, 0, 8), many[64];
	for (int i = 0; i < 64; i++)
		many[i] = sge;
	struct ibv_send_wr long_list = request(IBV_WR_RDMA_WRITE, many), *rejected = NULL;
	long_list.num_sge = 5;
	RETURNS_ERROR(ibv_post_send(left.qp, &long_list, &rejected), EINVAL);
	long_list.num_sge = 64;
	RETURNS_ERROR(ibv_post_send(left.qp, &long_list, &rejected), EINVAL);
	FOR_EACH_NUMBER(count) for (int opcode = -2; opcode < 20; opcode++) {
		int flags[] = { 0, -1, IBV_SEND_INLINE, IBV_SEND_FENCE };
		for (int i = 0; i < 4; i++) {
			struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, NULL), *bad = NULL;
			wr.opcode = opcode;
			wr.send_flags = flags[i];
			wr.num_sge = count;
			if (TRY(ibv_post_send(left.qp, &wr, &bad)))
				CHECK(bad == &wr);
			else
				CHECK(count == 0 || opcode == IBV_WR_LOCAL_INV);
		}
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad = NULL;
		wr.opcode = opcode + 1000;
		RETURNS_ERROR(ibv_post_send(left.qp, &wr, &bad), EINVAL);
	}
	FOR_EACH_NUMBER(count) {
		struct ibv_recv_wr wr = { .num_sge = count }, *bad = NULL;
		SAME(TRY(ibv_post_recv(left.qp, &wr, &bad)) == 0, count == 0);
	}
	/* One segment, and nothing behind it. */
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
	long_list.sg_list = memcpy(pages + 4096 - sizeof(sge), &sge, sizeof(sge));
	long_list.num_sge = INT_MAX;
	RETURNS_ERROR(ibv_post_send(left.qp, &long_list, &rejected), EINVAL);
	SAME(ibv_post_send(left.qp, NULL, &rejected), 0);
	SAME(ibv_post_recv(left.qp, NULL, NULL), 0);
}

/* From every state to every state, with every mask of one or two attributes, and with all. */
static void states_in_every_order(void)
{
	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++)
		for (int from = -1; from <= 8; from++)
			for (int to = -1; to <= 8; to++)
				for (int bit = 0; bit < 32; bit++) {
					if (type > IBV_QPT_UD || (bit > 26 && from > 0))
						continue;
					struct ibv_qp *qp = make_qp(&left, type);
					struct ibv_qp_attr attr;
					memset(&attr, from + bit, sizeof(attr));
					attr.qp_state = from;
					TRY(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
					attr.cur_qp_state = from;
					attr.qp_state = to;
					TRY(ibv_modify_qp(qp, &attr, IBV_QP_STATE | 1u << bit));
					TRY(ibv_modify_qp(qp, &attr, -1));
					TRY(ibv_modify_qp(qp, &attr, 0x1fffff));
					CHECK(ibv_destroy_qp(qp) == 0);
				}
}

static void every_state_of_a_connected_queue_pair(void)
{
	for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++)
		for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++) {
			struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
			to_init(qp);
			to_rts(qp, qp->qp_num, left.gid);
			struct ibv_qp_attr attr = { .qp_state = from };
			TRY(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
			attr.qp_state = to;
			TRY(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
			struct ibv_qp_init_attr init;
			FOR_EACH_NUMBER(mask)
				SAME(ibv_query_qp(qp, &attr, mask, &init), 0);
			struct ibv_sge sge = part(&left, 0, 8);
			struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad;
			TRY(ibv_post_send(qp, &wr, &bad));
			CHECK(ibv_destroy_qp(qp) == 0);
		}
}

static void odd_groups(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_UD);
	to_init(qp);
	union ibv_gid gid;
	for (int byte = 0; byte < 256; byte += 15) {
		memset(&gid, byte, sizeof(gid));
		FOR_EACH_NUMBER(lid) {
			int attached = TRY(ibv_attach_mcast(qp, &gid, lid));
			SAME(TRY(ibv_detach_mcast(qp, &gid, lid)) == 0, attached == 0);
		}
	}
	RETURNS_ERROR(ibv_attach_mcast(qp, NULL, 0), EINVAL);
	RETURNS_ERROR(ibv_detach_mcast(qp, NULL, 0), EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
}

/* The group's datagrams come over a socket of their own. */
static void a_group_without_a_descriptor(void)
{
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_UD);
	to_init(qp);
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, [13] = 1, [15] = 1 } };
	struct rlimit former, none;
	CHECK(getrlimit(RLIMIT_NOFILE, &former) == 0);
	none = (struct rlimit){ .rlim_cur = 3, .rlim_max = former.rlim_max };
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	RETURNS_ERROR(ibv_attach_mcast(qp, &gid, 0), EMFILE);
	RETURNS_ERROR(ibv_detach_mcast(qp, &gid, 0), EINVAL);
	CHECK(setrlimit(RLIMIT_NOFILE, &former) == 0);
	CHECK(ibv_attach_mcast(qp, &gid, 0) == 0 && ibv_detach_mcast(qp, &gid, 0) == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void odd_memory(void)
{
	FOR_EACH_NUMBER(access) {
		struct ibv_mr *mr = ibv_reg_mr(left.pd, left.memory, 64, access);
		if (mr)
			CHECK(ibv_dereg_mr(mr) == 0);
		FOR_EACH_NUMBER(flags) {
			mr = ibv_reg_mr(left.pd, left.memory, 64, 0);
			CHECK(mr != NULL);
			ibv_rereg_mr(mr, flags, left.pd, left.memory, access, access);
			CHECK(ibv_dereg_mr(mr) == 0);
		}
	}
	RETURNS_NULL(ibv_reg_mr(left.pd, left.memory, SIZE_MAX, 0), EINVAL);
	RETURNS_NULL(ibv_reg_mr(left.pd, NULL, 8, 0), EFAULT);
	struct ibv_sge sge = part(&left, 0, 8);
	FOR_EACH_NUMBER(advice)
		TRY(ibv_advise_mr(left.pd, advice, advice, &sge, 1));
	RETURNS_ERROR(ibv_advise_mr(left.pd, 0, 0, NULL, 1), EINVAL);
}

static void odd_windows(void)
{
	FOR_EACH_NUMBER(number) {
		struct ibv_mw *mw = TRY_POINTER(ibv_alloc_mw(left.pd, number));
		CHECK((mw != NULL) == (number == IBV_MW_TYPE_1 || number == IBV_MW_TYPE_2));
		if (!mw)
			continue;
		FOR_EACH_NUMBER(access) {
			struct ibv_mw_bind bind = { .send_flags = access,
						    .bind_info = { .addr = access, .length = access,
								   .mw_access_flags = access } };
			TRY(ibv_bind_mw(left.qp, mw, &bind));
			bind.bind_info.mr = left.mr;
			TRY(ibv_bind_mw(left.qp, mw, &bind));
			struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .send_flags = access,
						  .bind_mw = { .mw = mw, .rkey = access,
							       .bind_info = bind.bind_info } }, *bad;
			TRY(ibv_post_send(left.qp, &wr, &bad));
			wr.bind_mw.mw = NULL;
			CHECK(TRY(ibv_post_send(left.qp, &wr, &bad)) != 0);
		}
		CHECK(ibv_dealloc_mw(mw) == 0);
	}
}

static void odd_domains(void)
{
	FOR_EACH_NUMBER(number) {
		struct ibv_xrcd_init_attr init = { .comp_mask = number, .fd = number, .oflags = number };
		struct ibv_xrcd *xrcd = TRY_POINTER(ibv_open_xrcd(left.context, &init));
		if (xrcd)
			CHECK(ibv_close_xrcd(xrcd) == 0);
		init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
		xrcd = TRY_POINTER(ibv_open_xrcd(left.context, &init));
		if (xrcd)
			CHECK(ibv_close_xrcd(xrcd) == 0);
		struct ibv_qp_open_attr open = { .comp_mask = number, .qp_num = number };
		CHECK(!TRY_POINTER(ibv_open_qp(left.context, &open)));
		struct ibv_td_init_attr thread = { .comp_mask = number };
		struct ibv_td *td = TRY_POINTER(ibv_alloc_td(left.context, &thread));
		if (td)
			CHECK(ibv_dealloc_td(td) == 0);
		struct ibv_parent_domain_init_attr parent = { .pd = left.pd, .comp_mask = number };
		struct ibv_pd *pd = TRY_POINTER(ibv_alloc_parent_domain(left.context, &parent));
		if (pd)
			CHECK(ibv_dealloc_pd(pd) == 0);
		CHECK(!TRY_POINTER(ibv_import_mr(left.pd, number + 123456)));
		CHECK(!TRY_POINTER(ibv_import_dm(left.context, number + 123456)));
		CHECK(!TRY_POINTER(ibv_import_device(-1)));
	}
	struct ibv_parent_domain_init_attr nothing = { 0 };
	RETURNS_NULL(ibv_alloc_parent_domain(left.context, &nothing), EINVAL);
}

/* As by rdma-core, and by its libraries of NICs that have such objects. */
static void fields_that_newer_programs_know(void)
{
	struct ibv_xrcd_init_attr domain = { .comp_mask = 7, .fd = -1, .oflags = O_CREAT };
	RETURNS_NULL(ibv_open_xrcd(left.context, &domain), EOPNOTSUPP);
	struct ibv_qp_open_attr open = { .comp_mask = 31, .qp_type = IBV_QPT_XRC_RECV };
	RETURNS_NULL(ibv_open_qp(left.context, &open), EOPNOTSUPP);
	struct ibv_srq_init_attr_ex shared = { .attr = { 4, 1, 0 }, .pd = left.pd,
					       .comp_mask = IBV_SRQ_INIT_ATTR_PD | 32 };
	RETURNS_NULL(ibv_create_srq_ex(left.context, &shared), EOPNOTSUPP);
	struct ibv_parent_domain_init_attr parent = { .pd = left.pd, .comp_mask = 8 };
	RETURNS_NULL(ibv_alloc_parent_domain(left.context, &parent), EINVAL);
	parent.comp_mask = 4;
	struct ibv_pd *pd = ibv_alloc_parent_domain(left.context, &parent);
	CHECK(pd != NULL && ibv_dealloc_pd(pd) == 0);
	struct ibv_values_ex values = { .comp_mask = 2 };
	RETURNS_ERROR(ibv_query_rt_values_ex(left.context, &values), EINVAL);
}

/* Devices without XRC can't create such a queue. */
static void an_ordinary_queue_pair_takes_no_receives_of_xrc(void)
{
	struct ibv_xrcd_init_attr domain = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							  IBV_XRCD_INIT_ATTR_OFLAGS,
					     .fd = -1, .oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(left.context, &domain);
	CHECK(xrcd != NULL);
	struct ibv_srq_init_attr_ex shared = { .attr = { 4, 1, 0 },
					       .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
							    IBV_SRQ_INIT_ATTR_PD |
							    IBV_SRQ_INIT_ATTR_XRCD |
							    IBV_SRQ_INIT_ATTR_CQ,
					       .srq_type = IBV_SRQT_XRC, .pd = left.pd,
					       .xrcd = xrcd, .cq = left.cq };
	struct ibv_srq *srq = ibv_create_srq_ex(left.context, &shared);
	CHECK(srq != NULL);
	struct ibv_qp_init_attr init = { .send_cq = left.cq, .recv_cq = left.cq, .srq = srq,
					 .cap = { 1, 0, 1, 0, 0 }, .qp_type = IBV_QPT_RC };
	RETURNS_NULL(ibv_create_qp(left.pd, &init), EINVAL);
	CHECK(ibv_destroy_srq(srq) == 0 && ibv_close_xrcd(xrcd) == 0);
}

static void odd_device_memory(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(left.context, &attr);
	CHECK(dm != NULL);
	char bytes[64];
	SAME(ibv_memcpy_to_dm(dm, 0, NULL, 0), 0);
	SAME(ibv_memcpy_from_dm(NULL, dm, 64, 0), 0);
	RETURNS_ERROR(ibv_memcpy_to_dm(dm, 0, NULL, 4), EINVAL);
	RETURNS_ERROR(ibv_memcpy_from_dm(NULL, dm, 0, 4), EINVAL);
	RETURNS_ERROR(ibv_memcpy_to_dm(dm, UINT64_MAX & ~3, bytes, 8), EINVAL);
	RETURNS_ERROR(ibv_memcpy_from_dm(bytes, dm, 64, 4), EINVAL);
	RETURNS_ERROR(ibv_memcpy_to_dm(dm, 0, bytes, SIZE_MAX), EINVAL);
	RETURNS_NULL(ibv_reg_dm_mr(left.pd, dm, UINT64_MAX, 64, IBV_ACCESS_ZERO_BASED), EINVAL);
	CHECK(ibv_free_dm(dm) == 0);
}

static void odd_questions(void)
{
	union ibv_gid gid;
	uint16_t key;
	volatile unsigned rates = 0;
	struct ibv_port_attr port;
	struct ibv_gid_entry entries[16];
	FOR_EACH_NUMBER(number) {
		ibv_query_gid(left.context, 1, number, &gid);
		ibv_query_gid(left.context, number, 0, &gid);
		ibv_query_pkey(left.context, 1, number, &key);
		ibv_get_pkey_index(left.context, number, number);
		TRY(ibv_query_port(left.context, number, &port));
		TRY(ibv_query_gid_ex(left.context, number, number, entries, number));
		CHECK(ibv_wc_status_str(number) != NULL && ibv_event_type_str(number) != NULL);
		CHECK(ibv_node_type_str(number) != NULL && ibv_port_state_str(number) != NULL);
		CHECK(rdma_event_str(number) != NULL);
		rates += ibv_rate_to_mult(number) + ibv_rate_to_mbps(number) +
			 mult_to_ibv_rate(number) + mbps_to_ibv_rate(number);
	}
	RETURNS_ERROR(_ibv_query_gid_table(left.context, entries, 16, 0, 0), -EINVAL);
	RETURNS_ERROR(_ibv_query_gid_table(left.context, entries, SIZE_MAX, 0, sizeof(entries)), -EINVAL);
	struct ibv_ah_attr attr;
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	struct ibv_grh header;
	for (int byte = 0; byte < 256; byte++) {
		memset(&header, byte, sizeof(header));
		TRY_ERRNO(ibv_init_ah_from_wc(left.context, 1, &wc, &header, &attr));
		memset(&attr, byte, sizeof(attr));
		struct ibv_ah *ah = TRY_POINTER(ibv_create_ah(left.pd, &attr));
		if (ah)
			CHECK(ibv_destroy_ah(ah) == 0);
	}
}

static void parts_without_a_request(void)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = left.cq, .recv_cq = left.cq,
					    .cap = { 4, 4, 1, 1, 64 }, .qp_type = IBV_QPT_RC,
					    .comp_mask = IBV_QP_INIT_ATTR_PD |
							 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					    .pd = left.pd, .send_ops_flags = IBV_QP_EX_WITH_SEND };
	struct ibv_qp *qp = ibv_create_qp_ex(left.context, &init);
	CHECK(qp != NULL);
	struct ibv_qp_ex *extended = ibv_qp_to_qp_ex(qp);
	TRY(ibv_wr_complete(extended));
	ibv_wr_start(extended);
	ibv_wr_set_sge(extended, 1, 2, 3);
	RETURNS_ERROR(ibv_wr_complete(extended), EINVAL);
	ibv_wr_start(extended);
	ibv_wr_send(extended);
	ibv_wr_set_sge_list(extended, SIZE_MAX, NULL);
	RETURNS_ERROR(ibv_wr_complete(extended), EINVAL);
	ibv_wr_start(extended);
	ibv_wr_set_ud_addr(extended, NULL, 1, 1);
	ibv_wr_abort(extended);
	ibv_wr_abort(extended);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void no_event_to_wait_for(void)
{
	struct ibv_cq *cq;
	void *context;
	struct ibv_async_event event;
	set_nonblocking(left.channel->fd);
	set_nonblocking(left.context->async_fd);
	FAILS(ibv_get_cq_event(left.channel, &cq, &context), EAGAIN);
	FAILS(ibv_get_cq_event(left.channel, NULL, NULL), EINVAL);
	FAILS(ibv_get_async_event(left.context, &event), EAGAIN);
	FOR_EACH_NUMBER(type) {
		event = (struct ibv_async_event){ .event_type = type };
		ibv_ack_async_event(&event);
	}
}

/* An id that listens, and one that knows its way. */
static void odd_wishes(void)
{
	make_qp_of(client);
	char data[256] = { 0 };
	struct rdma_conn_param odd = { .private_data = data, .private_data_len = 255 };
	FAILS(rdma_connect(client, &odd), EINVAL);
	FAILS(rdma_accept(client, &odd), EINVAL);
	odd = (struct rdma_conn_param){ .responder_resources = 200 };
	FAILS(rdma_connect(client, &odd), EINVAL);
	FAILS(rdma_reject(client, data, 255), EINVAL);
	FAILS(rdma_reject(client, NULL, 255), EINVAL);
	FAILS(rdma_connect(listener, NULL), EINVAL);
	FAILS(rdma_listen(client, 1), EINVAL);
	FAILS(rdma_get_request(listener, &accepted), EINVAL);
	accepted = NULL;
	FOR_EACH_NUMBER(number) {
		TRY_ERRNO(rdma_set_option(client, number, number, &number, number));
		TRY_ERRNO(rdma_set_option(client, 0, number, NULL, sizeof(number)));
		TRY_ERRNO(rdma_notify(client, number));
		struct ibv_qp_attr attr = { .qp_state = number };
		int mask;
		TRY_ERRNO(rdma_init_qp_attr(client, &attr, &mask));
	}
	odd = (struct rdma_conn_param){ .private_data = NULL, .private_data_len = 255 };
	TRY_ERRNO(rdma_connect(client, &odd));
}

/* More reads and atomics than any device of ours has. */
static struct rdma_conn_param too_deep = { .responder_resources = 200, .initiator_depth = 250, .qp_num = 17 };

static void has_the_limits_of_the_device(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_device_attr device;
	CHECK(ibv_query_device(qp->context, &device) == 0);
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init) == 0);
	SAME(attr.max_rd_atomic, device.max_qp_init_rd_atom);
	SAME(attr.max_dest_rd_atomic, device.max_qp_rd_atom);
}

/* The library rejects such numbers from the ids of RDMA_PS_TCP alone, so the peer says that it is another one. */
static void a_reply_with_more_reads_than_the_device_has(void)
{
	struct rdma_cm_event *event = ask();
	accepted = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	accepted->ps = RDMA_PS_IB;
	CHECK(rdma_accept(accepted, &too_deep) == 0);
	for (int heard = 0; heard < 2; heard++)
		pass(RDMA_CM_EVENT_ESTABLISHED);
	CHECK(client->qp->state == IBV_QPS_RTS);
	has_the_limits_of_the_device(client->qp);
}

static void a_request_with_more_reads_than_the_device_has(void)
{
	client->ps = RDMA_PS_IB;
	CHECK(rdma_connect(client, &too_deep) == 0);
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	accepted = event->id;
	SAME(event->param.conn.responder_resources, 250);
	SAME(event->param.conn.initiator_depth, 200);
	CHECK(rdma_ack_cm_event(event) == 0);
	make_qp_of(accepted);
	/* A program that changes the states itself. */
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int mask;
	CHECK(rdma_init_qp_attr(accepted, &attr, &mask) == 0);
	struct ibv_device_attr device;
	CHECK(ibv_query_device(accepted->verbs, &device) == 0);
	SAME(attr.max_dest_rd_atomic, device.max_qp_rd_atom);
	CHECK(rdma_accept(accepted, NULL) == 0);
	has_the_limits_of_the_device(accepted->qp);
	pass(RDMA_CM_EVENT_CONNECT_RESPONSE);
}

static void odd_backlogs_and_addresses(void)
{
	FOR_EACH_NUMBER(number) {
		struct rdma_cm_id *id = new_id(RDMA_PS_TCP);
		struct sockaddr_storage odd;
		memset(&odd, number, sizeof(odd));
		TRY_ERRNO(rdma_bind_addr(id, (struct sockaddr *)&odd));
		TRY_ERRNO(rdma_resolve_addr(id, NULL, (struct sockaddr *)&odd, number));
		TRY_ERRNO(rdma_resolve_route(id, number));
		TRY_ERRNO(rdma_join_multicast(id, (struct sockaddr *)&odd, NULL));
		TRY_ERRNO(rdma_leave_multicast(id, (struct sockaddr *)&odd));
		CHECK(bind_to(id, at(own_address(), 0)) == 0);
		TRY_ERRNO(rdma_listen(id, number));
		FAILS(rdma_bind_addr(id, NULL), EINVAL);
		TRY_ERRNO(rdma_disconnect(id));
		TRY_ERRNO(rdma_establish(id));
		CHECK(rdma_destroy_id(id) == 0);
		if (rdma_create_id(channel, &id, NULL, number) == 0)
			CHECK(rdma_destroy_id(id) == 0);
	}
	set_nonblocking(channel->fd);
	struct rdma_cm_event *event;
	FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
	FAILS(rdma_get_cm_event(channel, NULL), EINVAL);
}

static void an_event_acknowledged_twice(void)
{
	struct rdma_cm_event *event = ask();
	accepted = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	FAILS(rdma_ack_cm_event(event), EINVAL);
	FAILS(rdma_ack_cm_event(NULL), EINVAL);
}

/* What is rejected leaves nothing behind. */
static void sizes_of_an_ids_queues(void)
{
	int before = count_descriptors();
	FOR_EACH_NUMBER(size) {
		struct ibv_qp_init_attr init = { .cap = { size, size, 1, 1, 0 },
						 .qp_type = IBV_QPT_RC };
		if (TRY_ERRNO(rdma_create_qp(client, NULL, &init)) == 0)
			rdma_destroy_qp(client);
		CHECK(!client->send_cq && !client->recv_cq && !client->recv_cq_channel);
		check_that_none_is_left_open(before);
		struct ibv_srq_init_attr shared = { .attr = { size, size, size } };
		if (TRY_ERRNO(rdma_create_srq(client, NULL, &shared)) == 0)
			rdma_destroy_srq(client);
	}
	check_that_none_is_left_open(before);
}

static void long_private_data_of_an_endpoint(void)
{
	struct sockaddr_in peer = at(own_address(), ntohs(rdma_get_src_port(listener)));
	char data[8];
	struct rdma_addrinfo info = { .ai_family = AF_INET, .ai_qp_type = IBV_QPT_RC,
				      .ai_port_space = RDMA_PS_TCP,
				      .ai_dst_addr = (struct sockaddr *)&peer,
				      .ai_dst_len = sizeof(peer), .ai_connect = data,
				      .ai_connect_len = SIZE_MAX };
	struct rdma_cm_id *id;
	FAILS(rdma_create_ep(&id, &info, NULL, NULL), EINVAL);
	info.ai_connect_len = 256;
	FAILS(rdma_create_ep(&id, &info, NULL, NULL), EINVAL);
}

static int datagram_socket(void)
{
	int number = rsocket(AF_INET, SOCK_DGRAM, 0);
	CHECK(number >= 0);
	struct sockaddr_in here = at(own_address(), 0);
	CHECK(rbind(number, (struct sockaddr *)&here, sizeof(here)) == 0);
	socklen_t length = sizeof(here);
	CHECK(rgetsockname(number, (struct sockaddr *)&here, &length) == 0);
	CHECK(rconnect(number, (struct sockaddr *)&here, sizeof(here)) == 0);
	return number;
}

static void lengths_of_datagrams(void)
{
	int number = datagram_socket();
	char byte = 'x', page[4096];
	FAILS(rsend(number, page, SIZE_MAX, 0), EMSGSIZE);
	FAILS(rsend(number, page, sizeof(page), 0), EMSGSIZE);
	struct iovec two[2] = { { page, SIZE_MAX }, { page, SIZE_MAX } };
	FAILS(rwritev(number, two, 2), EMSGSIZE);
	FAILS(rrecv(number, page, SIZE_MAX, MSG_DONTWAIT), EAGAIN);
	SAME(rsend(number, &byte, 1, 0), 1);
	SAME(rrecv(number, page, SIZE_MAX, 0), 1);
	SAME(rsend(number, &byte, 1, 0), 1);
	SAME(rreadv(number, two, 2), 1);
	SAME(page[0], 'x');
	CHECK(rclose(number) == 0);
}

static void lists_of_buffers_without_end(void)
{
	int number = datagram_socket();
	struct iovec one = { .iov_base = &number, .iov_len = 1 };
	FAILS(rreadv(number, &one, INT_MAX), EINVAL);
	FAILS(rwritev(number, &one, 1025), EINVAL);
	FAILS(rreadv(number, &one, -1), EINVAL);
	struct msghdr message = { .msg_iov = &one, .msg_iovlen = SIZE_MAX };
	FAILS(rrecvmsg(number, &message, 0), EMSGSIZE);
	FAILS(rsendmsg(number, &message, 0), EMSGSIZE);
	struct pollfd entry = { .fd = number, .events = POLLOUT };
	FAILS(rpoll(&entry, SIZE_MAX, 0), EINVAL);
	SAME(rpoll(&entry, 1, INT_MAX), 1);
	CHECK(rclose(number) == 0);
}

static void odd_selects(void)
{
	int number = datagram_socket();
	fd_set set;
	FD_ZERO(&set);
	FD_SET(number, &set);
	struct timeval forever = { .tv_sec = LONG_MAX, .tv_usec = 999999 }, past = { .tv_sec = -1 };
	SAME(rselect(INT_MAX, NULL, &set, NULL, &forever), 1);
	CHECK(FD_ISSET(number, &set));
	FAILS(rselect(-1, NULL, &set, NULL, NULL), EINVAL);
	FAILS(rselect(number + 1, NULL, &set, NULL, &past), EINVAL);
	CHECK(rclose(number) == 0);
}

static void odd_options(void)
{
	int stream = rsocket(AF_INET, SOCK_STREAM, 0), value = 0;
	CHECK(stream >= 0);
	socklen_t length = sizeof(value);
	int levels[] = { SOL_SOCKET, 6, 41, 0x10000, -1 };
	for (int i = 0; i < 5; i++)
		for (int name = -1; name < 40; name++) {
			FOR_EACH_NUMBER(number)
				TRY_ERRNO(rsetsockopt(stream, levels[i], name, &number, sizeof(number)));
			TRY_ERRNO(rsetsockopt(stream, levels[i], name, NULL, UINT_MAX));
			TRY_ERRNO(rgetsockopt(stream, levels[i], name, &value, &length));
		}
	FAILS(rsend(stream, &value, SIZE_MAX, 0), ENOTCONN);
	FAILS(rrecv(stream, &value, SIZE_MAX, 0), ENOTCONN);
	FOR_EACH_NUMBER(number) {
		TRY_ERRNO(rshutdown(stream, number));
		TRY_ERRNO(rfcntl(stream, number, number));
		TRY_ERRNO(riomap(stream, &value, SIZE_MAX, number, 0, number));
		TRY_ERRNO(riounmap(stream, &value, number));
		TRY_ERRNO(riowrite(stream, &value, SIZE_MAX, number, 0));
		TRY_ERRNO(rsocket(number, number, number));
		FAILS(rclose(number < 0 ? number : number + 9999), EBADF);
	}
	TRY_ERRNO(rlisten(stream, INT_MIN));
	CHECK(rclose(stream) == 0);
}

static void reject_to_post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	RETURNS_ERROR(ibv_post_send(qp, wr, &bad), EINVAL);
	CHECK(bad == wr);
	CHECK(qp->state == IBV_QPS_RTS);
}

/* Some devices take such requests and complete them with an error. */
static void datagrams_are_not_one_sided(void)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = left.gid, .hop_limit = 64 } };
	struct ibv_ah *ah = ibv_create_ah(left.pd, &attr);
	CHECK(ah != NULL);
	left.qp = make_qp(&left, IBV_QPT_UD);
	to_init(left.qp);
	to_rts(left.qp, 0, left.gid);
	struct ibv_sge sge = part(&left, 0, 8);
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		struct ibv_send_wr wr = { .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = opcodes[i],
					  .wr.ud = { .ah = ah, .remote_qpn = left.qp->qp_num } };
		reject_to_post(left.qp, &wr);
	}
	CHECK(ibv_destroy_ah(ah) == 0);
}

/* The library of rxe does not post it. With NICs the responder rejects it. */
static void an_atomic_needs_an_aligned_address(void)
{
	struct ibv_sge sge = part(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
	wr.wr.atomic.remote_addr += 8;
	SAME(fate_of(&left, &wr), IBV_WC_SUCCESS);
	wr.wr.atomic.remote_addr -= 4;
	SAME(fate_of(&left, &wr), IBV_WC_REM_INV_REQ_ERR);
}

static const struct test_case CASES[] = {
	WITH_LEFT(sizes_of_completion_queues),
	WITH_LEFT(a_queue_that_may_overrun_has_the_newest_completions),
	WITH_LEFT(counts_of_completions),
	WITH_LEFT(completions_read_before_there_are_any),
	WITH_LEFT(sizes_of_queue_pairs),
	WITH_LEFT(sizes_of_shared_queues),
	WITH_JOINED(odd_requests),
	WITH_LEFT(states_in_every_order),
	WITH_BOTH(every_state_of_a_connected_queue_pair),
	WITH_LEFT(odd_groups),
	WITH_LEFT(a_group_without_a_descriptor),
	WITH_LEFT(odd_memory),
	WITH_JOINED(odd_windows),
	WITH_LEFT(odd_domains),
	WITH_LEFT(fields_that_newer_programs_know),
	WITH_LEFT(an_ordinary_queue_pair_takes_no_receives_of_xrc),
	WITH_LEFT(odd_device_memory),
	WITH_LEFT(odd_questions),
	WITH_LEFT(parts_without_a_request),
	WITH_LEFT(no_event_to_wait_for),
	WITH_ROUTE(odd_wishes),
	WITH_ROUTE(a_reply_with_more_reads_than_the_device_has),
	WITH_ROUTE(a_request_with_more_reads_than_the_device_has),
	WITH_CHANNEL(odd_backlogs_and_addresses),
	WITH_ROUTE(an_event_acknowledged_twice),
	WITH_ROUTE(sizes_of_an_ids_queues),
	WITH_LISTENER(long_private_data_of_an_endpoint),
	CASE(lengths_of_datagrams),
	CASE(lists_of_buffers_without_end),
	CASE(odd_selects),
	CASE(odd_options),
	WITH_LEFT(datagrams_are_not_one_sided),
	WITH_JOINED(an_atomic_needs_an_aligned_address),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
