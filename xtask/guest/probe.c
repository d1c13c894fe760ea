/* One side of a short conversation over RDMA, through the ordinary C interface.
 *
 *   probe server ADDRESS SCENE        probe client ADDRESS SCENE
 *
 * The same program runs on the kernel's device and on ours. Each side prints what it was told by
 * its library, a fact per line, and nothing that differs from run to run; so the lines of two
 * libraries can be compared.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PORT "7471"
#define PORT_WITHOUT_LISTENER "7472"
#define MEMORY (8u << 20)
#define READS 16
#define PATIENCE_MS 20000

/* What a side tells the other about its memory, in the private data of the connection. */
struct memory {
    uint64_t address;
    uint32_t key, length;
} __attribute__((packed));

static const char *side, *scene;
static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;
static struct ibv_pd *domain;
/* Apart, because nothing says in which order a message and our own acknowledgement come. */
static struct ibv_cq *sent, *received;
static struct ibv_mr *region;
static uint8_t *bytes;
static struct memory theirs;
/* The client has left already. */
static int gone;

static int is(const char *name) { return !strcmp(scene, name); }
static int is_client(void) { return side[0] == 'c'; }

static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s: ", side);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    fflush(stdout);
}

static void must(int good, const char *what)
{
    if (good)
        return;
    say("%s failed: %s", what, strerror(errno));
    exit(1);
}

static int64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

static void pattern(uint8_t *at, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        at[i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

static int has_pattern(const uint8_t *at, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        if (at[i] != (uint8_t)(seed + i * 7 + (i >> 8)))
            return 0;
    return 1;
}

/* --- work and its completions --- */

static struct ibv_wc next_completion(struct ibv_cq *queue, const char *what)
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

static struct ibv_wc report(struct ibv_cq *queue, const char *what)
{
    struct ibv_wc completion = next_completion(queue, what);
    say("%s: status %d %s", what, completion.status, ibv_wc_status_str(completion.status));
    return completion;
}

static void receive(size_t offset, uint32_t length)
{
    struct ibv_sge piece = {(uintptr_t)bytes + offset, length, region->lkey};
    struct ibv_recv_wr work = {.sg_list = &piece, .num_sge = 1}, *bad;
    must(!ibv_post_recv(id->qp, &work, &bad), "ibv_post_recv");
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *piece, uint64_t offset)
{
    struct ibv_send_wr work = {
        .opcode = opcode, .sg_list = piece, .num_sge = piece->length ? 1 : 0, .send_flags = IBV_SEND_SIGNALED};
    work.wr.rdma.remote_addr = theirs.address + offset;
    work.wr.rdma.rkey = theirs.key;
    return work;
}

static void post(struct ibv_send_wr *work)
{
    struct ibv_send_wr *bad;
    must(!ibv_post_send(id->qp, work, &bad), "ibv_post_send");
}

static void transfer(enum ibv_wr_opcode opcode, size_t offset, uint32_t length, uint64_t remote, uint32_t key)
{
    struct ibv_sge piece = {(uintptr_t)bytes + offset, length, region->lkey};
    struct ibv_send_wr work = request(opcode, &piece, remote);
    work.wr.rdma.rkey = key;
    work.imm_data = htobe32(0x600dda7a);
    post(&work);
}

static void completes(struct ibv_cq *queue, const char *what)
{
    struct ibv_wc completion = next_completion(queue, what);
    if (completion.status == IBV_WC_SUCCESS)
        return;
    say("%s: status %d %s", what, completion.status, ibv_wc_status_str(completion.status));
    exit(1);
}

/* --- the conversation before the scene --- */

static enum rdma_cm_event_type next_event(void)
{
    struct pollfd waiting = {channel->fd, POLLIN, 0};
    struct rdma_cm_event *event;
    if (poll(&waiting, 1, PATIENCE_MS) <= 0) {
        say("no event");
        exit(1);
    }
    must(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    enum rdma_cm_event_type kind = event->event;
    if (event->param.conn.private_data_len >= sizeof theirs &&
        (kind == RDMA_CM_EVENT_CONNECT_REQUEST || kind == RDMA_CM_EVENT_ESTABLISHED) && event->param.conn.private_data)
        memcpy(&theirs, event->param.conn.private_data, sizeof theirs);
    if (kind == RDMA_CM_EVENT_CONNECT_REQUEST)
        id = event->id;
    if (kind == RDMA_CM_EVENT_REJECTED)
        say("rejected: reason %d, its words: %.6s", event->status,
            event->param.conn.private_data_len ? (const char *)event->param.conn.private_data : "");
    rdma_ack_cm_event(event);
    return kind;
}

static void expect(enum rdma_cm_event_type wanted)
{
    enum rdma_cm_event_type kind = next_event();
    if (kind == wanted)
        return;
    say("event %s instead of %s", rdma_event_str(kind), rdma_event_str(wanted));
    exit(1);
}

static int access_of_scene(void)
{
    if (is("no-permission") && !is_client())
        return IBV_ACCESS_LOCAL_WRITE;
    return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
           (is("invalidate") ? IBV_ACCESS_MW_BIND : 0);
}

static void prepare(void)
{
    must((domain = ibv_alloc_pd(id->verbs)) != NULL, "ibv_alloc_pd");
    must((sent = ibv_create_cq(id->verbs, 128, NULL, NULL, 0)) != NULL, "ibv_create_cq");
    must((received = ibv_create_cq(id->verbs, 128, NULL, NULL, 0)) != NULL, "ibv_create_cq");
    must((bytes = aligned_alloc(4096, 2 * MEMORY)) != NULL, "aligned_alloc");
    memset(bytes, 0, 2 * MEMORY);
    must((region = ibv_reg_mr(domain, bytes, 2 * MEMORY, access_of_scene())) != NULL, "ibv_reg_mr");
    struct ibv_qp_init_attr attributes = {
        .send_cq = sent, .recv_cq = received, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64}};
    must(!rdma_create_qp(id, domain, &attributes), "rdma_create_qp");
}

static struct memory ours(void)
{
    return (struct memory){(uintptr_t)bytes, region->rkey, 2 * MEMORY};
}

/* rxe counts what a NAK makes it repeat, too, and takes 7 for ever. */
static uint8_t retries(void) { return is("killed") ? 6 : 7; }

static struct rdma_conn_param parameters(const struct memory *memory)
{
    return (struct rdma_conn_param){
        .private_data = memory, .private_data_len = sizeof *memory, .responder_resources = READS,
        .initiator_depth = READS, .retry_count = retries(), .rnr_retry_count = is("rnr-exhausted") ? 1 : 7};
}

static struct rdma_addrinfo *place(const char *address, const char *port, int flags)
{
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = flags}, *found;
    must(!rdma_getaddrinfo(address, port, &hints, &found), "rdma_getaddrinfo");
    return found;
}

static void connect_to(const char *address)
{
    struct rdma_addrinfo *to = place(address, is("no-listener") ? PORT_WITHOUT_LISTENER : PORT, 0);
    must(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
    must(!rdma_resolve_addr(id, NULL, to->ai_dst_addr, 2000), "rdma_resolve_addr");
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    must(!rdma_resolve_route(id, 2000), "rdma_resolve_route");
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    /* 0.5 s before a request is repeated: a dead peer is known within seconds. */
    uint8_t timeout = 17;
    must(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout), "rdma_set_option");
    prepare();
    if (is("reads") || is("invalidate"))
        receive(MEMORY, 64);
    struct memory memory = ours();
    struct rdma_conn_param wish = parameters(&memory);
    must(!rdma_connect(id, &wish), "rdma_connect");
    if (is("no-listener") || is("reject")) {
        expect(RDMA_CM_EVENT_REJECTED);
        exit(0);
    }
    expect(RDMA_CM_EVENT_ESTABLISHED);
}

static void serve(const char *address)
{
    struct rdma_cm_id *listener;
    struct rdma_addrinfo *here = place(address, PORT, RAI_PASSIVE);
    must(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
    must(!rdma_bind_addr(listener, here->ai_src_addr), "rdma_bind_addr");
    must(!rdma_listen(listener, 4), "rdma_listen");
    if (is("no-listener")) {
        /* There is a listener, at another port. */
        poll(NULL, 0, 5000);
        exit(0);
    }
    expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    if (is("reject")) {
        must(!rdma_reject(id, "no, no", 6), "rdma_reject");
        exit(0);
    }
    prepare();
    if (is("too-long"))
        receive(0, 100);
    else if (strncmp(scene, "rnr", 3))
        receive(0, MEMORY);
    struct memory memory = ours();
    struct rdma_conn_param answer = parameters(&memory);
    must(!rdma_accept(id, &answer), "rdma_accept");
    /* If the last message of the handshake is lost, a quick client is gone before it comes again. */
    enum rdma_cm_event_type kind = next_event();
    gone = kind == RDMA_CM_EVENT_DISCONNECTED;
    if (!gone && kind != RDMA_CM_EVENT_ESTABLISHED) {
        say("event %s instead of a connection", rdma_event_str(kind));
        exit(1);
    }
}

static void wait_until_gone(void)
{
    if (!gone)
        expect(RDMA_CM_EVENT_DISCONNECTED);
}

/* --- the scenes --- */

static uint32_t path_mtu(void)
{
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr initial;
    must(!ibv_query_qp(id->qp, &attributes, IBV_QP_PATH_MTU, &initial), "ibv_query_qp");
    return 128u << attributes.path_mtu;
}

/* The server answers each message with an empty one, so that a receive is always there. */
static void answer(void)
{
    transfer(IBV_WR_SEND, 0, 0, 0, 0);
    completes(sent, "answer");
}

static void every_size(void)
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

static void immediate(void)
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

static void many_reads(void)
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

static void atomics(void)
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

static void inlined(void)
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
static void invalidate(void)
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
        say("invalidation %s, the key is %s", got.wc_flags & IBV_WC_WITH_INV ? "is told" : "is NOT told",
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

static void tell_async_event(void)
{
    struct pollfd waiting = {id->verbs->async_fd, POLLIN, 0};
    struct ibv_async_event event;
    if (poll(&waiting, 1, 0) <= 0 || ibv_get_async_event(id->verbs, &event)) {
        say("asynchronous event: none");
        return;
    }
    say("asynchronous event: %s", ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
}

/* A request that is refused, and one behind it that is flushed. */
static void refused(enum ibv_wr_opcode opcode, uint32_t length, uint64_t remote, uint32_t key)
{
    if (!is_client()) {
        struct ibv_wc completion;
        wait_until_gone();
        tell_async_event();
        if (ibv_poll_cq(received, 1, &completion) == 1)
            say("receive: status %d %s", completion.status, ibv_wc_status_str(completion.status));
        else
            say("receive: untouched");
        exit(0);
    }
    transfer(opcode, 0, length, remote, key);
    transfer(IBV_WR_RDMA_WRITE, 0, 8, 0, theirs.key);
    report(sent, "request");
    report(sent, "request behind it");
}

static void late_receive(void)
{
    if (is_client()) {
        pattern(bytes, 300, 1);
        transfer(IBV_WR_SEND, 0, 300, 0, 0);
        report(sent, "SEND");
        return;
    }
    poll(NULL, 0, 300);
    receive(0, MEMORY);
    report(received, "receive");
    say("300 bytes: %s", has_pattern(bytes, 300, 1) ? "right" : "WRONG");
}

static void no_receive(void)
{
    if (is_client()) {
        transfer(IBV_WR_SEND, 0, 300, 0, 0);
        report(sent, "SEND");
    } else {
        say("event %s", rdma_event_str(next_event()));
    }
}

/* The server is gone without a word while the client writes. */
static void killed(void)
{
    if (!is_client()) {
        completes(received, "receive");
        say("is killed");
        raise(SIGKILL);
    }
    transfer(IBV_WR_SEND, 0, 8, 0, 0);
    struct ibv_wc completion = {0};
    completes(sent, "SEND");
    for (int64_t end = milliseconds() + PATIENCE_MS; !completion.status && milliseconds() < end;) {
        transfer(IBV_WR_RDMA_WRITE, 0, 65536, 0, theirs.key);
        completion = next_completion(sent, "WRITE");
    }
    say("WRITE: %s", completion.status ? "ends with an error" : "never fails");
}

static void play(void)
{
    if (is("sizes") || is("smaller-sizes")) every_size();
    else if (is("immediate")) immediate();
    else if (is("reads")) many_reads();
    else if (is("atomics")) atomics();
    else if (is("inline")) inlined();
    else if (is("invalidate")) invalidate();
    else if (is("wrong-key")) refused(IBV_WR_RDMA_WRITE, 64, 0, theirs.key ^ 0x5a5a00);
    else if (is("wrong-key-read")) refused(IBV_WR_RDMA_READ, 64, 0, theirs.key ^ 0x5a5a00);
    else if (is("out-of-bounds")) refused(IBV_WR_RDMA_WRITE, 64, 2 * MEMORY - 63, theirs.key);
    else if (is("no-permission")) refused(IBV_WR_RDMA_WRITE, 64, 0, theirs.key);
    else if (is("too-long")) refused(IBV_WR_SEND, 200, 0, 0);
    else if (is("rnr-recovered")) late_receive();
    else if (is("rnr-exhausted")) no_receive();
    else if (is("killed")) killed();
    else must(0, "finding the scene");
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    side = words[1], scene = words[3];
    must((channel = rdma_create_event_channel()) != NULL, "rdma_create_event_channel");
    if (is_client()) {
        connect_to(words[2]);
        play();
        rdma_disconnect(id);
        return 0;
    }
    serve(words[2]);
    play();
    /* Until the client has gone, so that it hears all of our answers. */
    if (!is("rnr-exhausted"))
        wait_until_gone();
    rdma_disconnect(id);
    return 0;
}
