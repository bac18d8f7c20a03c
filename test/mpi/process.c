/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process has: mapped files, threads, descriptors, locked memory, signal handlers, and the
 * first bytes of the functions of libc that memory hooks like to rewrite.
 *
 *     process PREFIX
 *
 * Rank r writes to PREFIX.r a line for each thing, by states: before MPI_Init, running (each rank has
 * exchanged a small and a large message with its neighbour), after MPI_Finalize.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>

#include "check.h"
#include "settle.h"

#if OMPI_MAJOR_VERSION < 5 /* later headers need more than a program has */
#include <ompi_config.h>

#include <ompi/mca/pml/pml.h>
#endif

static const char *const functions[] = {"munmap", "mmap",  "mremap", "madvise",
                                        "shmat",  "shmdt", "brk",    "sbrk"};
enum { FUNCTIONS = sizeof functions / sizeof functions[0], CODE = 16, LARGE = 1 << 20 };

/* Of each mapped file its path. */
static void write_maps(FILE *out)
{
    char line[4352];
    FILE *maps = fopen("/proc/self/maps", "r");

    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        if (strchr(line, '/') != NULL) {
            fprintf(out, "file %s", strchr(line, '/'));
        }
    }
    check_that(maps != NULL && fclose(maps) == 0, "cannot read /proc/self/maps");
}

/* Of each descriptor what it links to; of each thread its name, which says whose it is. */
static void write_folder(FILE *out, const char *path, const char *word, bool links)
{
    DIR *directory = opendir(path);
    struct dirent *entry;

    check_that(directory != NULL, "cannot read %s", path);
    while ((entry = readdir(directory)) != NULL) {
        char name[512], text[4096] = "";

        snprintf(name, sizeof name, "%s/%s%s", path, entry->d_name, links ? "" : "/comm");
        FILE *file = entry->d_name[0] != '.' && !links ? fopen(name, "r") : NULL;
        const bool found = links ? readlink(name, text, sizeof text - 1) > 0
                                 : file != NULL && fgets(text, sizeof text, file) != NULL;
        if (file != NULL) {
            fclose(file);
        }
        if (found && entry->d_name[0] != '.') { /* else it ended meanwhile */
            fprintf(out, "%s %.*s\n", word, (int)strcspn(text, "\n"), text);
        }
    }
    closedir(directory);
}

static void write_handlers(FILE *out)
{
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        Dl_info where;
        const char *name = "?";

        if (sigaction(number, NULL, &action) != 0 || action.sa_handler == SIG_DFL) {
            continue;
        }
        if (action.sa_handler == SIG_IGN) {
            name = "ignored";
        } else if (dladdr((void *)action.sa_sigaction, &where) != 0) {
            name = where.dli_fname;
        }
        fprintf(out, "handler %d %s\n", number, name);
    }
}

/* Of a jump, with which hooks begin: where it leads, which is elsewhere each time. Answers its
 * length. UCX jumps by a distance or, as Open MPI does, by an address in r11. */
static int write_jump(FILE *out, const unsigned char *code)
{
#ifdef __x86_64__
    enum { NEAR = 5, FAR = 13, OPCODE = 2 };
    const int length = code[0] == 0xe9 ? NEAR : FAR;
    const unsigned char *target = NULL;
    int32_t distance;
    Dl_info where;

    if (length == NEAR) {
        memcpy(&distance, code + 1, sizeof distance);
        target = code + NEAR + distance;
    } else if (memcmp(code, "\x49\xbb", OPCODE) == 0) {
        memcpy(&target, code + OPCODE, sizeof target);
    }
    if (dladdr(target, &where) != 0 && where.dli_fname != NULL) {
        fprintf(out, "jump to %s+%td ", where.dli_fname, target - (unsigned char *)where.dli_fbase);
        return length;
    }
#endif
    return 0;
}

static void write_code(FILE *out)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

    for (int n = 0; n < FUNCTIONS; n++) {
        const unsigned char *code = dlsym(libc, functions[n]);

        fprintf(out, "code %s ", functions[n]);
        for (int byte = write_jump(out, code); byte < CODE; byte++) {
            fprintf(out, "%02x", code[byte]);
        }
        fprintf(out, "\n");
    }
    dlclose(libc);
}

static void write_locked(FILE *out)
{
    char line[256];
    unsigned long locked;
    FILE *status = fopen("/proc/self/status", "r");

    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        if (sscanf(line, "VmLck: %lu", &locked) == 1) {
            fprintf(out, "locked %lu\n", locked * 1024);
        }
    }
    check_that(status != NULL && fclose(status) == 0, "cannot read /proc/self/status");
}

static void write_state(FILE *out, const char *name)
{
    fprintf(out, "state %s\n", name);
    write_maps(out);
    write_folder(out, "/proc/self/task", "thread", false);
    write_folder(out, "/proc/self/fd", "descriptor", true);
    write_locked(out);
    write_handlers(out);
    write_code(out);
}

static void exchange(size_t size, int to, int from)
{
    const int rank = check_rank();
    check_exchange(MPI_COMM_WORLD, size, to, stamp_key(27, 0, rank, 0), from,
                   stamp_key(27, 0, from, 0), "neighbour's message");
}

int main(int argc, char **argv)
{
    char *text;
    size_t length;
    char path[4096];
    int rank, ranks;
    FILE *out = open_memstream(&text, &length); /* no descriptor of its own */

    if (argc != 2) {
        fprintf(stderr, "process: needs a file's name\n");
        return 2;
    }
    write_state(out, "before");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    exchange(100, (rank + 1) % ranks, (rank + ranks - 1) % ranks);
    exchange(LARGE, (rank + 1) % ranks, (rank + ranks - 1) % ranks);
    check_done(MPI_COMM_WORLD);
    write_state(out, "running");
#if OMPI_MAJOR_VERSION < 5
    /* As a debugger does: it calls each BTL's dump unchecked. */
    mca_pml.pml_dump(MPI_COMM_WORLD, 0);
#endif
    MPI_Finalize();
    /* Of Open MPI 4.1 none is left either. */
    settle_ended(OMPI_MAJOR_VERSION < 5 ? "" : "regx-");
    write_state(out, "after");
    fclose(out);
    snprintf(path, sizeof path, "%s.%d", argv[1], rank);
    out = fopen(path, "w");
    if (out == NULL || fputs(text, out) == EOF || fclose(out) != 0) {
        perror(path);
        return 2;
    }
    free(text);
    return 0;
}
