/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process has: mapped files, threads, descriptors, locked memory, signal handlers, and the
 * first bytes of the functions of libc that memory hooks like to rewrite.
 *
 *     process PREFIX
 *
 * Rank r writes PREFIX.r, a JSON object of three states: before MPI_Init, running (each rank has
 * exchanged a small and a large message with its neighbour), after MPI_Finalize.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "settle.h"

static const char *const functions[] = {"munmap", "mmap",  "mremap", "madvise",
                                        "shmat",  "shmdt", "brk",    "sbrk"};
enum { FUNCTIONS = sizeof functions / sizeof functions[0], CODE = 16, LARGE = 1 << 20 };

static void write_maps(FILE *out)
{
    char line[4352];
    FILE *maps = fopen("/proc/self/maps", "r");
    const char *comma = "";
    if (maps == NULL) {
        check_fail("cannot read /proc/self/maps");
    }
    fprintf(out, "\"maps\": [");
    while (fgets(line, sizeof line, maps) != NULL) {
        char *path = strchr(line, '/');
        if (path != NULL) {
            path[strcspn(path, "\n")] = '\0';
            fprintf(out, "%s\"%s\"", comma, path);
            comma = ", ";
        }
    }
    fclose(maps);
    fprintf(out, "]");
}

/* What each links to. */
static void write_descriptors(FILE *out)
{
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    const char *comma = "";
    if (directory == NULL) {
        check_fail("cannot read /proc/self/fd");
    }
    fprintf(out, "\"descriptors\": [");
    while ((entry = readdir(directory)) != NULL) {
        char path[512], target[4096];
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        const ssize_t length = readlink(path, target, sizeof target - 1);
        if (length >= 0) {
            target[length] = '\0';
        }
        fprintf(out, "%s\"%s\"", comma, length >= 0 ? target : entry->d_name);
        comma = ", ";
    }
    closedir(directory);
    fprintf(out, "]");
}

static void write_handlers(FILE *out)
{
    const char *comma = "";
    fprintf(out, "\"handlers\": {");
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        Dl_info where;
        if (sigaction(number, NULL, &action) != 0 || action.sa_handler == SIG_DFL) {
            continue;
        }
        const char *name = "?";
        if (action.sa_handler == SIG_IGN) {
            name = "ignored";
        } else if (dladdr((void *)action.sa_sigaction, &where) != 0) {
            name = where.dli_fname;
        }
        fprintf(out, "%s\"%d\": \"%s\"", comma, number, name);
        comma = ", ";
    }
    fprintf(out, "}");
}

/* Of a jump, with which hooks begin: where it leads, which is elsewhere each time. Answers its
 * length. */
static int write_jump(FILE *out, const unsigned char *code)
{
#ifdef __x86_64__
    enum { LENGTH = 5 };
    Dl_info where;
    int32_t distance;

    memcpy(&distance, code + 1, sizeof distance);
    const unsigned char *target = code + LENGTH + distance;
    if (code[0] == 0xe9 && dladdr(target, &where) != 0 && where.dli_fname != NULL) {
        fprintf(out, "jump to %s+%td ", where.dli_fname, target - (unsigned char *)where.dli_fbase);
        return LENGTH;
    }
#endif
    (void)out, (void)code;
    return 0;
}

static void write_code(FILE *out)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    fprintf(out, "\"code\": {");
    for (int n = 0; n < FUNCTIONS; n++) {
        const unsigned char *code = dlsym(libc, functions[n]);
        fprintf(out, "%s\"%s\": \"", n == 0 ? "" : ", ", functions[n]);
        for (int byte = write_jump(out, code); byte < CODE; byte++) {
            fprintf(out, "%02x", code[byte]);
        }
        fprintf(out, "\"");
    }
    fprintf(out, "}");
    dlclose(libc);
}

/* By their names, which say whose they are. */
static void write_threads(FILE *out)
{
    const char *comma = "";
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    if (folder == NULL) {
        check_fail("cannot read /proc/self/task");
    }
    fprintf(out, "\"threads\": [");
    while ((entry = readdir(folder)) != NULL) {
        char path[300], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *comm = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (comm == NULL) {
            continue; /* it ended meanwhile */
        }
        if (fgets(name, sizeof name, comm) != NULL) {
            name[strcspn(name, "\n")] = '\0';
            fprintf(out, "%s\"%s\"", comma, name);
            comma = ", ";
        }
        fclose(comm);
    }
    closedir(folder);
    fprintf(out, "]");
}

static void write_locked(FILE *out)
{
    char line[256];
    unsigned long locked = 0;
    FILE *status = fopen("/proc/self/status", "r");
    if (status == NULL) {
        check_fail("cannot read /proc/self/status");
    }
    while (fgets(line, sizeof line, status) != NULL) {
        sscanf(line, "VmLck: %lu", &locked);
    }
    fclose(status);
    fprintf(out, "\"locked\": %lu", locked * 1024);
}

static void write_state(FILE *out, const char *name)
{
    fprintf(out, "%s\"%s\": {", strcmp(name, "before") == 0 ? "{" : ",\n", name);
    write_maps(out);
    fprintf(out, ", ");
    write_threads(out);
    fprintf(out, ", ");
    write_descriptors(out);
    fprintf(out, ", ");
    write_locked(out);
    fprintf(out, ", ");
    write_handlers(out);
    fprintf(out, ", ");
    write_code(out);
    fprintf(out, "}");
}

static void exchange(size_t size, int to, int from)
{
    unsigned char *out = check_memory(size), *in = check_memory(size);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    stamp_fill(out, size, stamp_key(27, 0, rank, 0), 0);
    MPI_Sendrecv(out, (int)size, MPI_BYTE, to, 0, in, (int)size, MPI_BYTE, from, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    check_stamp(in, size, stamp_key(27, 0, from, 0), 0, "neighbour's message");
    free(out);
    free(in);
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
    MPI_Finalize();
    /* Of Open MPI 4.1 none is left either. */
    settle_ended(OMPI_MAJOR_VERSION < 5 ? "" : "regx-");
    write_state(out, "after");
    fprintf(out, "}\n");
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
