/* Scenes in which everything arrives. */
#include "probe.h"

#include <endian.h>
#include <string.h>

static uint32_t path_mtu(void)
{
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr initial;
    must(!ibv_query_qp(id->qp, &attributes, IBV_QP_PATH_MTU, &initial), "ibv_query_qp");
    return 128u << attributes.path_mtu;
}

void every_size(void)
{
    uint32_t mtu = path_mtu(), sizes[] = {0, 1, mtu - 1, mtu, mtu + 1, 65536, is("sizes") ? MEMORY : 262144};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t size = sizes[i];
        if (!is_client()) {
            struct ibv_wc got = next_completion(received, "receive");
            int right = got.status == IBV_WC_SUCCESS && got.byte_len == size && has_pattern(bytes, size, i);
            say("SEND %u: %s", size, right ? "right" : "WRONG");
            receive(0, MEMORY);
            answer();
            completes(received, "receive");
            say("WRITE %u: %s", size, has_pattern(bytes + MEMORY, size, i + 50) ? "right" : "WRONG");
            receive(0, MEMORY);
            answer();
            continue;
        }
        receive(MEMORY, 0);
        pattern(bytes, size, i);
        transfer(IBV_WR_SEND, 0, size, 0, 0);
        completes(sent, "SEND"), completes(received, "answer");
        pattern(bytes, size, i + 50);
        transfer(IBV_WR_RDMA_WRITE, 0, size, MEMORY, theirs.key);
        completes(sent, "WRITE");
        memset(bytes, 0, size);
        transfer(IBV_WR_RDMA_READ, 0, size, MEMORY, theirs.key);
        completes(sent, "READ");
        say("READ %u: %s", size, has_pattern(bytes, size, i + 50) ? "right" : "WRONG");
        receive(MEMORY, 0);
        transfer(IBV_WR_SEND, 0, 0, 0, 0);
        completes(sent, "SEND"), completes(received, "answer");
    }
}

void immediate(void)
{
    static const struct { enum ibv_wr_opcode opcode; uint32_t length; } work[] = {
        {IBV_WR_SEND_WITH_IMM, 100}, {IBV_WR_RDMA_WRITE_WITH_IMM, 5000}, {IBV_WR_RDMA_WRITE_WITH_IMM, 0}};
    for (unsigned i = 0; i < 3; i++) {
        if (!is_client()) {
            struct ibv_wc got = next_completion(received, "receive");
            say("status %d, opcode %d, %u bytes, immediate %s %08x", got.status, got.opcode, got.byte_len,
                got.wc_flags & IBV_WC_WITH_IMM ? "yes" : "no", be32toh(got.imm_data));
            receive(0, MEMORY);
            answer();
            continue;
        }
        receive(MEMORY, 0);
        transfer(work[i].opcode, 0, work[i].length, 0, theirs.key);
        report(sent, "request"), completes(received, "answer");
    }
}

void many_reads(void)
{
    if (!is_client()) {
        pattern(bytes + MEMORY, READS * 10000, 9);
        answer();
        report(received, "receive");
        return;
    }
    completes(received, "answer");
    for (unsigned i = 0; i < READS; i++)
        transfer(IBV_WR_RDMA_READ, i * 10000, 10000, MEMORY + i * 10000, theirs.key);
    for (unsigned i = 0; i < READS; i++)
        completes(sent, "READ");
    say("%d READs: %s", READS, has_pattern(bytes, READS * 10000, 9) ? "right" : "WRONG");
    transfer(IBV_WR_SEND, 0, 0, 0, 0);
    completes(sent, "SEND");
}

static uint64_t atomic(enum ibv_wr_opcode opcode, uint64_t compare, uint64_t swap_or_add)
{
    struct ibv_sge piece = {(uintptr_t)bytes, 8, region->lkey};
    struct ibv_send_wr work = {.opcode = opcode, .sg_list = &piece, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
    work.wr.atomic.remote_addr = theirs.address + MEMORY;
    work.wr.atomic.rkey = theirs.key;
    work.wr.atomic.compare_add = opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? compare : swap_or_add;
    work.wr.atomic.swap = swap_or_add;
    post(&work);
    completes(sent, "atomic");
    return *(volatile uint64_t *)bytes;
}

void atomics(void)
{
    if (!is_client()) {
        report(received, "receive");
        say("the number is %llu", (unsigned long long)*(uint64_t *)(bytes + MEMORY));
        return;
    }
    for (unsigned i = 0; i < 20; i++)
        must(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 3) == i * 3, "fetch and add");
    must(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 59, 1) == 60, "a comparison that fails");
    must(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 60, 1000) == 60, "a comparison that holds");
    must(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 1) == 1000, "fetch and add");
    transfer(IBV_WR_SEND, 0, 0, 0, 0);
    report(sent, "SEND");
}

void inlined(void)
{
    if (!is_client()) {
        struct ibv_wc got = report(received, "receive");
        say("%u bytes: %s", got.byte_len, has_pattern(bytes, 64, 4) ? "right" : "WRONG");
        return;
    }
    uint8_t data[64];
    pattern(data, sizeof data, 4);
    struct ibv_sge piece = {(uintptr_t)data, sizeof data, 0};
    struct ibv_send_wr work = request(IBV_WR_SEND, &piece, 0);
    work.send_flags |= IBV_SEND_INLINE;
    post(&work);
    memset(data, 0, sizeof data);
    report(sent, "inline SEND");
}

/* A type 2 window at the server, which the client uses, invalidates with its SEND, and misses. */
void invalidate(void)
{
    if (!is_client()) {
        struct ibv_mw *window = ibv_alloc_mw(domain, IBV_MW_TYPE_2);
        must(window != NULL, "ibv_alloc_mw");
        struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
        bind.bind_mw.mw = window;
        bind.bind_mw.rkey = ibv_inc_rkey(window->rkey);
        bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
            region, (uintptr_t)bytes + MEMORY, 4096, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
        post(&bind);
        report(sent, "bind");
        memcpy(bytes + 64, &bind.bind_mw.rkey, 4);
        transfer(IBV_WR_SEND, 64, 4, 0, 0);
        completes(sent, "SEND");
        struct ibv_wc got = report(received, "receive");
        say("invalidation %s, the key is %s", got.wc_flags & IBV_WC_WITH_INV ? "is reported" : "is NOT reported",
            got.invalidated_rkey == bind.bind_mw.rkey ? "right" : "WRONG");
        receive(0, MEMORY);
        /* What comes next may break the queue pair before this is acknowledged. */
        transfer(IBV_WR_SEND, 0, 0, 0, 0);
        next_completion(sent, "answer");
        report(received, "receive");
        return;
    }
    completes(received, "the key");
    memcpy(&theirs.key, bytes + MEMORY, 4);
    transfer(IBV_WR_RDMA_WRITE, 0, 4096, MEMORY, theirs.key);
    report(sent, "WRITE to the window");
    receive(MEMORY, 64);
    struct ibv_sge piece = {(uintptr_t)bytes, 8, region->lkey};
    struct ibv_send_wr work = request(IBV_WR_SEND_WITH_INV, &piece, 0);
    work.invalidate_rkey = theirs.key;
    post(&work);
    report(sent, "SEND with invalidate"), completes(received, "answer");
    transfer(IBV_WR_RDMA_WRITE, 0, 4096, MEMORY, theirs.key);
    report(sent, "WRITE to what is gone");
}
