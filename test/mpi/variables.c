/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tool that reads regx's performance variables: finds them before MPI_Init, and writes their
 * values to FILE.RANK after messages of SIZE, a line "NAME VALUE" each. It ends before
 * MPI_Finalize: Open MPI 4.1 crashes in MPI_T_finalize after it, with any BTL.
 *
 *     variables FILE SIZE
 */
#include "check.h"

#include <string.h>

enum { SEED = 83, ROUNDS = 10, MOST = 200 };

#define PREFIX "btl_regx_"

typedef struct variable {
    char name[128];
    MPI_T_pvar_handle handle;
} variable_t;

static variable_t variables[MOST];
static int count;

static void find(MPI_T_pvar_session session)
{
    int total;

    MPI_T_pvar_get_num(&total);
    for (int n = 0; n < total && count < MOST; n++) {
        char help[1024];
        int name_length = sizeof variables->name, help_length = sizeof help;
        int verbosity, class, binding, readonly, continuous, atomic, values;
        MPI_Datatype type;
        MPI_T_enum words;
        variable_t *variable = &variables[count];

        if (MPI_T_pvar_get_info(n, variable->name, &name_length, &verbosity, &class, &type, &words,
                                help, &help_length, &binding, &readonly, &continuous,
                                &atomic) != MPI_SUCCESS ||
            strncmp(variable->name, PREFIX, strlen(PREFIX)) != 0) {
            continue;
        }
        if (type != MPI_UNSIGNED_LONG_LONG || !readonly || !continuous || help_length <= 1 ||
            (class != MPI_T_PVAR_CLASS_COUNTER && class != MPI_T_PVAR_CLASS_LEVEL) ||
            MPI_T_pvar_handle_alloc(session, n, NULL, &variable->handle, &values) != MPI_SUCCESS ||
            values != 1) {
            fprintf(stderr, "variables: %s is not as described\n", variable->name);
            exit(2);
        }
        count++;
    }
}

static void write_values(MPI_T_pvar_session session, const char *file, int rank)
{
    char name[4096];

    snprintf(name, sizeof name, "%s.%d", file, rank);
    FILE *out = fopen(name, "w");
    if (out == NULL) {
        fprintf(stderr, "variables: cannot write %s\n", name);
        exit(2);
    }
    for (int i = 0; i < count; i++) {
        unsigned long long value;

        if (MPI_T_pvar_read(session, variables[i].handle, &value) != MPI_SUCCESS) {
            fprintf(stderr, "variables: cannot read %s\n", variables[i].name);
            exit(2);
        }
        fprintf(out, "%s %llu\n", variables[i].name + strlen(PREFIX), value);
    }
    fclose(out);
}

int main(int argc, char **argv)
{
    MPI_T_pvar_session session;
    int level, rank;

    if (argc != 3) {
        fprintf(stderr, "variables: a file and a size are needed\n");
        return 2;
    }
    MPI_T_init_thread(MPI_THREAD_SINGLE, &level);
    MPI_T_pvar_session_create(&session);
    find(session);
    const size_t size = strtoul(argv[2], NULL, 0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    unsigned char *memory = check_memory(size);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        check_transfer(memory, size, stamp_key(SEED, round, 0, 0), "while a tool looks on");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    write_values(session, argv[1], rank);
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    free(memory);
    return 0;
}
