/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages into memory that malloc has just given, and that nothing else has written: under valgrind,
 * the program is not to be blamed for using what it received.
 *
 *     undefined SIZE [BYTES]
 *
 * Rank 0 sends SIZE bytes. Rank 1 looks at all; with BYTES also at so many that follow, which nobody
 * has sent: the control, for which valgrind has to blame it.
 */
#include "check.h"

enum { ROUNDS = 3, SEED = 97 };

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 2);
    const size_t size = strtoul(argv[1], NULL, 0);
    const size_t more = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const uint64_t key = stamp_key(SEED, round, 0, 0);
        unsigned char *memory = malloc(size + more);
        unsigned sum = 0;
        check_transfer(memory, size, key, "what was received");
        for (size_t i = size; rank == 1 && i < size + more; i++) {
            sum += memory[i];
        }
        if (sum == 1) {
            fprintf(stderr, "a sum of bytes that nobody sent\n");
        }
        free(memory);
    }
    return check_end();
}
