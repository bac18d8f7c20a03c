/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tool that reads regx's performance variables, and messages from one buffer, as of any program.
 *
 *     tools COUNT SIZE [FILE]
 *
 * The tool's interface is opened, read and closed before MPI_Init (hazard 27), COUNT times over. With
 * FILE it is opened once more, and after the messages the values are written to FILE.RANK, a line
 * "NAME VALUE" each. It ends before MPI_Finalize: Open MPI 4.1 crashes in MPI_T_finalize after it,
 * with any BTL.
 */

#include "check.h"
#include "settle.h"

enum { SEED = 79, ROUNDS = 10, MOST = 200 };

#define PREFIX "btl_regx_"

static struct variable {
    char name[128];
    MPI_T_pvar_handle handle;
} variables[MOST];
static MPI_T_pvar_session session;
static int count;

static void open_tool(void)
{
    int total, level;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &level);
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_get_num(&total);
    count = 0;
    for (int n = 0; n < total && count < MOST; n++) {
        char help[1024];
        int name_length = sizeof variables->name, help_length = sizeof help;
        int verbosity, class, binding, readonly, continuous, atomic, values;
        MPI_Datatype type;
        MPI_T_enum words;
        struct variable *variable = &variables[count];

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
            fprintf(stderr, "tools: %s is not as described\n", variable->name);
            exit(2);
        }
        count++;
    }
}

static void close_tool(void)
{
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
}

static void write_values(const char *file, int rank)
{
    char name[4096];
    unsigned long long value;

    snprintf(name, sizeof name, "%s.%d", file, rank);
    FILE *out = fopen(name, "w");
    for (int i = 0; out != NULL && i < count; i++) {
        check_that(MPI_T_pvar_read(session, variables[i].handle, &value) == MPI_SUCCESS,
                   "cannot read %s", variables[i].name);
        fprintf(out, "%s %llu\n", variables[i].name + strlen(PREFIX), value);
    }
    check_that(out != NULL && fclose(out) == 0, "cannot write %s", name);
}

int main(int argc, char **argv)
{
    for (int n = argc > 1 ? atoi(argv[1]) : 0; n > 0; n--) {
        open_tool();
        close_tool();
    }
    if (argc > 3) {
        open_tool();
    }
    const int rank = check_begin(&argc, &argv, 3);
    const size_t size = strtoul(argv[2], NULL, 0);
    unsigned char *memory = check_memory(size);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        settle();
        check_transfer(memory, size, stamp_key(SEED, round, 0, 0), "beside a tool");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 3) {
        write_values(argv[3], rank);
        close_tool();
    }
    free(memory);
    return check_end();
}
