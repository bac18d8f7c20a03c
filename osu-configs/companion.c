// SPDX-License-Identifier: BSD-3-Clause
//
// The companion benchmark: measures as osu_latency, osu_bw and osu_bibw of OSU 7 measure and
// prints as they print, for machines without OSU, and adds what they lack: a choice of buffers
// per message, data that is not contiguous or sent by MPI_Bsend, percentiles, exchanges of more
// than two ranks, and a content check of every message in both directions, for which each message
// of a window has a buffer of its own.
//
//   mpirun -n 2 companion latency|bw|bibw|percentiles [options]
//   mpirun -n N companion sendrecv|halo|incast [options]
//
// Nothing but the exchange itself is timed: fresh buffers are mapped and filled, and contents
// stamped and checked, between the timed parts, behind a barrier. Only "touched" buffers are
// written and read within the timed part.
//
// This file is the command line and the loop over sizes; benchmark/ has the rest.

#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmark/bench.h"

struct test {
    const char *name, *title, *column;
    double (*exchange)(struct bench *, uint64_t);
    int iterations, iterations_large, warmup, warmup_large; // as OSU has them
};

static const struct test tests[] = {
    [LATENCY] = {"latency", "Latency Test", "Latency (us)", exchange_latency, 10000, 1000, 100, 10},
    [BW] = {"bw", "Bandwidth Test", "Bandwidth (MB/s)", exchange_bw, 100, 20, 10, 2},
    [BIBW] = {"bibw", "Bi-Directional Bandwidth Test", "Bandwidth (MB/s)", exchange_bibw, 100, 20,
              10, 2},
    [PERCENTILES] = {"percentiles", "Latency Test, percentiles", NULL, exchange_latency, 20000,
                     2000, 100, 10},
    [SENDRECV] = {"sendrecv", "Sendrecv around a ring", "Latency (us)", exchange_sendrecv, 10000,
                  1000, 100, 10},
    [HALO] = {"halo", "Halo exchange on a torus", "Latency (us)", exchange_halo, 10000, 1000, 100,
              10},
    [INCAST] = {"incast", "Many to one, Bandwidth Test", "Bandwidth (MB/s)", exchange_incast, 100,
                20, 10, 2}};

#define TESTS (sizeof tests / sizeof tests[0])

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

// ---- one size, one line ----------------------------------------------------------------------

// All messages that an iteration's bandwidth is of.
static double messages_of(const struct bench *b)
{
    switch (b->set.mode) {
    case BIBW:
        return 2.0 * b->set.window;
    case INCAST:
        return (double)(b->ranks - 1) * b->set.window;
    default:
        return b->set.window;
    }
}

static double value_of(const struct bench *b, size_t size, double seconds, int iterations)
{
    switch (b->set.mode) {
    case LATENCY:
        return 1e6 * seconds / (2.0 * iterations);
    case SENDRECV:
    case HALO:
        return 1e6 * seconds / iterations;
    default:
        return (double)size * messages_of(b) * iterations / 1e6 / seconds;
    }
}

static void print_line(const struct bench *b, size_t size, double seconds, int iterations)
{
    printf("%-10zu%18.2f", size, value_of(b, size, seconds, iterations));
    if (b->set.check)
        printf("%18s", b->wrong ? "Fail" : "Pass");
    printf("\n");
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
    const struct test *test = &tests[b->set.mode];
    bool large = size > LARGE_MESSAGE, percentiles = b->set.mode == PERCENTILES;
    int iterations = large ? b->set.iterations_large : b->set.iterations;
    int warmup = large ? b->set.warmup_large : b->set.warmup;
    double seconds = 0, *times = NULL;

    if (percentiles && (times = calloc((size_t)iterations, sizeof *times)) == NULL)
        fail(b, "out of memory");
    begin_size(b, size);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < warmup + iterations; i++) {
        prepare(b, size, (uint64_t)i);
        double one = test->exchange(b, (uint64_t)i);
        if (i >= warmup)
            seconds += one;
        if (i >= warmup && times != NULL)
            times[i - warmup] = one / 2;
        check(b, size, (uint64_t)i);
    }
    end_size(b);
    if (b->set.check)
        MPI_Allreduce(MPI_IN_PLACE, &b->wrong, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (b->rank == 0 && percentiles)
        print_percentiles(size, times, iterations);
    else if (b->rank == 0)
        print_line(b, size, seconds, iterations);
    if (b->set.buffers == FREED)
        print_freed(b);
    free(times);
}

static void print_header(const struct bench *b)
{
    const struct test *test = &tests[b->set.mode];
    printf("# regx companion MPI %s, buffers %s\n", test->title, b->set.buffers_text);
    if (b->set.mode == PERCENTILES) {
        print_percentiles_header();
    } else {
        printf("%-10s%18s", "# Size", test->column);
        if (b->set.check)
            printf("%18s", "Validation");
        printf("\n");
    }
    fflush(stdout);
}

static int run(struct bench *b)
{
    b->part = part_of(b);
    open_buffers(b);
    if (b->rank == 0)
        print_header(b);
    for (size_t size = b->set.min; size <= b->set.max && !b->wrong; size *= 2)
        run_size(b, size);
    close_buffers(b);
    return b->wrong ? 1 : 0;
}

// ---- the command line ------------------------------------------------------------------------

static const char usage[] =
    "usage: mpirun -n 2 companion latency|bw|bibw|percentiles [options]\n"
    "       mpirun -n N companion sendrecv|halo|incast [options]\n"
    "  percentiles  of single one-way times\n"
    "  sendrecv     each rank sends to the next of a ring and receives from the one before\n"
    "  halo         each rank exchanges rows and columns with its neighbours on a torus\n"
    "  incast       all ranks but the first send to the first\n"
    "  -m, --message-size [MIN:]MAX  sizes in bytes, doubled from MIN (1) to MAX (4194304)\n"
    "  -i, --iterations N            per size (latency, sendrecv, halo 10000, 1000 above 8192 B;\n"
    "                                percentiles 20000, 2000; bw, bibw, incast 100, 20)\n"
    "  -x, --warmup N                untimed iterations (those with windows 10, 2; others 100, "
    "10)\n"
    "  -W, --window-size N           messages in flight of bw, bibw and each sender of incast "
    "(64)\n"
    "  -c, --validation              check the content of every message; those of a window then\n"
    "                                have a buffer each, up to 256 MiB of them\n"
    "  -b, --buffers same|fresh|freed|rotate:N|slide:N|strided:N|buffered|touched\n"
    "                                each message uses the one buffer (as OSU does), one freshly\n"
    "                                mapped and touched, one that malloc gives after the last one\n"
    "                                was freed, the next of N, or the one buffer, each\n"
    "                                iteration from the next of N places 4 KiB apart; or pieces "
    "of\n"
    "                                N bytes, as far from each other, by a vector type; or the "
    "one\n"
    "                                buffer, by MPI_Bsend; or one that is written before each\n"
    "                                message and read after it, in the timed part (default same)\n"
    "  -o, --owned                   buffers of MPI_Alloc_mem instead of the program's own\n"
    "  -h, --help\n";

static bool number(const char *text, unsigned long min, unsigned long max, unsigned long *value)
{
    char *end;
    errno = 0;
    *value = strtoul(text, &end, 10);
    return errno == 0 && end != text && *end == 0 && strchr(text, '-') == NULL && *value >= min &&
           *value <= max;
}

static bool range(const char *text, size_t *min, size_t *max)
{
    char copy[64];
    unsigned long first, last;
    if (strlen(text) >= sizeof copy)
        return false;
    strcpy(copy, text);
    char *colon = strchr(copy, ':');
    if (colon == NULL)
        return number(copy, 1, MESSAGE_MAX, &last) && (*max = last) >= *min;
    *colon = 0;
    if (!number(copy, 1, MESSAGE_MAX, &first) || !number(colon + 1, first, MESSAGE_MAX, &last))
        return false;
    *min = first;
    *max = last;
    return true;
}

static bool buffers(const char *text, struct settings *set)
{
    unsigned long n = 1;
    set->buffers_text = text;
    if (strcmp(text, "same") == 0)
        set->buffers = SAME;
    else if (strcmp(text, "fresh") == 0)
        set->buffers = FRESH;
    else if (strcmp(text, "freed") == 0)
        set->buffers = FREED;
    else if (strcmp(text, "buffered") == 0)
        set->buffers = BUFFERED;
    else if (strcmp(text, "touched") == 0)
        set->buffers = TOUCHED;
    else if (strncmp(text, "strided:", 8) == 0 && number(text + 8, 1, 1u << 20, &n))
        set->buffers = STRIDED;
    else if (strncmp(text, "rotate:", 7) == 0 && number(text + 7, 1, 1u << 20, &n))
        set->buffers = ROTATE;
    else if (strncmp(text, "slide:", 6) == 0 && number(text + 6, 1, 1u << 20, &n))
        set->buffers = SLIDE;
    else
        return false;
    set->places = n;
    return true;
}

// What does not go together, or NULL.
static const char *contradiction(const struct settings *set)
{
    bool touched = set->buffers == TOUCHED, same = set->buffers == SAME;
    if (set->mode == PERCENTILES && set->iterations_large < TAIL_WINDOW)
        return "percentiles want 1000 iterations or more: one in a thousand is asked for";
    if (set->mode == PERCENTILES && set->check)
        return "percentiles check no contents; latency moves the same messages, and does";
    if (is_for_groups(set->mode) && !same && !(touched && set->mode != HALO))
        return "sendrecv and incast have buffers same or touched, halo has same";
    if (set->buffers == FREED && set->owned)
        return "freed buffers are malloc's, not MPI_Alloc_mem's";
    if (set->buffers == FREED && set->min < FREED_MIN)
        return "freed buffers are marked, and want messages of 64 bytes or more";
    return NULL;
}

// Returns what is wrong and allowed, or NULL.
static const char *parse(int argc, char **argv, struct settings *set, bool *help)
{
    static const struct option options[] = {{"message-size", required_argument, NULL, 'm'},
                                            {"iterations", required_argument, NULL, 'i'},
                                            {"warmup", required_argument, NULL, 'x'},
                                            {"window-size", required_argument, NULL, 'W'},
                                            {"validation", no_argument, NULL, 'c'},
                                            {"buffers", required_argument, NULL, 'b'},
                                            {"owned", no_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    unsigned long n, iterations = 0, warmup = 0;
    bool own_iterations = false, own_warmup = false;
    *set = (struct settings){.buffers_text = "same", .min = 1, .max = 4u << 20, .window = 64};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "m:i:x:W:cb:oh", options, NULL)) != -1;) {
        switch (option) {
        case 'm':
            if (!range(optarg, &set->min, &set->max))
                return "-m wants [MIN:]MAX with 1 <= MIN <= MAX <= 1073741824 bytes";
            break;
        case 'i':
            if (!(own_iterations = number(optarg, 1, 100000000, &iterations)))
                return "-i wants a number from 1 to 100000000";
            break;
        case 'x':
            if (!(own_warmup = number(optarg, 0, 100000000, &warmup)))
                return "-x wants a number from 0 to 100000000";
            break;
        case 'W':
            if (!number(optarg, 1, 65536, &n))
                return "-W wants a number from 1 to 65536";
            set->window = (int)n;
            break;
        case 'c':
            set->check = true;
            break;
        case 'o':
            set->owned = true;
            break;
        case 'b':
            if (!buffers(optarg, set))
                return "-b wants same, fresh, freed, rotate:N, slide:N, strided:N, buffered or "
                       "touched; N is 1 to 1048576";
            break;
        case 'h':
            *help = true;
            return NULL;
        default:
            return "unknown option, or one without its value; see --help";
        }
    }
    const char *name = optind == argc - 1 ? argv[optind] : "";
    size_t mode = 0;
    while (mode < TESTS && strcmp(name, tests[mode].name) != 0)
        mode++;
    if (mode == TESTS)
        return "one test is wanted: latency, bw, bibw, percentiles, sendrecv, halo or incast";
    const struct test *test = &tests[mode];
    set->mode = (enum mode)mode;
    set->iterations = own_iterations ? (int)iterations : test->iterations;
    set->iterations_large = own_iterations ? (int)iterations : test->iterations_large;
    set->warmup = own_warmup ? (int)warmup : test->warmup;
    set->warmup_large = own_warmup ? (int)warmup : test->warmup_large;
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
    bool group = is_for_groups(b.set.mode);
    if (wrong == NULL && !help && !group && b.ranks != 2)
        wrong = "exactly two ranks are wanted (mpirun -n 2)";
    if (wrong == NULL && !help && group && b.ranks < 2)
        wrong = "two ranks or more are wanted (mpirun -n 2)";
    if (help) {
        status = 0;
        if (b.rank == 0)
            fputs(usage, stdout);
    } else if (wrong != NULL) {
        if (b.rank == 0)
            fprintf(stderr, "companion: %s\n", wrong);
    } else {
        status = run(&b);
    }
    MPI_Finalize();
    return status;
}
