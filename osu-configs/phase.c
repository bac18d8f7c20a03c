// SPDX-License-Identifier: BSD-3-Clause
//
// A library that compare loads into a benchmark of MPI: it prints the phase of the machine within the
// run. A hypervisor may move the cores when a process starts or ends, so what is measured before a run
// and after it says little of the run itself.
//
//   mpirun -x LD_PRELOAD=phase.so -x REGX_PHASE=FILE benchmark
//
// Benchmarks meet at a barrier before each size. Behind it, and before MPI_Finalize, ranks 0 and 1 hand
// a cache line back and forth for some 0.1 ms, but not more often than every 2 ms; rank 0 prints the
// one-way time. FILE, which both map, holds a page of zeros; without it nothing is measured. No message
// is sent for it.

#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PLACES 9 // lines, whose times differ a little; their median is taken
#define ROUNDS 50
#define PAUSE 2e-3 // seconds

struct line {
    _Alignas(64) _Atomic uint64_t number;
};

static struct shared {
    struct line places[PLACES][2];
    struct line due; // the number of the barrier behind which both measure
} * shared;

static int rank;
static uint64_t barriers;
static double measured = -PAUSE; // when

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure_place(struct line place[2])
{
    uint64_t number = atomic_load(&place[rank].number);
    double start = PMPI_Wtime();
    for (int i = 0; i < ROUNDS; i++) {
        number++;
        if (rank == 0)
            atomic_store_explicit(&place[0].number, number, memory_order_release);
        while (atomic_load_explicit(&place[!rank].number, memory_order_acquire) < number)
            ;
        if (rank == 1)
            atomic_store_explicit(&place[1].number, number, memory_order_release);
    }
    return 1e6 * (PMPI_Wtime() - start) / (2 * ROUNDS);
}

static void measure(void)
{
    double times[PLACES];
    for (int i = 0; i < PLACES; i++)
        times[i] = measure_place(shared->places[i]);
    qsort(times, PLACES, sizeof times[0], compare_doubles);
    if (rank == 0) {
        printf("# mailbox (us): %.3f\n", times[PLACES / 2]);
        fflush(stdout);
    }
    measured = PMPI_Wtime();
}

static void attach(void)
{
    const char *name = getenv("REGX_PHASE");
    int size, file = name == NULL ? -1 : open(name, O_RDWR);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (file >= 0 && size > 1 && rank < 2) {
        void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        shared = memory == MAP_FAILED ? NULL : memory;
    }
    if (file >= 0)
        close(file);
}

int MPI_Init(int *argc, char ***argv)
{
    int status = PMPI_Init(argc, argv);
    attach();
    return status;
}

int MPI_Barrier(MPI_Comm comm)
{
    if (shared == NULL || comm != MPI_COMM_WORLD)
        return PMPI_Barrier(comm);
    barriers++;
    if (rank == 0 && PMPI_Wtime() - measured >= PAUSE)
        atomic_store(&shared->due.number, barriers);
    int status = PMPI_Barrier(comm);
    // Rank 0 may be at a later barrier by now, but not if this one was due.
    if (atomic_load(&shared->due.number) == barriers)
        measure();
    return status;
}

int MPI_Finalize(void)
{
    measured = -PAUSE;
    MPI_Barrier(MPI_COMM_WORLD);
    return PMPI_Finalize();
}
