/* Scenes with ATOMIC WRITE and FLUSH, which only the extended interface has. */
#include "probe.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAS_FLUSH

#define WORDS 100
#define LENGTH 20000

void create_extended_queue_pair(const struct ibv_qp_cap *cap)
{
    uint64_t basic = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
    struct ibv_qp_init_attr_ex attributes = {
        .send_cq = sent, .recv_cq = received, .qp_type = IBV_QPT_RC, .cap = *cap, .pd = domain,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = basic | IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE};
    must(!rdma_create_qp_ex(id, &attributes), "rdma_create_qp_ex");
}

int access_to_flush(void)
{
    return is("flush") ? IBV_ACCESS_FLUSH_GLOBAL : 0;
}

static struct ibv_qp_ex *begin(void)
{
    struct ibv_qp_ex *queue_pair = ibv_qp_to_qp_ex(id->qp);
    ibv_wr_start(queue_pair);
    queue_pair->wr_id = 1;
    queue_pair->wr_flags = IBV_SEND_SIGNALED;
    return queue_pair;
}

static void write_word(uint64_t offset, uint64_t word)
{
    struct ibv_qp_ex *queue_pair = begin();
    ibv_wr_atomic_write(queue_pair, theirs.key, theirs.address + offset, &word);
    must(!ibv_wr_complete(queue_pair), "ibv_wr_complete");
}

static uint64_t word_number(unsigned number) { return 0x0123456789abcdefull * (number + 1); }

static int has_words(const uint8_t *at)
{
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t word = word_number(i);
        if (memcmp(at + i * sizeof word, &word, sizeof word))
            return 0;
    }
    return 1;
}

void atomic_writes(void)
{
    if (!is_client()) {
        report(received, "receive");
        say("%d words: %s", WORDS, has_words(bytes + MEMORY) ? "right" : "WRONG");
        return;
    }
    for (unsigned i = 0; i < WORDS; i++) {
        write_word(MEMORY + i * 8, word_number(i));
        struct ibv_wc done = next_completion(sent, "ATOMIC WRITE");
        if (i == 0 || done.status)
            say("ATOMIC WRITE: status %d, opcode %d", done.status, done.opcode);
    }
    transfer(IBV_WR_RDMA_READ, 0, WORDS * 8, MEMORY, theirs.key);
    completes(sent, "READ");
    say("%d words read back: %s", WORDS, has_words(bytes) ? "right" : "WRONG");
    transfer(IBV_WR_SEND, 0, 0, 0, 0);
    report(sent, "SEND");
}

/* The server looks when the client has gone, because nothing arrives behind a FLUSH that is not answered. */
void flush(void)
{
    if (!is_client()) {
        wait_until_gone();
        say("%d bytes: %s", LENGTH, has_pattern(bytes + MEMORY, LENGTH, 1) ? "right" : "WRONG");
        exit(0);
    }
    pattern(bytes, LENGTH, 1);
    transfer(IBV_WR_RDMA_WRITE, 0, LENGTH, MEMORY, theirs.key);
    report(sent, "WRITE");
    struct ibv_qp_ex *queue_pair = begin();
    ibv_wr_flush(queue_pair, theirs.key, theirs.address + MEMORY, LENGTH, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
    must(!ibv_wr_complete(queue_pair), "ibv_wr_complete");
    report(sent, "FLUSH");
}

#else /* The headers of Debian 12 have no FLUSH, and none of these scenes is played. */

static void lacking(void) { must(0, "FLUSH with these headers"); }

void create_extended_queue_pair(const struct ibv_qp_cap *cap) { (void)cap, lacking(); }
int access_to_flush(void) { return 0; }
void atomic_writes(void) { lacking(); }
void flush(void) { lacking(); }

#endif
