/* Work requests and their completions. */
#include "probe.h"

#include <endian.h>
#include <stdlib.h>

struct ibv_wc next_completion(struct ibv_cq *queue, const char *what)
{
    struct ibv_wc completion;
    int64_t end = milliseconds() + PATIENCE_MS;
    while (milliseconds() < end) {
        int found = ibv_poll_cq(queue, 1, &completion);
        must(found >= 0, "ibv_poll_cq");
        if (found)
            return completion;
    }
    say("%s: no completion", what);
    exit(1);
}

struct ibv_wc report(struct ibv_cq *queue, const char *what)
{
    struct ibv_wc completion = next_completion(queue, what);
    say("%s: status %d %s", what, completion.status, ibv_wc_status_str(completion.status));
    return completion;
}

void receive(size_t offset, uint32_t length)
{
    struct ibv_sge piece = {(uintptr_t)bytes + offset, length, region->lkey};
    struct ibv_recv_wr work = {.sg_list = &piece, .num_sge = 1}, *bad;
    must(!ibv_post_recv(id->qp, &work, &bad), "ibv_post_recv");
}

struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *piece, uint64_t offset)
{
    struct ibv_send_wr work = {
        .opcode = opcode, .sg_list = piece, .num_sge = piece->length ? 1 : 0, .send_flags = IBV_SEND_SIGNALED};
    work.wr.rdma.remote_addr = theirs.address + offset;
    work.wr.rdma.rkey = theirs.key;
    return work;
}

void post(struct ibv_send_wr *work)
{
    struct ibv_send_wr *bad;
    must(!ibv_post_send(id->qp, work, &bad), "ibv_post_send");
}

void transfer(enum ibv_wr_opcode opcode, size_t offset, uint32_t length, uint64_t remote, uint32_t key)
{
    struct ibv_sge piece = {(uintptr_t)bytes + offset, length, region->lkey};
    struct ibv_send_wr work = request(opcode, &piece, remote);
    work.wr.rdma.rkey = key;
    work.imm_data = htobe32(0x600dda7a);
    post(&work);
}

void completes(struct ibv_cq *queue, const char *what)
{
    struct ibv_wc completion = next_completion(queue, what);
    if (completion.status == IBV_WC_SUCCESS)
        return;
    say("%s: status %d %s", what, completion.status, ibv_wc_status_str(completion.status));
    exit(1);
}

void answer(void)
{
    transfer(IBV_WR_SEND, 0, 0, 0, 0);
    completes(sent, "answer");
}
