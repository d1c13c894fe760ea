/* Scenes in which something is rejected, late or gone. */
#include "probe.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>

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

/* A request that is rejected, and one behind it that is flushed. */
void rejected(enum ibv_wr_opcode opcode, uint32_t length, uint64_t remote, uint32_t key)
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

void late_receive(void)
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

void no_receive(void)
{
    if (is_client()) {
        transfer(IBV_WR_SEND, 0, 300, 0, 0);
        report(sent, "SEND");
    } else {
        say("event %s", rdma_event_str(next_event()));
    }
}

/* The server is gone without a word while the client writes. It answers first: a program that is killed
 * the moment it has a message may take the acknowledgement with it. */
void killed(void)
{
    if (!is_client()) {
        completes(received, "receive");
        answer();
        say("is killed");
        raise(SIGKILL);
    }
    transfer(IBV_WR_SEND, 0, 8, 0, 0);
    struct ibv_wc completion = {0};
    completes(sent, "SEND");
    completes(received, "answer");
    for (int64_t end = milliseconds() + PATIENCE_MS; !completion.status && milliseconds() < end;) {
        transfer(IBV_WR_RDMA_WRITE, 0, 65536, 0, theirs.key);
        completion = next_completion(sent, "WRITE");
    }
    say("WRITE: %s", completion.status ? "ends with an error" : "never fails");
}

/* The client is gone without a word, and has nothing under way that could fail: only its system, or what
 * stands in for it, can tell the server. */
void killed_client(void)
{
    if (is_client()) {
        transfer(IBV_WR_SEND, 0, 8, 0, 0);
        completes(sent, "SEND");
        completes(received, "answer");
        say("is killed");
        raise(SIGKILL);
    }
    completes(received, "receive");
    /* Not waiting until it is acknowledged: as in `killed`, a program of ours may take that with it, and rxe
     * repeats for ever. */
    transfer(IBV_WR_SEND, 0, 0, 0, 0);
    int64_t begin = milliseconds();
    wait_until_gone();
    say("is told %s", milliseconds() - begin < 2000 ? "soon" : "late");
}
