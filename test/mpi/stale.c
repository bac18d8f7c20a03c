/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazards 1 and 3: the same address, new pages.
 *
 *     stale HOW SIDE ROUNDS SIZE
 *
 * HOW: libc, raw (bare system calls), keep, which changes nothing, or back: the same, and rank 1 sends
 * back what it has received, from the same buffer. SIDE: send or receive.
 * Rank 0 sends, rank 1 receives. In each round the changing side uses a buffer three times and a
 * control buffer as often; between two rounds it unmaps the first and maps new memory at its
 * address. So a cache misses once in a round and hits five times, and with keep it always hits.
 * In every other round the buffer is used at once, while the notifier's reader may still be busy
 * with the change: then that use may be registered for itself alone, and the next one misses.
 */
#include "mapping.h"
#include "settle.h"

enum { SEED = 41, USES = 3 };

static size_t size;
static bool back;

static void use(unsigned char *memory, uint64_t round, int number)
{
    const uint64_t key = stamp_key(SEED, round, 0, number);
    check_transfer(memory, size, key, "a buffer whose pages are new");
    const int rank = check_rank();
    if (back && rank == 1) {
        MPI_Send(memory, (int)size, MPI_BYTE, 0, CHECK_TAG, MPI_COMM_WORLD);
    } else if (back) {
        memset(memory, 0, size);
        MPI_Recv(memory, (int)size, MPI_BYTE, 1, CHECK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_stamp(memory, size, key, 0, "what came back");
    }
}

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 5);
    back = strcmp(argv[1], "back") == 0;
    const bool keep = back || strcmp(argv[1], "keep") == 0, raw = strcmp(argv[1], "raw") == 0;
    const bool changes = !keep && rank == (strcmp(argv[2], "receive") == 0);
    const uint64_t rounds = strtoul(argv[3], NULL, 0);
    size = strtoul(argv[4], NULL, 0);
    unsigned char *memory = mapping_make_below_room(size);
    unsigned char *control = mapping_make(NULL, size, raw);
    for (uint64_t round = 0; round < rounds; round++) {
        for (int n = 0; n < USES; n++) {
            use(memory, round, n);
            settle();
            use(control, round, USES + n);
        }
        if (changes && round + 1 < rounds) {
            mapping_drop(memory, size, raw);
            mapping_make(memory, size, raw);
            if (round % 2 == 0) {
                settle();
            }
        }
    }
    return check_end();
}
