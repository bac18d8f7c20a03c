/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazard 27: a tool's interface opened, read and closed before MPI_Init, COUNT times over; then
 * messages from one buffer, as of any program.
 *
 *     tools COUNT SIZE
 */
#include "check.h"

enum { SEED = 79, ROUNDS = 10 };

static int count_variables(const char *prefix)
{
    int total, count = 0;

    MPI_T_cvar_get_num(&total);
    for (int n = 0; n < total; n++) {
        char name[256], text[4096];
        int name_length = sizeof name, text_length = sizeof text, verbosity, binding, scope;
        MPI_Datatype type;
        MPI_T_enum values;
        if (MPI_T_cvar_get_info(n, name, &name_length, &verbosity, &type, &values, text,
                                &text_length, &binding, &scope) == MPI_SUCCESS &&
            strncmp(name, prefix, strlen(prefix)) == 0) {
            count++;
        }
    }
    return count;
}

int main(int argc, char **argv)
{
    int level;

    if (argc != 3) {
        fprintf(stderr, "tools: a count and a size are needed\n");
        return 2;
    }
    for (int n = atoi(argv[1]); n > 0; n--) {
        MPI_T_init_thread(MPI_THREAD_SINGLE, &level);
        if (count_variables("btl_regx_") == 0) {
            fprintf(stderr, "tools: no variables of regx\n");
            return 2;
        }
        MPI_T_finalize();
    }
    const size_t size = strtoul(argv[2], NULL, 0);
    MPI_Init(&argc, &argv);
    unsigned char *memory = check_memory(size);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        check_transfer(memory, size, stamp_key(SEED, round, 0, 0), "after the tool has gone");
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    free(memory);
    return 0;
}
