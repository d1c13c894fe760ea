/* How the two sides meet and part. */
#include "probe.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define PORT "7471"
#define PORT_WITHOUT_LISTENER "7472"

/* The client has left already. */
static int gone;

enum rdma_cm_event_type next_event(void)
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

void expect(enum rdma_cm_event_type wanted)
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
           (is("invalidate") ? IBV_ACCESS_MW_BIND : 0) | access_to_flush();
}

static void prepare(void)
{
    must((domain = ibv_alloc_pd(id->verbs)) != NULL, "ibv_alloc_pd");
    must((sent = ibv_create_cq(id->verbs, 128, NULL, NULL, 0)) != NULL, "ibv_create_cq");
    must((received = ibv_create_cq(id->verbs, 128, NULL, NULL, 0)) != NULL, "ibv_create_cq");
    must((bytes = aligned_alloc(4096, 2 * MEMORY)) != NULL, "aligned_alloc");
    memset(bytes, 0, 2 * MEMORY);
    must((region = ibv_reg_mr(domain, bytes, 2 * MEMORY, access_of_scene())) != NULL, "ibv_reg_mr");
    struct ibv_qp_cap cap = {
        .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64};
    if (is("flush") || is("atomic-write")) {
        create_extended_queue_pair(&cap);
        return;
    }
    struct ibv_qp_init_attr attributes = {.send_cq = sent, .recv_cq = received, .qp_type = IBV_QPT_RC, .cap = cap};
    must(!rdma_create_qp(id, domain, &attributes), "rdma_create_qp");
}

static struct memory ours(void)
{
    return (struct memory){(uintptr_t)bytes, region->rkey, 2 * MEMORY};
}

/* rxe counts what a NAK makes it repeat, too, and takes 7 for ever. */
static uint8_t retries(void) { return is("killed") || is("flush") ? 6 : 7; }

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

void connect_to(const char *address)
{
    struct rdma_addrinfo *to = place(address, is("no-listener") ? PORT_WITHOUT_LISTENER : PORT, 0);
    must(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
    must(!rdma_resolve_addr(id, NULL, to->ai_dst_addr, 2000), "rdma_resolve_addr");
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    must(!rdma_resolve_route(id, 2000), "rdma_resolve_route");
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    /* 0.5 s before a request is repeated: a dead peer is known within seconds. Where packets are lost,
     * half of it: rxe waits that long for each part of a READ that is missing. */
    uint8_t timeout = is("smaller-sizes") ? 16 : 17;
    must(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout), "rdma_set_option");
    prepare();
    if (is("reads") || is("invalidate") || is("killed") || is("killed-client"))
        receive(MEMORY, 64);
    struct memory memory = ours();
    struct rdma_conn_param conn_param = parameters(&memory);
    must(!rdma_connect(id, &conn_param), "rdma_connect");
    if (is("no-listener") || is("reject")) {
        expect(RDMA_CM_EVENT_REJECTED);
        exit(0);
    }
    expect(RDMA_CM_EVENT_ESTABLISHED);
}

void serve(const char *address)
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

void wait_until_gone(void)
{
    if (!gone)
        expect(RDMA_CM_EVENT_DISCONNECTED);
}
