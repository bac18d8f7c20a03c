// SPDX-License-Identifier: BSD-3-Clause
//
// The companion benchmark: measures as osu_latency, osu_bw and osu_bibw of OSU 7 measure and
// prints as they print, for machines without OSU, and adds what they lack: a choice of buffers
// per message, percentiles, exchanges of more than two ranks, and a content check of every message
// in both directions, for which each message of a window has a buffer of its own.
//
//   mpirun -n 2 companion latency|bw|bibw|percentiles [options]
//   mpirun -n N companion sendrecv|halo [options]
//
// Nothing but the exchange itself is timed: fresh buffers are mapped and filled, and contents
// stamped and checked, between the timed parts, behind a barrier. Only "touched" buffers are
// written and read within the timed part.
//
// This file is the command line, the exchanges and the loop over sizes; benchmark/ has the rest.

#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "benchmark/bench.h"

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

// ---- the exchanges, as osu_latency, osu_bw and osu_bibw make them; each returns its seconds

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

static double exchange_latency(struct bench *b, size_t size, uint64_t iteration)
{
    double start = MPI_Wtime();
    if (b->rank == 0)
        send_one(b, size, iteration);
    receive_one(b, size, iteration);
    if (b->rank == 1)
        send_one(b, size, iteration);
    return MPI_Wtime() - start;
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

static double exchange_bw(struct bench *b, size_t size, uint64_t iteration)
{
    char reply[4] = {0};
    double start = MPI_Wtime();
    if (b->rank == 0) {
        send_all(b, size, iteration);
        MPI_Recv(reply, sizeof reply, MPI_CHAR, 1, TAG_REPLY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        start_receives(b, size, iteration);
        finish_receives(b, size, iteration);
        MPI_Send(reply, sizeof reply, MPI_CHAR, 0, TAG_REPLY, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - start;
}

static double exchange_bibw(struct bench *b, size_t size, uint64_t iteration)
{
    double start = MPI_Wtime();
    start_receives(b, size, iteration);
    send_all(b, size, iteration);
    finish_receives(b, size, iteration);
    return MPI_Wtime() - start;
}

static const struct test {
    const char *name, *title, *columns;
    double (*exchange)(struct bench *, size_t, uint64_t);
    int iterations[2], warmup[2]; // of small and of large messages, as OSU has them
} tests[MODES] = {
    [LATENCY] =
        {"latency", "Latency Test", "Latency (us)", exchange_latency, {10000, 1000}, {100, 10}},
    [BW] = {"bw", "Bandwidth Test", "Bandwidth (MB/s)", exchange_bw, {100, 20}, {10, 2}},
    [BIBW] = {"bibw",
              "Bi-Directional Bandwidth Test",
              "Bandwidth (MB/s)",
              exchange_bibw,
              {100, 20},
              {10, 2}},
    [PERCENTILES] = {"percentiles",
                     "Latency Test",
                     "p50 (us)          p99 (us)        p99.9 (us)",
                     exchange_latency,
                     {20000, 2000},
                     {100, 10}},
    [SENDRECV] = {"sendrecv",
                  "Sendrecv around a ring",
                  "Latency (us)",
                  exchange_sendrecv,
                  {10000, 1000},
                  {100, 10}},
    [HALO] = {"halo",
              "Halo exchange on a torus",
              "Latency (us)",
              exchange_halo,
              {10000, 1000},
              {100, 10}}};

static bool has_window(enum mode mode)
{
    return mode == BW || mode == BIBW;
}

static bool is_for_groups(enum mode mode)
{
    return mode == SENDRECV || mode == HALO;
}

// ---- one size, one line

static double value_of(const struct bench *b, size_t size, double seconds, int iterations)
{
    if (!has_window(b->set.mode))
        return 1e6 * seconds / iterations;
    double messages = (b->set.mode == BIBW ? 2.0 : 1.0) * b->set.window * iterations;
    return (double)size * messages / 1e6 / seconds;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The smallest one-way time that this share of all does not exceed: a mean hides a stall that comes
// once in a while.
static double percentile(const double *sorted, int count, double share)
{
    return 1e6 * sorted[(int)(share * (count - 1) + 0.5)];
}

static void print_line(const struct bench *b, size_t size, double *times, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += times[i];
    if (b->set.mode == PERCENTILES) {
        qsort(times, (size_t)count, sizeof *times, compare_doubles);
        printf("%-10zu%18.3f%18.3f%18.3f", size, percentile(times, count, 0.5),
               percentile(times, count, 0.99), percentile(times, count, 0.999));
    } else {
        printf("%-10zu%18.2f", size, value_of(b, size, sum, count));
    }
    printf(b->set.check ? "%18s\n" : "\n", b->wrong ? "Fail" : "Pass");
    fflush(stdout);
}

// Of both ranks and all iterations of a size, as a comment: it is not OSU's.
static void print_freed(struct bench *b)
{
    unsigned long mine[] = {b->came_back, b->freed}, all[2];

    MPI_Reduce(mine, all, 2, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (b->rank == 0)
        printf("# came back with its pages: %lu of %lu buffers\n", all[0], all[1]);
    b->came_back = b->freed = 0;
}

static void run_size(struct bench *b, size_t size)
{
    bool large = size > LARGE_MESSAGE;
    int iterations = b->set.iterations[large], warmup = b->set.warmup[large];
    double *times = calloc((size_t)iterations, sizeof *times);

    if (times == NULL)
        fail(b, "out of memory");
    begin_size(b, size);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = -warmup; i < iterations; i++) {
        uint64_t iteration = (uint64_t)(i + warmup);
        prepare(b, size, iteration);
        double one = tests[b->set.mode].exchange(b, size, iteration);
        if (i >= 0)
            times[i] = tests[b->set.mode].exchange == exchange_latency ? one / 2 : one;
        check(b, size, iteration);
    }
    if (b->set.check)
        MPI_Allreduce(MPI_IN_PLACE, &b->wrong, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (b->rank == 0)
        print_line(b, size, times, iterations);
    if (b->set.buffers == FREED)
        print_freed(b);
    free(times);
}

static int run(struct bench *b)
{
    const struct test *test = &tests[b->set.mode];
    if (b->set.mode == HALO)
        find_neighbours(b);
    open_buffers(b);
    if (b->rank == 0)
        printf("# regx companion MPI %s, buffers %s\n%-10s%18s%s\n", test->title,
               b->set.buffers_text, "# Size", test->columns,
               b->set.check ? "        Validation" : "");
    for (size_t size = b->set.min; size <= b->set.max && !b->wrong; size *= 2)
        run_size(b, size);
    close_buffers(b);
    return b->wrong ? 1 : 0;
}

// ---- the command line ------------------------------------------------------------------------

static const char usage[] =
    "usage: mpirun -n 2 companion latency|bw|bibw|percentiles [options]\n"
    "       mpirun -n N companion sendrecv|halo [options]\n"
    "  sendrecv      each rank sends to the next of a ring and receives from the one before\n"
    "  halo          each rank exchanges four sides with its neighbours on a torus\n"
    "  -m [MIN:]MAX  sizes in bytes, doubled from MIN (1) to MAX (4194304)\n"
    "  -i N          iterations of each size (10000, 1000 above 8192 B; percentiles 20000, 2000;\n"
    "                bw, bibw 100, 20)\n"
    "  -x N          untimed iterations before them (bw, bibw 10, 2; others 100, 10)\n"
    "  -W N          messages in flight of bw and bibw (64)\n"
    "  -c            check the content of every message; those of a window then have a buffer\n"
    "                each, up to 256 MiB of them\n"
    "  -b KIND       each message uses the one buffer (same, as OSU does), one freshly mapped\n"
    "                (fresh), one that malloc gives after the last one was freed (freed), the "
    "next\n"
    "                of N (rotate:N), the one buffer, each iteration from the next of N places 4 "
    "KiB\n"
    "                apart (slide:N), or one that is written before each message and read after "
    "it,\n"
    "                in the timed part (touched)\n"
    "  -o            buffers of MPI_Alloc_mem instead of the program's own\n"
    "  -h\n";

// What an option of a number wants, if its text is none.
static const char *number(const char *text, const char *wants, int min, int max, int value[2])
{
    char rest;
    long long n;
    if (sscanf(text, "%lld%c", &n, &rest) != 1 || n < min || n > max)
        return wants;
    value[0] = value[1] = (int)n;
    return NULL;
}

static bool range(const char *text, size_t *min, size_t *max)
{
    char rest;
    if (strchr(text, '-') != NULL ||
        (sscanf(text, "%zu:%zu%c", min, max, &rest) != 2 && sscanf(text, "%zu%c", max, &rest) != 1))
        return false;
    return *min >= 1 && *min <= *max && *max <= MESSAGE_MAX;
}

static bool buffers(const char *text, struct settings *set)
{
    static const char *const names[] = {"same", "rotate:", "slide:", "fresh", "freed", "touched"};
    int n[2] = {1};
    for (enum buffers kind = SAME; kind <= TOUCHED; kind++) {
        size_t length = strlen(names[kind]);
        bool counted = names[kind][length - 1] == ':';
        if (strncmp(text, names[kind], length) == 0 &&
            (counted ? number(text + length, "", 1, 1 << 20, n) == NULL : text[length] == 0)) {
            set->buffers = kind;
            set->buffers_text = text;
            set->places = (size_t)n[0];
            return true;
        }
    }
    return false;
}

// What does not go together, or NULL.
static const char *contradiction(const struct settings *set)
{
    if (set->mode == PERCENTILES && set->iterations[1] < 1000)
        return "percentiles want 1000 iterations or more: one in a thousand is asked for";
    if (set->mode == PERCENTILES && set->check)
        return "percentiles check no contents; latency moves the same messages, and does";
    if (set->buffers == FREED && set->owned)
        return "freed buffers are malloc's, not MPI_Alloc_mem's";
    if (is_for_groups(set->mode) && set->buffers != SAME &&
        !(set->mode == SENDRECV && set->buffers == TOUCHED))
        return "sendrecv has buffers same or touched, halo has same";
    if (set->buffers == FREED && set->min < FREED_MIN)
        return "freed buffers are marked, and want messages of 64 bytes or more";
    return NULL;
}

// Returns what is wrong and allowed, or NULL.
static const char *parse(int argc, char **argv, struct settings *set, bool *help)
{
    int window[2] = {64}, iterations[2] = {-1}, warmup[2] = {-1};
    const char *wrong = NULL, *name;
    *set = (struct settings){.buffers_text = "same", .min = 1, .max = 4u << 20};
    opterr = 0;
    for (int option; (option = getopt(argc, argv, "m:i:x:W:cb:oh")) != -1;) {
        if (option == 'h')
            *help = true;
        else if (option == 'c')
            set->check = true;
        else if (option == 'o')
            set->owned = true;
        else if (option == 'i')
            wrong =
                number(optarg, "-i wants a number from 1 to 100000000", 1, 100000000, iterations);
        else if (option == 'x')
            wrong = number(optarg, "-x wants a number from 0 to 100000000", 0, 100000000, warmup);
        else if (option == 'W')
            wrong = number(optarg, "-W wants a number from 1 to 65536", 1, 65536, window);
        else if (option == 'm' && !range(optarg, &set->min, &set->max))
            wrong = "-m wants [MIN:]MAX with 1 <= MIN <= MAX <= 1073741824 bytes";
        else if (option == 'b' && !buffers(optarg, set))
            wrong = "-b wants same, fresh, freed, rotate:N, slide:N or touched; N is 1 to 1048576";
        else if (option == '?')
            wrong = "unknown option, or one without its value; see -h";
        if (wrong != NULL || *help)
            return wrong;
    }
    name = optind == argc - 1 ? argv[optind] : "";
    while (set->mode < MODES && strcmp(name, tests[set->mode].name) != 0)
        set->mode++;
    if (set->mode == MODES)
        return "one test is wanted: latency, bw, bibw, percentiles, sendrecv or halo";
    const struct test *test = &tests[set->mode];
    set->window = has_window(set->mode) ? window[0] : set->mode == HALO ? DIRECTIONS : 1;
    for (int large = 0; large < 2; large++) {
        set->iterations[large] = iterations[0] < 0 ? test->iterations[large] : iterations[0];
        set->warmup[large] = warmup[0] < 0 ? test->warmup[large] : warmup[0];
    }
    return contradiction(set);
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    int status = 2;
    bool help = false;
    const char *wrong = parse(argc, argv, &b.set, &help);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.ranks);
    if (wrong == NULL && !help && b.ranks != 2 && !(is_for_groups(b.set.mode) && b.ranks > 2))
        wrong = is_for_groups(b.set.mode) ? "two ranks or more are wanted (mpirun -n 2)"
                                          : "exactly two ranks are wanted (mpirun -n 2)";
    if (wrong == NULL && !help)
        status = run(&b);
    else if (b.rank == 0)
        fprintf(help ? stdout : stderr, help ? "%s" : "companion: %s\n", help ? usage : wrong);
    MPI_Finalize();
    return help ? 0 : status;
}
