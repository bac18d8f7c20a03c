/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More memory than the machine has: all of it is in messages that are under way at the same time.
 *
 *     working_set COUNT SIZE PASSES PINNED
 *
 * Each of two ranks sends COUNT buffers of SIZE bytes to the other and receives as many, all at
 * once, in each pass. Every buffer is written before it is sent, and read after it has come. No
 * more than PINNED bytes of a process may be pinned at any time: the kernel is asked after each
 * message.
 */
#include "mapping.h"

enum { TAG = 5, SEED = 47 };

/* What devices have pinned of this process, in bytes. */
static size_t pinned_now(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    size_t kib = 0;
    char line[256];
    int found = 0;
    check_that(status != NULL, "/proc/self/status: %s", strerror(errno));
    while (found != 1 && fgets(line, sizeof line, status) != NULL) {
        found = sscanf(line, "VmPin: %zu kB", &kib);
    }
    fclose(status);
    check_that(found == 1, "/proc/self/status has no line VmPin");
    return kib << 10;
}

/* Until all are over. */
static void wait_for(MPI_Request *requests, size_t count, size_t pinned_max)
{
    int index = 0;
    while (index != MPI_UNDEFINED) {
        const size_t pinned = pinned_now();
        check_that(pinned <= pinned_max, "%zu bytes are pinned, and %zu may be", pinned,
                   pinned_max);
        MPI_Waitany((int)count, requests, &index, MPI_STATUS_IGNORE);
    }
}

static void exchange(int rank, size_t count, size_t size, unsigned char *send,
                     unsigned char *receive, MPI_Request *requests, uint64_t pass,
                     size_t pinned_max)
{
    const int peer = 1 - rank;

    for (size_t n = 0; n < count; n++) {
        stamp_fill(send + n * size, size, stamp_key(SEED, pass, rank, (int)n), 0);
    }
    for (size_t n = 0; n < count; n++) {
        MPI_Irecv(receive + n * size, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[n]);
    }
    for (size_t n = 0; n < count; n++) {
        MPI_Isend(send + n * size, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                  &requests[count + n]);
    }
    wait_for(requests, 2 * count, pinned_max);
    for (size_t n = 0; n < count; n++) {
        check_stamp(receive + n * size, size, stamp_key(SEED, pass, peer, (int)n), 0,
                    "one of more than there is memory for");
    }
}

int main(int argc, char **argv)
{

    const int rank = check_begin(&argc, &argv, 5);
    const size_t count = strtoul(argv[1], NULL, 0), size = strtoul(argv[2], NULL, 0);
    const size_t passes = strtoul(argv[3], NULL, 0), pinned_max = strtoul(argv[4], NULL, 0);
    unsigned char *send = mapping_make(NULL, count * size, false);
    unsigned char *receive = mapping_make(NULL, count * size, false);
    MPI_Request *requests = calloc(2 * count, sizeof(*requests));

    check_that(requests != NULL, "no memory for %zu requests", 2 * count);
    for (uint64_t pass = 0; pass < passes; pass++) {
        exchange(rank, count, size, send, receive, requests, pass, pinned_max);
    }
    free(requests);
    return check_end();
}
