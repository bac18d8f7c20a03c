// SPDX-License-Identifier: BSD-3-Clause
//
// A library that compare loads into a benchmark of MPI: it prints the phase of the machine within the
// run. A hypervisor may move the cores when a process starts or ends, so what is measured before a run
// and after it says little of the run itself. Where others use a core's second thread, the core
// does about half as many instructions in a cycle, and copies half as fast (an EPYC of Zen 3).
//
//   mpirun -x LD_PRELOAD=phase.so -x REGX_PHASE=FILE benchmark
//
// Benchmarks meet at a barrier before each size, some before each iteration. Behind it, and before
// MPI_Finalize, ranks 0 and 1 hand a cache line back and forth for some 0.1 ms, every 20 ms at most;
// rank 0 prints the one-way time, with the instructions per cycle of the slower core, and all meet
// again. All map FILE, a page of zeros.

#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PLACES 9 // lines, whose times differ a little: the least counts
#define ROUNDS 50
#define STEPS 500
#define PAUSE 20e-3 // seconds

struct line {
    _Alignas(64) _Atomic uint64_t number;
};

static struct shared {
    struct line places[PLACES][2];
    struct line due; // the number of the barrier behind which both measure
    double width[2]; // instructions per cycle
} * shared;

static int rank;
static uint64_t barriers;
static double measured = -PAUSE; // when

static uint64_t step(uint64_t number)
{
    __asm__ volatile("" : "+r"(number)); // one instruction each, which takes a cycle
    return number + 1;
}

// How many instructions a core does in the time of one, if none has to wait for another.
static double measure_width(void)
{
    double wide = 1, deep = 1;
    for (int i = 0; i < PLACES; i++) {
        uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;
        double start = PMPI_Wtime();
        for (int n = 0; n < STEPS; n++)
            a = step(a), b = step(b), c = step(c), d = step(d), e = step(e), f = step(f);
        double middle = PMPI_Wtime();
        for (int n = 0; n < STEPS; n++)
            a = step(step(step(step(step(step(a))))));
        double end = PMPI_Wtime();
        wide = middle - start < wide ? middle - start : wide;
        deep = end - middle < deep ? end - middle : deep;
    }
    return deep / wide;
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
    double least = 1e6;
    shared->width[rank] = measure_width();
    for (int i = 0; i < PLACES; i++) {
        double time = measure_place(shared->places[i]);
        least = time < least ? time : least;
    }
    if (rank == 0) {
        const double *width = shared->width;
        printf("# mailbox (us), width: %.3f %.2f\n", least, width[width[1] < width[0]]);
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
    if (file >= 0 && size > 1) {
        void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        shared = memory == MAP_FAILED ? NULL : memory;
    }
    if (file >= 0)
        close(file);
    int all = shared != NULL; // or none
    PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!all)
        shared = NULL;
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
    if (atomic_load(&shared->due.number) == barriers) {
        if (rank < 2)
            measure();
        PMPI_Barrier(comm); // what rank 0 printed is in no rank's time
    }
    return status;
}

int MPI_Finalize(void)
{
    measured = -PAUSE;
    MPI_Barrier(MPI_COMM_WORLD);
    return PMPI_Finalize();
}
