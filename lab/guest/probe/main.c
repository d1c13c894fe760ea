/* One side of a short conversation over RDMA, through the ordinary C interface.
 *
 *   probe server ADDRESS SCENE        probe client ADDRESS SCENE
 *
 * The same program runs on the kernel's device and on ours. Each side prints what it was told by
 * its library, a fact per line, and nothing that differs from run to run; so the lines of two
 * libraries can be compared.
 */
#include <sys/wait.h>
#include <unistd.h>
#include "probe.h"

const char *side, *scene;
struct rdma_event_channel *channel;
struct rdma_cm_id *id;
struct ibv_pd *domain;
struct ibv_cq *sent, *received;
struct ibv_mr *region;
uint8_t *bytes;
struct memory theirs;

static void play(void)
{
    if (is("sizes") || is("smaller-sizes")) every_size();
    else if (is("immediate")) immediate();
    else if (is("reads")) many_reads();
    else if (is("atomics")) atomics();
    else if (is("inline")) inlined();
    else if (is("invalidate")) invalidate();
    else if (is("atomic-write")) atomic_writes();
    else if (is("flush")) flush();
    else if (is("wrong-key")) rejected(IBV_WR_RDMA_WRITE, 64, 0, theirs.key ^ 0x5a5a00);
    else if (is("wrong-key-read")) rejected(IBV_WR_RDMA_READ, 64, 0, theirs.key ^ 0x5a5a00);
    else if (is("out-of-bounds")) rejected(IBV_WR_RDMA_WRITE, 64, 2 * MEMORY - 63, theirs.key);
    else if (is("no-permission")) rejected(IBV_WR_RDMA_WRITE, 64, 0, theirs.key);
    else if (is("too-long")) rejected(IBV_WR_SEND, 200, 0, 0);
    else if (is("rnr-recovered")) late_receive();
    else if (is("rnr-exhausted")) no_receive();
    else if (is("killed")) killed();
    else if (is("killed-client")) killed_client();
    else must(0, "finding the scene");
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    side = words[1], scene = words[3];
    if (is_client() && is("killed-client") && fork()) {
        /* The child is killed. That is no failure of ours. */
        wait(NULL);
        return 0;
    }
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
    if (!is("rnr-exhausted") && !is("killed-client"))
        wait_until_gone();
    rdma_disconnect(id);
    return 0;
}
