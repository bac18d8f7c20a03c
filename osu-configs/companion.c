// SPDX-License-Identifier: BSD-3-Clause
//
// The companion benchmark: an MPI program that sleeps until compare has it measure a slice, so that the jobs of
// all rows are alive at the same time, and all but one of them use no processor.
//
//   mpirun -n N companion ADDRESS NAME
//
// Each rank connects to ADDRESS (unix:PATH or tcp:HOST:PORT), says "NAME RANK", and waits in recv. A slice is a
// line to all ranks
//
//   TEST BUFFERS SIZE WINDOW OWNED MILLISECONDS CHECK SLOWER
//
// and each rank answers "SECONDS ITERATIONS WRONG FREED BACK": of one iteration, as rank 0 timed it; how many there
// were with those before the timed ones; messages with wrong content; freed buffers, and those that came back. With
// CHECK there are as many iterations whose contents are compared, and nothing is timed. SLOWER: percent by
// which rank 0 spins longer for each iteration. At the end of the connection the rank ends.
//
// Nothing but the exchange itself is timed: fresh buffers are mapped and filled, and contents stamped and
// checked, between the timed parts, behind a barrier. Only "touched" buffers are written and read in the timed
// part. The exchanges are those of osu_latency, osu_bw and osu_bibw. benchmark/ has the rest.

#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmark/bench.h"
#include "connection.h"

#define WARM_PARTS 5 // of a slice: a batch that takes one of them is long enough to be compared
#define WARM_MOST 8  // batches of that length before the timed part
#define FASTER 0.97  // of the batch before: it is still getting warm
#define ITERATIONS_MAX 1000000
#define TAIL_MIN 2000 // iterations of a percentile

void fail(const struct bench *b, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "companion: rank %d: ", b->rank);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// ---- the exchanges, as osu_latency, osu_bw and osu_bibw make them

enum { TAG_LATENCY = 1, TAG_TO_0 = 10, TAG_TO_1 = 100, TAG_REPLY = 101 };

static void send_one(struct bench *b, size_t size, uint64_t iteration)
{
    unsigned char *send = source_of(b, iteration, 0);
    write_message(b, send, size, iteration);
    MPI_Send(send, (int)size, MPI_CHAR, !b->rank, TAG_LATENCY, MPI_COMM_WORLD);
}

static void receive_one(struct bench *b, size_t size, uint64_t iteration)
{
    unsigned char *receive = target_of(b, iteration, 0);
    MPI_Recv(receive, (int)size, MPI_CHAR, !b->rank, TAG_LATENCY, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    read_message(b, receive, size);
}

static void exchange_latency(struct bench *b, size_t size, uint64_t iteration)
{
    if (b->rank == 0)
        send_one(b, size, iteration);
    receive_one(b, size, iteration);
    if (b->rank == 1)
        send_one(b, size, iteration);
}

static void start_receives(struct bench *b, size_t size, uint64_t iteration)
{
    int tag = b->rank == 0 ? TAG_TO_0 : TAG_TO_1;
    for (int j = 0; j < b->set.window; j++)
        MPI_Irecv(target_of(b, iteration, j), (int)size, MPI_CHAR, !b->rank, tag, MPI_COMM_WORLD,
                  &b->receive_request[j]);
}

static void finish_receives(struct bench *b, size_t size, uint64_t iteration)
{
    MPI_Waitall(b->set.window, b->receive_request, MPI_STATUSES_IGNORE);
    for (int j = 0; j < b->set.window; j++)
        read_message(b, target_of(b, iteration, j), size);
}

static void send_all(struct bench *b, size_t size, uint64_t iteration)
{
    int tag = b->rank == 0 ? TAG_TO_1 : TAG_TO_0;
    for (int j = 0; j < b->set.window; j++) {
        unsigned char *send = source_of(b, iteration, j);
        write_message(b, send, size, iteration);
        MPI_Isend(send, (int)size, MPI_CHAR, !b->rank, tag, MPI_COMM_WORLD, &b->send_request[j]);
    }
    MPI_Waitall(b->set.window, b->send_request, MPI_STATUSES_IGNORE);
}

static void exchange_bw(struct bench *b, size_t size, uint64_t iteration)
{
    char reply[4] = {0};
    if (b->rank == 0) {
        send_all(b, size, iteration);
        MPI_Recv(reply, sizeof reply, MPI_CHAR, 1, TAG_REPLY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        start_receives(b, size, iteration);
        finish_receives(b, size, iteration);
        MPI_Send(reply, sizeof reply, MPI_CHAR, 0, TAG_REPLY, MPI_COMM_WORLD);
    }
}

static void exchange_bibw(struct bench *b, size_t size, uint64_t iteration)
{
    start_receives(b, size, iteration);
    send_all(b, size, iteration);
    finish_receives(b, size, iteration);
}

static const struct test {
    const char *name;
    void (*exchange)(struct bench *, size_t, uint64_t);
} tests[MODES] = {[LATENCY] = {"latency", exchange_latency},
                  [BW] = {"bw", exchange_bw},
                  [BIBW] = {"bibw", exchange_bibw},
                  [P99] = {"p99", exchange_latency},
                  [SENDRECV] = {"sendrecv", exchange_sendrecv},
                  [HALO] = {"halo", exchange_halo}};

// ---- a slice

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void spin(unsigned long loops)
{
    while (loops-- > 0)
        __asm__ volatile("");
}

// Loops in so many seconds, by the fastest of a few tries: another program may take the core in one.
static unsigned long loops_in(double seconds)
{
    const unsigned long some = 20000;
    double least = 1;
    for (int i = 0; i < 5; i++) {
        double start = MPI_Wtime();
        spin(some);
        double one = MPI_Wtime() - start;
        least = one < least ? one : least;
    }
    return (unsigned long)(seconds * (double)some / least);
}

// Returns the seconds of so many iterations. times: of each, where they are wanted.
static double batch(struct bench *b, int iterations, unsigned long loops, double *times)
{
    bool each = times != NULL || is_new_each_time(b);
    double sum = 0, start = MPI_Wtime();
    for (int i = 0; i < iterations; i++) {
        uint64_t iteration = b->iteration++;
        if (each) {
            prepare(b, b->set.size, iteration);
            start = MPI_Wtime();
        }
        tests[b->set.mode].exchange(b, b->set.size, iteration);
        if (loops > 0)
            spin(loops);
        if (each) {
            double one = MPI_Wtime() - start;
            sum += one;
            if (times != NULL)
                times[i] = one;
        }
    }
    return each ? sum : MPI_Wtime() - start;
}

static int told_by_0(int value)
{
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return value;
}

// Batches get longer until one takes a part of the slice, and then go on until they no longer get faster. Returns
// the seconds of an iteration.
static double warm(struct bench *b)
{
    double each, best = 1e9, part = b->set.seconds / WARM_PARTS;
    int iterations = 1, next = 1, at_length = 0;
    do {
        iterations = next;
        double seconds = batch(b, iterations, 0, NULL);
        each = seconds / iterations;
        if (seconds < part && iterations < ITERATIONS_MAX)
            next = iterations * 2;
        else
            next = each < FASTER * best && ++at_length < WARM_MOST &&
                           seconds * at_length < b->set.seconds
                       ? iterations
                       : 0;
        best = each < best ? each : best;
        next = told_by_0(next);
    } while (next > 0);
    return best;
}

static double timed(struct bench *b)
{
    double each = warm(b), wanted = b->set.seconds / each, value;
    int least = b->set.mode == P99 ? TAIL_MIN : 1;
    int iterations = wanted < least            ? least
                     : wanted > ITERATIONS_MAX ? ITERATIONS_MAX
                                               : (int)wanted;
    unsigned long loops = b->rank == 0 ? loops_in(b->set.slower / 100 * each) : 0;
    iterations = told_by_0(iterations);
    double *times = b->set.mode == P99 ? calloc((size_t)iterations, sizeof *times) : NULL;
    if (b->set.mode == P99 && times == NULL)
        fail(b, "out of memory");
    value = batch(b, iterations, loops, times) / iterations;
    if (times != NULL) {
        qsort(times, (size_t)iterations, sizeof *times, compare_doubles);
        value = times[iterations / 100 * 99]; // a mean hides what comes once in a while
        free(times);
    }
    return value;
}

static void checked(struct bench *b)
{
    for (int i = 0; i < b->set.check; i++) {
        uint64_t iteration = b->iteration++;
        prepare(b, b->set.size, iteration);
        tests[b->set.mode].exchange(b, b->set.size, iteration);
        check(b, b->set.size, iteration);
    }
}

// Returns whether the line is one.
static bool parse(struct settings *set, const char *line)
{
    char test[16], buffers[32];
    int owned;
    double ms;
    static const char *const names[] = {"same", "rotate:", "slide:", "fresh", "freed", "touched"};
    *set = (struct settings){.places = 1};
    if (sscanf(line, "%15s %31s %zu %d %d %lf %d %lf", test, buffers, &set->size, &set->window,
               &owned, &ms, &set->check, &set->slower) != 8 ||
        set->size < 1 || set->size > MESSAGE_MAX || set->window < 1)
        return false;
    set->owned = owned;
    set->seconds = 1e-3 * ms;
    while (set->mode < MODES && strcmp(test, tests[set->mode].name) != 0)
        set->mode++;
    while (set->buffers < KINDS &&
           strncmp(buffers, names[set->buffers], strlen(names[set->buffers])) != 0)
        set->buffers++;
    if (set->mode == MODES || set->buffers == KINDS)
        return false;
    const char *number = strchr(buffers, ':');
    set->places = number != NULL ? strtoul(number + 1, NULL, 10) : 1;
    if (set->mode == HALO)
        set->window = DIRECTIONS;
    else if (set->mode != BW && set->mode != BIBW)
        set->window = 1;
    return set->places >= 1 && !(set->buffers == FREED && set->size < FREED_MIN);
}

static double slice(struct bench *b)
{
    double value = 0;
    uint64_t before = b->iteration;
    b->wrong = b->freed = b->came_back = 0;
    open_buffers(b);
    MPI_Barrier(MPI_COMM_WORLD);
    if (b->set.check > 0)
        checked(b);
    else
        value = timed(b);
    close_buffers(b);
    b->done = b->iteration - before;
    return value;
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    char line[256];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.ranks);
    int to = argc == 3 ? connected(argv[1]) : -1;
    if (to < 0)
        fail(&b,
             argc == 3 ? "no connection to %s" : "ADDRESS NAME are wanted: compare starts this%s",
             argc == 3 ? argv[1] : "");
    find_neighbours(&b);
    snprintf(line, sizeof line, "%s %d\n", argv[2], b.rank);
    if (!say(to, line))
        fail(&b, "compare has gone");
    while (next_line(to, line, sizeof line)) {
        if (!parse(&b.set, line))
            fail(&b, "cannot do \"%s\"", line);
        double value = slice(&b);
        snprintf(line, sizeof line, "%.12g %llu %lu %lu %lu\n", value, (unsigned long long)b.done,
                 b.wrong, b.freed, b.came_back);
        if (!say(to, line))
            fail(&b, "compare has gone");
    }
    MPI_Finalize();
    return 0;
}
