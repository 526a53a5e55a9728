/* collective_shm.c - tests of shm alone: which processes may take part, and what becomes
 * of the descriptors that they send
 *
 * Rank 0 is real; the test speaks for ranks 1 and 2 (fuzz_collective.h). */
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz_collective.h"
#include "strategies/collectives/shm.h"
#include "tap.h"

static peers_t peers;

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

/* The descriptor of memory that a rank shares. */
static int memory_make(size_t bytes)
{
    int fd = -1;
    pl_object_unref(pl_reg_buffer_new(bytes, 0, &fd, NULL));
    return fd;
}

static void ranks_open(void)
{
    ok(peers_open(&peers, "{\"name\": \"shm\", \"spin_us\": 0}"), "a rank opens");
    for (int rank = 1; rank < RANKS; rank++)
        peers_listen(&peers, rank);
    peers_join(&peers);
}

static void greet(int rank)
{
    int fd = memory_make(sizeof(shm_control_t));
    peers_greet(&peers, rank, fd);
    close(fd);
    peers_help(&peers);
}

static void ranks_join(void)
{
    ranks_open();
    for (int rank = 1; rank < RANKS; rank++)
        greet(rank);
    ok(peers.own.done && !peers.own.err.code, "it meets the others %s",
       peers.own.err.text);
}

static const char *alive(void)
{
    static pl_error_t err;
    err = (pl_error_t){0};
    peers.own.ops->alive(peers.own.component.self, &err);
    return err.text;
}

/* ---- descriptors ---- */

static void a_frame_in_pieces_keeps_its_descriptor(void)
{
    enum { BYTES = 4096 };
    ranks_join();
    pl_coll_request_t req = {.desc = {.op = PL_COLL_OP_alloc_buffer, .count = BYTES}};
    member_begin(&peers.own, &req);
    const mesh_frame_t frame = {.kind = SHM_MEMORY, .at = BYTES};
    const int fd = memory_make(BYTES), before = descriptors();
    for (size_t at = 0; at < sizeof frame; at++) {
        peers_say(&peers, 1, (const char *)&frame + at, 1, &fd, at == 7);
        peers_help(&peers);
        const shm_t *own = peers.own.component.self;
        is_int(own->peer[1].block_count, at == sizeof frame - 1, "after byte %zu", at);
    }
    is_int(descriptors(), before, "then it is closed");
    is_text(alive(), "", "the rank is there");
    close(fd);
    peers_close(&peers);
    pl_object_unref(req.memory);
}

static void a_descriptor_of_a_ring_is_closed(void)
{
    ranks_join();
    const int before = descriptors();
    const mesh_frame_t ring = {.kind = SHM_RING};
    for (int k = 0; k < 20; k++) {
        peers_frame(&peers, 1, &ring, 0);
        peers_help(&peers);
    }
    is_int(descriptors(), before, "of rings");
    is_text(alive(), "", "which are rings nevertheless");
    peers_say(&peers, 1, &ring, 5, (const int[]){0}, 1);
    peers_help(&peers);
    peers_close(&peers);
    ranks_join();
    is_int(descriptors(), before, "also of a frame that never ends");
    peers_close(&peers);
}

static void a_frame_has_one_descriptor_at_most(void)
{
    static const int out[3] = {0, 0, 0};
    const mesh_frame_t ring = {.kind = SHM_RING};
    for (size_t count = 2; count <= 3; count++) {
        ranks_join();
        const int before = descriptors();
        peers_say(&peers, 1, &ring, sizeof ring, out, count);
        peers_help(&peers);
        like(alive(), "rank 1 is gone", "not %zu", count);
        is_int(descriptors(), before - 1, "its connection and all are closed");
        peers_close(&peers);
    }
    ranks_join();
    const int before = descriptors();
    peers_say(&peers, 2, &ring, 4, out, 1);
    peers_help(&peers);
    peers_say(&peers, 2, (const char *)&ring + 4, sizeof ring - 4, out, 1);
    peers_help(&peers);
    like(alive(), "rank 2 is gone", "nor one in each of two pieces");
    is_int(descriptors(), before - 1, "its connection and both are closed");
    peers_close(&peers);
}

static void a_greeting_needs_its_memory(void)
{
    int small = memory_make(1), file = fileno(tmpfile());
    const int wrong[] = {-1, small, file};
    ranks_open();
    peers_help(&peers);
    const int before = descriptors();
    for (int k = 0; k < 3; k++) {
        peers_greet(&peers, 1, wrong[k]);
        peers_help(&peers);
        is_int(peers.own.arrived[1], 0, "%s",
               (const char *[]){"none", "small", "file"}[k]);
        peers_disconnect(&peers, 1);
        peers_help(&peers);
        is_int(descriptors(), before, "nothing is kept");
    }
    greet(1);
    is_int(peers.own.arrived[1], 1, "a later one with memory is a rank's");
    peers_close(&peers);
    close(small);
    close(file);
}

/* ---- processes ---- */

static void a_process_of_another_user_is_no_rank(void)
{
    if (geteuid() != 0) {
        tap_skip("only root has other users");
        return;
    }
    ranks_open();
    fflush(stdout);
    const pid_t other = fork();
    if (other == 0) {
        char none;
        if (setuid(65534) != 0)
            _exit(2);
        int fd = memory_make(sizeof(shm_control_t));
        peers_greet(&peers, 1, fd);
        _exit(recv(peers.connection[1], &none, 1, 0) > 0);
    }
    int status = -1;
    for (int k = 0; k < 20000 && waitpid(other, &status, WNOHANG) == 0; k++) {
        poll(&(struct pollfd){peers.own.descriptor, POLLIN, 0}, 1, 1);
        member_help(&peers.own);
    }
    is_int(status, 0, "it receives nothing");
    is_int(peers.own.arrived[1], 0, "it is not met");
    greet(1);
    is_int(peers.own.arrived[1], 1, "this user's is");
    peers_close(&peers);
}

int main(void)
{
    pl_init(NULL, NULL, NULL, NULL);
    run(a_frame_in_pieces_keeps_its_descriptor);
    run(a_descriptor_of_a_ring_is_closed);
    run(a_frame_has_one_descriptor_at_most);
    run(a_greeting_needs_its_memory);
    run(a_process_of_another_user_is_no_rank);
    return tap_done();
}
