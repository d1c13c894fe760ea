/* How fast a library and its device are when both ends are in one machine.
 *
 *   loopback-bench rdma ADDRESS        loopback-bench tcp ADDRESS
 *
 * One thread plays both ends, so that on a single processor nothing is measured but the work itself.
 * Each line is a measurement: its name and a number, in MB/s, microseconds or connections a second.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT 7471
#define MAX_LENGTH (1u << 20)
/* How many messages are outstanding at once: 16 of up to 64 KiB, otherwise 4. */
#define OUTSTANDING(size) ((size) > 65536 ? 4 : 16)
#define SECONDS 0.4
/* Where the clock is read by a system call, that may take longer than a ping. */
#define PINGS_PER_CLOCK_READ 16
#define CONNECTIONS 100
#define EVENT_TIMEOUT_MS 20000

struct end {
    struct rdma_cm_id *id;
    struct ibv_cq *queue;
};

static struct sockaddr_in address;
static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener;
static struct ibv_pd *domain;
static struct ibv_mr *region;
static uint8_t *bytes;

static void must(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s failed: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void tell(const char *name, uint32_t size, double number) { printf("%s %u %.3f\n", name, size, number); }

/* --- RDMA: connections --- */

static struct rdma_cm_id *expect(enum rdma_cm_event_type wanted)
{
    struct pollfd waiting = {channel->fd, POLLIN, 0};
    struct rdma_cm_event *event;
    must(poll(&waiting, 1, EVENT_TIMEOUT_MS) > 0, "waiting for an event");
    must(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    if (event->event != wanted)
        fprintf(stderr, "event %s instead of %s\n", rdma_event_str(event->event), rdma_event_str(wanted));
    must(event->event == wanted, "the connection");
    struct rdma_cm_id *id = event->id;
    rdma_ack_cm_event(event);
    return id;
}

static void equip(struct end *end)
{
    if (!domain) {
        must((domain = ibv_alloc_pd(end->id->verbs)) != NULL, "ibv_alloc_pd");
        int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        must((region = ibv_reg_mr(domain, bytes, 2 * MAX_LENGTH, rights)) != NULL, "ibv_reg_mr");
    }
    must((end->queue = ibv_create_cq(end->id->verbs, 128, NULL, NULL, 0)) != NULL, "ibv_create_cq");
    struct ibv_qp_init_attr attributes = {
        .send_cq = end->queue, .recv_cq = end->queue, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1}};
    must(!rdma_create_qp(end->id, domain, &attributes), "rdma_create_qp");
}

static void join(struct end *client, struct end *server)
{
    struct rdma_conn_param conn_param = {
        .responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7};
    must(!rdma_create_id(channel, &client->id, NULL, RDMA_PS_TCP), "rdma_create_id");
    must(!rdma_resolve_addr(client->id, NULL, (struct sockaddr *)&address, 2000), "rdma_resolve_addr");
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    must(!rdma_resolve_route(client->id, 2000), "rdma_resolve_route");
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    equip(client);
    must(!rdma_connect(client->id, &conn_param), "rdma_connect");
    server->id = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    equip(server);
    must(!rdma_accept(server->id, &conn_param), "rdma_accept");
    /* Both sides get an event, the client first. */
    expect(RDMA_CM_EVENT_ESTABLISHED);
    expect(RDMA_CM_EVENT_ESTABLISHED);
}

static void leave(struct end *end)
{
    rdma_destroy_qp(end->id);
    must(!ibv_destroy_cq(end->queue), "ibv_destroy_cq");
    must(!rdma_destroy_id(end->id), "rdma_destroy_id");
}

static void part(struct end *client, struct end *server)
{
    must(!rdma_disconnect(client->id), "rdma_disconnect");
    expect(RDMA_CM_EVENT_DISCONNECTED);
    rdma_disconnect(server->id);
    expect(RDMA_CM_EVENT_DISCONNECTED);
    leave(client);
    leave(server);
}

/* --- RDMA: messages --- */

static void receive(struct end *end, uint32_t length)
{
    struct ibv_sge piece = {(uintptr_t)bytes + MAX_LENGTH, length, region->lkey};
    struct ibv_recv_wr work = {.sg_list = &piece, .num_sge = 1}, *bad;
    must(!ibv_post_recv(end->id->qp, &work, &bad), "ibv_post_recv");
}

static void post(struct end *end, enum ibv_wr_opcode opcode, uint32_t length)
{
    struct ibv_sge piece = {(uintptr_t)bytes, length, region->lkey};
    struct ibv_send_wr work = {
        .opcode = opcode, .sg_list = &piece, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;
    work.wr.rdma.remote_addr = (uintptr_t)bytes + MAX_LENGTH;
    work.wr.rdma.rkey = region->rkey;
    must(!ibv_post_send(end->id->qp, &work, &bad), "ibv_post_send");
}

/* How many messages have arrived, and how many were sent. */
struct count {
    unsigned sent, received;
};

static void look(struct end *end, struct count *count)
{
    struct ibv_wc done[16];
    int found = ibv_poll_cq(end->queue, 16, done);
    must(found >= 0, "ibv_poll_cq");
    for (int i = 0; i < found; i++) {
        must(done[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(done[i].status));
        if (done[i].opcode & IBV_WC_RECV)
            count->received++;
        else
            count->sent++;
    }
}

static void bandwidth(struct end *client, struct end *server, const char *name, enum ibv_wr_opcode opcode, uint32_t size)
{
    struct count here = {0}, there = {0};
    unsigned posted = 0, offered = 0, many = OUTSTANDING(size);
    int is_send = opcode == IBV_WR_SEND, over = 0;
    double start = now(), took = 0;
    while (!over || here.sent < posted || (is_send && there.received < posted)) {
        for (; is_send && !over && offered < there.received + 2 * many; offered++)
            receive(server, size);
        for (; !over && posted < here.sent + many && (!is_send || posted < offered); posted++)
            post(client, opcode, size);
        look(client, &here);
        look(server, &there);
        took = now() - start;
        over = over || took > SECONDS;
    }
    tell(name, size, (double)posted * size / took / 1e6);
    /* Receives that are left stay unused: the connection ends here. */
}

static void latency(struct end *client, struct end *server)
{
    struct count here = {0}, there = {0};
    unsigned rounds = 0;
    double start = now(), took = 0;
    for (; took < SECONDS; took = now() - start)
        for (int i = 0; i < PINGS_PER_CLOCK_READ; i++, rounds++) {
            receive(server, 8), receive(client, 8);
            post(client, IBV_WR_SEND, 8);
            while (there.received <= rounds)
                look(client, &here), look(server, &there);
            post(server, IBV_WR_SEND, 8);
            while (here.received <= rounds || here.sent <= rounds || there.sent <= rounds)
                look(server, &there), look(client, &here);
        }
    tell("latency", 8, took / rounds / 2 * 1e6);
}

static void rdma(void)
{
    static const struct { const char *name; enum ibv_wr_opcode opcode; } kinds[] = {
        {"write", IBV_WR_RDMA_WRITE}, {"read", IBV_WR_RDMA_READ}, {"send", IBV_WR_SEND}};
    struct end client, server;
    must((channel = rdma_create_event_channel()) != NULL, "rdma_create_event_channel");
    must(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
    must(!rdma_bind_addr(listener, (struct sockaddr *)&address), "rdma_bind_addr");
    must(!rdma_listen(listener, 8), "rdma_listen");
    for (uint32_t size = 65536; size <= MAX_LENGTH; size *= 16)
        for (int i = 0; i < 3; i++) {
            join(&client, &server);
            bandwidth(&client, &server, kinds[i].name, kinds[i].opcode, size);
            part(&client, &server);
        }
    join(&client, &server);
    latency(&client, &server);
    part(&client, &server);
    double start = now();
    for (int i = 0; i < CONNECTIONS; i++)
        join(&client, &server), part(&client, &server);
    tell("connections", 0, CONNECTIONS / (now() - start));
}

/* --- TCP --- */

static void tcp_join(int listening, int *client, int *server)
{
    int one = 1;
    must((*client = socket(AF_INET, SOCK_STREAM, 0)) >= 0, "socket");
    must(!connect(*client, (struct sockaddr *)&address, sizeof address), "connect");
    must((*server = accept(listening, NULL, NULL)) >= 0, "accept");
    must(!setsockopt(*client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), "setsockopt");
    must(!setsockopt(*server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), "setsockopt");
}

static void tcp_bandwidth(int client, int server, uint32_t size)
{
    uint64_t received = 0;
    double start = now(), took = 0;
    while (took < SECONDS) {
        send(client, bytes, size, MSG_DONTWAIT);
        ssize_t got;
        while ((got = recv(server, bytes + MAX_LENGTH, size, MSG_DONTWAIT)) > 0)
            received += got;
        took = now() - start;
    }
    tell("stream", size, received / took / 1e6);
}

static void tcp_latency(int client, int server)
{
    unsigned rounds = 0;
    double start = now(), took = 0;
    char byte[8] = {0};
    for (; took < SECONDS; took = now() - start)
        for (int i = 0; i < PINGS_PER_CLOCK_READ; i++, rounds++) {
            must(send(client, byte, 8, 0) == 8 && recv(server, byte, 8, MSG_WAITALL) == 8, "a ping");
            must(send(server, byte, 8, 0) == 8 && recv(client, byte, 8, MSG_WAITALL) == 8, "a pong");
        }
    tell("latency", 8, took / rounds / 2 * 1e6);
}

static void tcp(void)
{
    int one = 1, client, server, listening = socket(AF_INET, SOCK_STREAM, 0);
    must(!setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), "setsockopt");
    must(!bind(listening, (struct sockaddr *)&address, sizeof address), "bind");
    must(!listen(listening, 8), "listen");
    for (uint32_t size = 65536; size <= MAX_LENGTH; size *= 16) {
        tcp_join(listening, &client, &server);
        tcp_bandwidth(client, server, size);
        close(client), close(server);
    }
    tcp_join(listening, &client, &server);
    tcp_latency(client, server);
    close(client), close(server);
    double start = now();
    for (int i = 0; i < CONNECTIONS; i++)
        tcp_join(listening, &client, &server), close(client), close(server);
    tell("connections", 0, CONNECTIONS / (now() - start));
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PORT)};
    must(inet_pton(AF_INET, words[2], &address.sin_addr) == 1, "reading the address");
    must((bytes = aligned_alloc(4096, 2 * MAX_LENGTH)) != NULL, "aligned_alloc");
    memset(bytes, 1, 2 * MAX_LENGTH);
    if (!strcmp(words[1], "tcp"))
        tcp();
    else
        rdma();
    return 0;
}
