/* What the parts of the probe share. */
#ifndef PROBE_H
#define PROBE_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stddef.h>
#include <stdint.h>

#define MEMORY (8u << 20)
#define READS 16
#define PATIENCE_MS 60000

/* What a side tells the other about its memory, in the private data of the connection. */
struct memory {
    uint64_t address;
    uint32_t key, length;
} __attribute__((packed));

extern const char *side, *scene;
extern struct rdma_event_channel *channel;
extern struct rdma_cm_id *id;
extern struct ibv_pd *domain;
/* Apart, because nothing says in which order a message and our own acknowledgement come. */
extern struct ibv_cq *sent, *received;
extern struct ibv_mr *region;
extern uint8_t *bytes;
extern struct memory theirs;

/* words.c: what is said, and data that can be recognised */
int is(const char *name);
int is_client(void);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void must(int good, const char *what);
int64_t milliseconds(void);
void pattern(uint8_t *at, size_t length, unsigned seed);
int has_pattern(const uint8_t *at, size_t length, unsigned seed);

/* work.c: work requests and their completions */
struct ibv_wc next_completion(struct ibv_cq *queue, const char *what);
struct ibv_wc report(struct ibv_cq *queue, const char *what);
void completes(struct ibv_cq *queue, const char *what);
void receive(size_t offset, uint32_t length);
struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *piece, uint64_t offset);
void post(struct ibv_send_wr *work);
void transfer(enum ibv_wr_opcode opcode, size_t offset, uint32_t length, uint64_t remote, uint32_t key);
/* The server answers a message with an empty one: then its own is there, and a receive may follow. */
void answer(void);

/* connection.c: how the two sides meet and part */
enum rdma_cm_event_type next_event(void);
void expect(enum rdma_cm_event_type wanted);
void connect_to(const char *address);
void serve(const char *address);
void wait_until_gone(void);

/* transfers.c: scenes in which everything arrives */
void every_size(void);
void immediate(void);
void many_reads(void);
void atomics(void);
void inlined(void);
void invalidate(void);

/* extended.c: scenes with ATOMIC WRITE and FLUSH, which only the extended interface has */
void create_extended_queue_pair(const struct ibv_qp_cap *cap);
int access_to_flush(void);
void atomic_writes(void);
void flush(void);

/* rejections.c: scenes in which something is rejected, late or gone */
void rejected(enum ibv_wr_opcode opcode, uint32_t length, uint64_t remote, uint32_t key);
void late_receive(void);
void no_receive(void);
void killed(void);
void killed_client(void);

#endif
