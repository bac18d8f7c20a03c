/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many rounds carry wrong bytes, and which of them regx-check reports.
 *
 *     rounds SIDE ROUNDS [CHANGE...]
 *
 * In each round both ranks send and receive (MPI_Sendrecv) by buffers whose memory was changed since the
 * round before: those that send, those that receive, or both (SIDE). Rank 0 prints a line for each kind of
 * change, of all or of those that are named, with the number of rounds of both ranks; of those that carry
 * wrong bytes; of these, those in which neither rank's regx-check reported a use; and of the right ones,
 * those in which one did. Any stack runs it: it asserts nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>

#include "../test/registration/change.c"

enum { SIZE = 256 << 10, NEW = MAP_PRIVATE | MAP_ANONYMOUS, READ_WRITE = PROT_READ | PROT_WRITE };

static unsigned char *room, *spare; /* where the buffers are; addresses for memory that is moved */

static void must(bool so, const char *what)
{
    if (!so) {
        perror(what);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

static void *map(by_t by, void *at, size_t length)
{
    void *memory = change_mmap(by, at, length, READ_WRITE, NEW | (at != NULL ? MAP_FIXED : 0), -1);

    must(memory != MAP_FAILED, "mmap");
    return memory;
}

static void *unmap(void *base)
{
    must(change_munmap(BY_LIBC, base, SIZE) == 0, "munmap");
    return NULL;
}

static void libc(unsigned char *base)
{
    unmap(base);
    map(BY_LIBC, base, SIZE);
}

static void raw(unsigned char *base)
{
    must(change_munmap(BY_SYSCALL, base, SIZE) == 0, "munmap");
    map(BY_SYSCALL, base, SIZE);
}

static void fixed(unsigned char *base)
{
    map(BY_LIBC, base, SIZE);
}

static void remap_onto(unsigned char *base)
{
    map(BY_LIBC, spare, SIZE);
    must(change_mremap(BY_LIBC, spare, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, base) == base,
         "mremap");
}

static void move_away(unsigned char *base)
{
    must(change_mremap(BY_LIBC, base, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, spare) == spare,
         "mremap");
    map(BY_LIBC, base, SIZE);
}

static void move_and_stay(unsigned char *base)
{
    must(change_mremap(BY_LIBC, base, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                       spare) == spare,
         "mremap");
}

static void half(unsigned char *base)
{
    must(change_munmap(BY_LIBC, base + SIZE / 2, SIZE / 2) == 0, "munmap");
    map(BY_LIBC, base + SIZE / 2, SIZE / 2);
}

static void attach_over(unsigned char *base)
{
    const int segment = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600);

    must(segment >= 0 && change_shmat(BY_LIBC, segment, base, SHM_REMAP) == base, "shmat");
    shmctl(segment, IPC_RMID, NULL);
}

static void thread(unsigned char *base)
{
    pthread_t other;

    must(pthread_create(&other, NULL, unmap, base) == 0 && pthread_join(other, NULL) == 0,
         "thread");
    map(BY_LIBC, base, SIZE);
}

static void dontneed(unsigned char *base)
{
    must(change_madvise(BY_LIBC, base, SIZE, MADV_DONTNEED) == 0, "madvise");
}

/* Of a buffer that is shared memory. */
static int *file_of(const unsigned char *base)
{
    static int files[2];

    return &files[base != room];
}

static void share(unsigned char *base)
{
    const int file = *file_of(base) = memfd_create("rounds", 0);

    must(ftruncate(file, SIZE) == 0 &&
             change_mmap(BY_LIBC, base, SIZE, READ_WRITE, MAP_SHARED | MAP_FIXED, file) == base,
         "shared memory");
}

static void punch(unsigned char *base)
{
    must(fallocate(*file_of(base), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE) == 0,
         "fallocate");
}

static void shorten(unsigned char *base)
{
    must(ftruncate(*file_of(base), 0) == 0 && ftruncate(*file_of(base), SIZE) == 0, "ftruncate");
}

static void none(unsigned char *base)
{
    (void)base;
}

static const struct {
    const char *name;
    void (*make)(unsigned char *base);
} changes[] = {{"none", none},
               {"munmap, mmap", libc},
               {"munmap, mmap by the system call", raw},
               {"mmap MAP_FIXED over it", fixed},
               {"mremap of other memory onto it", remap_onto},
               {"moved away by mremap, mmap", move_away},
               {"mremap DONTUNMAP", move_and_stay},
               {"munmap, mmap of the second half", half},
               {"shmat SHM_REMAP over it", attach_over},
               {"munmap by a thread, mmap", thread},
               {"madvise DONTNEED", dontneed},
               {"fallocate PUNCH_HOLE in shared memory", punch},
               {"ftruncate of shared memory", shorten}};

static void fill(unsigned char *base, int rank, int round)
{
    for (size_t i = 0; i < SIZE; i++) {
        base[i] =
            (unsigned char)(i * 7 + (i >> 8) + (unsigned)round * 31 + (unsigned)rank * 101 + 1);
    }
}

static unsigned long (*found)(void); /* regx-check's; NULL: it is not there */

static unsigned long reported(void)
{
    return found != NULL ? found() : 0;
}

static void run(size_t which, const char *side, int rounds, int rank)
{
    enum { WRONG, MISSED, MORE, SUMS };
    room = map(BY_LIBC, NULL, 5 * SIZE);
    unsigned char *from = room, *to = room + 2 * SIZE; /* between them nothing is used */
    unsigned char *expected = malloc(SIZE);
    unsigned long before = reported();
    int sums[SUMS] = {0}, total[SUMS];

    spare = room + 4 * SIZE;
    if (changes[which].make == punch || changes[which].make == shorten) {
        share(from);
        share(to);
    }
    for (int round = 0; round < rounds; round++) {
        fill(from, rank, round);
        fill(expected, 1 - rank, round);
        memset(to, 0, SIZE);
        MPI_Sendrecv(from, SIZE, MPI_BYTE, 1 - rank, 1, to, SIZE, MPI_BYTE, 1 - rank, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        const unsigned long now = reported();
        const bool wrong = memcmp(to, expected, SIZE) != 0;
        int mine = now != before, any;

        MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        before = reported();
        sums[WRONG] += wrong;
        sums[MISSED] += wrong && !any;
        sums[MORE] += !wrong && any;
        if (strcmp(side, "receive") != 0) {
            changes[which].make(from);
        }
        if (strcmp(side, "send") != 0) {
            changes[which].make(to);
        }
    }
    MPI_Reduce(sums, total, SUMS, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%s: %d rounds, %d wrong, %d missed, %d more\n", changes[which].name, 2 * rounds,
               total[WRONG], total[MISSED], total[MORE]);
        fflush(stdout);
    }
    free(expected);
}

int main(int argc, char **argv)
{
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    must(argc > 2, "rounds SIDE ROUNDS [CHANGE...]");
    found = (unsigned long (*)(void))dlsym(RTLD_DEFAULT, "regx_check_found");
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        bool named = argc == 3;

        for (int j = 3; j < argc; j++) {
            named = named || strcmp(argv[j], changes[i].name) == 0;
        }
        if (named) {
            run(i, argv[1], atoi(argv[2]), rank);
        }
    }
    MPI_Finalize();
    return 0;
}
