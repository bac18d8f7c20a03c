/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages from and to every kind of memory that a program has, read-only ones among them.
 *
 *     memory FOLDER BYTES...
 *
 * Rank 0 sends, rank 1 receives; FOLDER takes the mapped files. A string literal and a table in
 * .rodata are sent as they are, once.
 */
#include <sys/mman.h>

#include "check.h"

enum { MOST = 4 << 20, TABLE = 300000, TAG = 3 };

enum kind { HEAP, STACK, BSS, SHARED, FILE_PRIVATE, FILE_SHARED, READ_ONLY, KINDS };

static const char *const kind_names[] = {"heap",         "stack",       "bss",      "shared",
                                         "file-private", "file-shared", "read-only"};

static unsigned char bss[MOST];
/* A first element keeps it out of .bss: all of it lies in .rodata. */
static const unsigned char table[TABLE] = {1, 2, 3};
static const char *const literal = "a string literal lies in memory that may not be written";

static const char *folder;
static int rank;

static void *map_file(int prot, int flags, const unsigned char *content, size_t size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/map.%d", folder, rank);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    check_that(file >= 0 && write(file, content, size) == (ssize_t)size, "cannot write %s", path);
    void *memory = mmap(NULL, size, prot, flags, file, 0);
    close(file);
    unlink(path);
    check_that(memory != MAP_FAILED, "cannot map %s", path);
    return memory;
}

/* Sends or receives content of so many bytes in memory. */
static void move(unsigned char *memory, size_t size, uint64_t key, const char *what)
{
    if (rank == 0) {
        MPI_Send(memory, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    } else {
        MPI_Recv(memory, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    check_stamp(memory, size, key, 0, what);
}

static void move_stack(const unsigned char *content, size_t size, uint64_t key)
{
    unsigned char memory[size];
    memcpy(memory, content, size);
    move(memory, size, key, "stack");
}

static void move_kind(enum kind kind, size_t size, uint64_t round)
{
    const uint64_t key = stamp_key(20, round, (int)kind, 0);
    const int both = PROT_READ | PROT_WRITE;
    unsigned char *content = check_memory(size + 1);
    unsigned char *memory;

    if (rank == 0) {
        stamp_fill(content, size, key, 0);
    } else {
        memset(content, 0, size);
        kind = kind == READ_ONLY ? HEAP : kind; /* nothing is received there */
    }
    switch (kind) {
    case HEAP:
        move(content, size, key, kind_names[kind]);
        break;
    case STACK:
        move_stack(content, size, key);
        break;
    case BSS:
        memcpy(bss, content, size);
        move(bss, size, key, kind_names[kind]);
        break;
    case SHARED:
        memory = mmap(NULL, size, both, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        memcpy(memory, content, size);
        move(memory, size, key, kind_names[kind]);
        munmap(memory, size);
        break;
    default:
        memory = map_file(kind == READ_ONLY ? PROT_READ : both,
                          kind == FILE_SHARED ? MAP_SHARED : MAP_PRIVATE, content, size);
        move(memory, size, key, kind_names[kind]);
        munmap(memory, size);
        break;
    }
    free(content);
}

/* Pages that were never touched read as zeros; received into, they come into being. */
static void move_untouched(size_t size)
{
    unsigned char *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (rank == 0) {
        MPI_Send(memory, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    } else {
        MPI_Recv(memory, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (size_t n = 0; n < size; n++) {
            check_that(memory[n] == 0, "untouched page: byte %zu is not 0", n);
        }
        check_bytes += size;
    }
    munmap(memory, size);
}

static void move_constant(const void *constant, size_t size, const char *what)
{
    if (rank == 0) {
        MPI_Send(constant, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        return;
    }
    unsigned char *memory = check_memory(size);
    memset(memory, 0xff, size);
    MPI_Recv(memory, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check_that(memcmp(memory, constant, size) == 0, "%s came out wrong", what);
    check_bytes += size;
    free(memory);
}

int main(int argc, char **argv)
{
    uint64_t round = 0;
    rank = check_begin(&argc, &argv, 3);
    folder = argc > 1 ? argv[1] : ".";
    move_constant(literal, strlen(literal) + 1, "string literal");
    move_constant(table, sizeof table, ".rodata");
    for (int n = 2; n < argc; n++) {
        size_t size = strtoul(argv[n], NULL, 0);
        check_that(size != 0 && size <= MOST, "1 to %d bytes, not %s", MOST, argv[n]);
        for (enum kind kind = HEAP; kind < KINDS; kind++) {
            move_kind(kind, size, round++);
        }
        move_untouched(size);
    }
    return check_end();
}
