// SPDX-License-Identifier: BSD-3-Clause
//
// The companion benchmark: measures as osu_latency, osu_bw and osu_bibw of OSU 7 measure and
// prints as they print, for machines without OSU, and adds what they lack: a choice of buffers
// per message, data that is not contiguous or sent by MPI_Bsend, and a content check of every
// message in both directions, for which each message of a window has a buffer of its own.
//
//   mpirun -n 2 companion latency|bw|bibw [options]
//
// Nothing but the exchange itself is timed: fresh buffers are mapped and filled, and contents
// stamped and checked, between the timed parts, behind a barrier.

#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "content.h"

#define MESSAGE_MAX ((size_t)1 << 30)
#define SLIDE_STEP 4096
#define LARGE_MESSAGE 8192               // above it, OSU does fewer iterations
#define CHECKED_MOST ((size_t)256 << 20) // bytes of the buffers of one kind
#define TAG_LATENCY 1
#define TAG_TO_1 100
#define TAG_TO_0 10
#define TAG_REPLY 101

enum mode { LATENCY, BW, BIBW };
enum buffers { SAME, ROTATE, SLIDE, FRESH, STRIDED, BUFFERED };

static const char *const test_name[] = {"Latency Test", "Bandwidth Test",
                                        "Bi-Directional Bandwidth Test"};

struct settings {
    enum mode mode;
    enum buffers buffers;
    const char *buffers_text;
    size_t places; // buffers to rotate over, or offsets to slide over, or bytes of a piece
    size_t min, max;
    int iterations, iterations_large, warmup, warmup_large;
    int window;
    bool check;
};

struct bench {
    struct settings set;
    int rank;
    size_t count; // buffers of each kind
    unsigned char **send, **receive;
    size_t mapped; // bytes of each buffer; 0: none mapped
    MPI_Request *send_request, *receive_request;
    MPI_Datatype type;   // a message of the size that is being measured is that many
    int items;           // … of that
    unsigned long wrong; // messages with wrong content, at this rank
};

static void fail(const struct bench *b, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "companion: rank %d: ", b->rank);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// ---- buffers ---------------------------------------------------------------------------------

static void map_all(struct bench *b, size_t bytes)
{
    for (size_t i = 0; i < b->count; i++) {
        int protection = PROT_READ | PROT_WRITE;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        b->send[i] = mmap(NULL, bytes, protection, flags, -1, 0);
        b->receive[i] = mmap(NULL, bytes, protection, flags, -1, 0);
        if (b->send[i] == MAP_FAILED || b->receive[i] == MAP_FAILED)
            fail(b, "cannot map %zu buffers of %zu bytes twice: %s", b->count, bytes,
                 strerror(errno));
    }
    b->mapped = bytes;
}

static void unmap_all(struct bench *b)
{
    for (size_t i = 0; i < b->count && b->mapped != 0; i++) {
        munmap(b->send[i], b->mapped);
        munmap(b->receive[i], b->mapped);
    }
    b->mapped = 0;
}

// How much further into its buffer than the first an iteration's messages begin. All of one
// iteration begin at the same place: ranges that overlap may not be received into at once.
static size_t offset_of(const struct bench *b, uint64_t iteration)
{
    return b->set.buffers == SLIDE ? (size_t)(iteration % b->set.places) * SLIDE_STEP : 0;
}

// Of a message in memory: with STRIDED, each piece is followed by as much that is not of it.
static size_t extent(const struct bench *b, size_t size)
{
    return b->set.buffers == STRIDED ? 2 * size : size;
}

static struct layout layout_of(const struct bench *b, size_t size)
{
    bool strided = b->set.buffers == STRIDED;
    return (struct layout){.size = size,
                           .piece = strided && b->set.places < size ? b->set.places : size,
                           .strided = strided};
}

// Bytes of a buffer for messages of that size.
static size_t buffer_bytes(const struct bench *b, size_t size)
{
    return extent(b, size) + (b->set.buffers == SLIDE ? (b->set.places - 1) * SLIDE_STEP : 0);
}

static void make_type(struct bench *b, size_t size)
{
    size_t piece = layout_of(b, size).piece;
    b->type = MPI_CHAR;
    b->items = (int)size;
    if (piece == size)
        return;
    if (size % piece != 0)
        fail(b, "messages of %zu bytes have no whole number of pieces of %zu bytes", size, piece);
    MPI_Type_vector((int)(size / piece), (int)piece, (int)(2 * piece), MPI_CHAR, &b->type);
    MPI_Type_commit(&b->type);
    b->items = 1;
}

// Which buffer the j-th message of an iteration uses; the same at both ends.
static size_t buffer_of(const struct bench *b, uint64_t iteration, int j)
{
    uint64_t window = b->set.mode == LATENCY ? 1 : (uint64_t)b->set.window;
    return (size_t)(iteration * window + (uint64_t)j) % b->count;
}

static unsigned char *place_of(const struct bench *b, unsigned char **buffers, uint64_t iteration,
                               int j)
{
    return buffers[buffer_of(b, iteration, j)] + offset_of(b, iteration);
}

// ---- contents --------------------------------------------------------------------------------

// What a receive buffer holds before a message of that iteration.
static unsigned char filling(uint64_t iteration)
{
    return (unsigned char)((iteration & 0x7f) | 0x80);
}

static int messages_of(const struct bench *b)
{
    return b->set.mode == LATENCY ? 1 : b->set.window;
}

// Brings the buffers into the state that an iteration wants, before its timed part.
static void prepare(struct bench *b, size_t size, uint64_t iteration)
{
    bool fresh = b->set.buffers == FRESH;
    if (!fresh && !b->set.check)
        return; // as OSU: nothing happens between iterations
    if (fresh) {
        unmap_all(b);
        map_all(b, size);
    }
    for (int j = 0; j < messages_of(b); j++) {
        size_t i = buffer_of(b, iteration, j);
        uint64_t seed = content_seed(b->rank, size, iteration, i);
        unsigned char *send = place_of(b, b->send, iteration, j);
        if (b->set.check)
            content_stamp(layout_of(b, size), send, seed);
        else
            memset(send, 'a', size);
        memset(place_of(b, b->receive, iteration, j), filling(iteration), extent(b, size));
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void check(struct bench *b, size_t size, uint64_t iteration)
{
    if (!b->set.check || (b->set.mode == BW && b->rank == 0))
        return;
    for (int j = 0; j < messages_of(b); j++) {
        size_t i = buffer_of(b, iteration, j);
        uint64_t seed = content_seed(!b->rank, size, iteration, i);
        size_t at = content_first_wrong(layout_of(b, size), place_of(b, b->receive, iteration, j),
                                        seed, filling(iteration));
        if (at == size)
            continue;
        if (b->wrong++ == 0)
            fprintf(stderr,
                    "companion: WRONG DATA: rank %d, size %zu, iteration %llu, message %d: first "
                    "wrong byte at %zu\n",
                    b->rank, size, (unsigned long long)iteration, j, at);
    }
}

// ---- the three exchanges; each returns the seconds of its timed part at rank 0 ----------------

static void send_one(struct bench *b, const unsigned char *send, int tag)
{
    if (b->set.buffers == BUFFERED)
        MPI_Bsend(send, b->items, b->type, !b->rank, tag, MPI_COMM_WORLD);
    else
        MPI_Send(send, b->items, b->type, !b->rank, tag, MPI_COMM_WORLD);
}

static double exchange_latency(struct bench *b, uint64_t iteration)
{
    unsigned char *send = place_of(b, b->send, iteration, 0);
    unsigned char *receive = place_of(b, b->receive, iteration, 0);
    int peer = !b->rank;
    double start = MPI_Wtime();
    if (b->rank == 0) {
        send_one(b, send, TAG_LATENCY);
        MPI_Recv(receive, b->items, b->type, peer, TAG_LATENCY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(receive, b->items, b->type, peer, TAG_LATENCY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        send_one(b, send, TAG_LATENCY);
    }
    return MPI_Wtime() - start;
}

static void start_receives(struct bench *b, uint64_t iteration)
{
    int tag = b->rank == 0 ? TAG_TO_0 : TAG_TO_1;
    for (int j = 0; j < b->set.window; j++)
        MPI_Irecv(place_of(b, b->receive, iteration, j), b->items, b->type, !b->rank, tag,
                  MPI_COMM_WORLD, &b->receive_request[j]);
}

static void start_sends(struct bench *b, uint64_t iteration)
{
    int tag = b->rank == 0 ? TAG_TO_1 : TAG_TO_0;
    for (int j = 0; j < b->set.window; j++) {
        const unsigned char *send = place_of(b, b->send, iteration, j);
        b->send_request[j] = MPI_REQUEST_NULL;
        if (b->set.buffers == BUFFERED)
            MPI_Bsend(send, b->items, b->type, !b->rank, tag, MPI_COMM_WORLD);
        else
            MPI_Isend(send, b->items, b->type, !b->rank, tag, MPI_COMM_WORLD, &b->send_request[j]);
    }
}

static double exchange_bw(struct bench *b, uint64_t iteration)
{
    char reply[4] = {0};
    double start = MPI_Wtime();
    if (b->rank == 0) {
        start_sends(b, iteration);
        MPI_Waitall(b->set.window, b->send_request, MPI_STATUSES_IGNORE);
        MPI_Recv(reply, sizeof reply, MPI_CHAR, 1, TAG_REPLY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        start_receives(b, iteration);
        MPI_Waitall(b->set.window, b->receive_request, MPI_STATUSES_IGNORE);
        MPI_Send(reply, sizeof reply, MPI_CHAR, 0, TAG_REPLY, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - start;
}

static double exchange_bibw(struct bench *b, uint64_t iteration)
{
    double start = MPI_Wtime();
    start_receives(b, iteration);
    start_sends(b, iteration);
    MPI_Waitall(b->set.window, b->send_request, MPI_STATUSES_IGNORE);
    MPI_Waitall(b->set.window, b->receive_request, MPI_STATUSES_IGNORE);
    return MPI_Wtime() - start;
}

// ---- one size, one line ----------------------------------------------------------------------

static void print_line(const struct bench *b, size_t size, double seconds, int iterations)
{
    double value;
    if (b->set.mode == LATENCY) {
        value = 1e6 * seconds / (2.0 * iterations);
    } else {
        double bytes = (double)size * b->set.window * iterations;
        value = (b->set.mode == BIBW ? 2 : 1) * bytes / 1e6 / seconds;
    }
    printf("%-10zu%18.2f", size, value);
    if (b->set.check)
        printf("%18s", b->wrong ? "Fail" : "Pass");
    printf("\n");
    fflush(stdout);
}

static void run_size(struct bench *b, size_t size)
{
    static double (*const exchange[])(struct bench *, uint64_t) = {exchange_latency, exchange_bw,
                                                                   exchange_bibw};
    bool large = size > LARGE_MESSAGE;
    int iterations = large ? b->set.iterations_large : b->set.iterations;
    int warmup = large ? b->set.warmup_large : b->set.warmup;
    double seconds = 0;

    make_type(b, size);
    for (size_t i = 0; i < b->count && b->set.buffers != FRESH; i++) {
        memset(b->send[i], 'a', buffer_bytes(b, size));
        memset(b->receive[i], 'b', buffer_bytes(b, size));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < warmup + iterations; i++) {
        prepare(b, size, (uint64_t)i);
        double one = exchange[b->set.mode](b, (uint64_t)i);
        if (i >= warmup)
            seconds += one;
        check(b, size, (uint64_t)i);
    }
    if (b->type != MPI_CHAR)
        MPI_Type_free(&b->type);
    if (b->set.check)
        MPI_Allreduce(MPI_IN_PLACE, &b->wrong, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (b->rank == 0)
        print_line(b, size, seconds, iterations);
}

// For all messages of two iterations: of the one before, some may still be on their way.
static void *attach(struct bench *b)
{
    size_t each = b->set.max + MPI_BSEND_OVERHEAD;
    size_t bytes = 2 * (size_t)messages_of(b) * each;
    void *memory = bytes <= INT_MAX ? malloc(bytes) : NULL;
    if (memory == NULL)
        fail(b, "cannot buffer %d messages of %zu bytes twice", messages_of(b), b->set.max);
    else
        MPI_Buffer_attach(memory, (int)bytes);
    return memory;
}

// To check every message, each of a window has a buffer of its own, where that is not too much
// memory: in one buffer, what the last message writes hides what the others did.
static size_t count_of(const struct bench *b)
{
    size_t window = (size_t)messages_of(b);
    size_t most = CHECKED_MOST / extent(b, b->set.max);
    if (b->set.buffers == ROTATE)
        return b->set.places;
    if (b->set.buffers == FRESH)
        return window;
    return !b->set.check || most <= 1 ? 1 : most < window ? most : window;
}

static int run(struct bench *b)
{
    size_t window = (size_t)messages_of(b);
    b->count = count_of(b);
    b->send = calloc(b->count, sizeof *b->send);
    b->receive = calloc(b->count, sizeof *b->receive);
    b->send_request = calloc(window, sizeof(MPI_Request));
    b->receive_request = calloc(window, sizeof(MPI_Request));
    if (!b->send || !b->receive || !b->send_request || !b->receive_request)
        fail(b, "out of memory");
    if (b->set.buffers != FRESH)
        map_all(b, buffer_bytes(b, b->set.max));
    void *attached = b->set.buffers == BUFFERED ? attach(b) : NULL;

    if (b->rank == 0) {
        printf("# regx companion MPI %s, buffers %s\n", test_name[b->set.mode],
               b->set.buffers_text);
        printf("%-10s%18s", "# Size", b->set.mode == LATENCY ? "Latency (us)" : "Bandwidth (MB/s)");
        if (b->set.check)
            printf("%18s", "Validation");
        printf("\n");
        fflush(stdout);
    }
    for (size_t size = b->set.min; size <= b->set.max && !b->wrong; size *= 2)
        run_size(b, size);

    if (attached != NULL) {
        int bytes;
        MPI_Buffer_detach(&attached, &bytes);
        free(attached);
    }
    unmap_all(b);
    free(b->send);
    free(b->receive);
    free(b->send_request);
    free(b->receive_request);
    return b->wrong ? 1 : 0;
}

// ---- the command line ------------------------------------------------------------------------

static const char usage[] =
    "usage: mpirun -n 2 companion latency|bw|bibw [options]\n"
    "  -m, --message-size [MIN:]MAX  sizes in bytes, doubled from MIN (1) to MAX (4194304)\n"
    "  -i, --iterations N            per size (latency 10000, 1000 above 8192 B; bw 100, 20)\n"
    "  -x, --warmup N                untimed iterations (latency 100, 10; bw 10, 2)\n"
    "  -W, --window-size N           messages in flight of bw and bibw (64)\n"
    "  -c, --validation              check the content of every message; those of a window then\n"
    "                                have a buffer each, up to 256 MiB of them\n"
    "  -b, --buffers same|fresh|rotate:N|slide:N|strided:N|buffered\n"
    "                                each message uses the one buffer (as OSU does), one freshly\n"
    "                                mapped and touched, the next of N, or the one buffer, each\n"
    "                                iteration from the next of N places 4 KiB apart; or pieces "
    "of\n"
    "                                N bytes, as far from each other, by a vector type; or the "
    "one\n"
    "                                buffer, by MPI_Bsend (default same)\n"
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
    else if (strcmp(text, "buffered") == 0)
        set->buffers = BUFFERED;
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

// Returns what is wrong and allowed, or NULL.
static const char *parse(int argc, char **argv, struct settings *set, bool *help)
{
    static const struct option options[] = {{"message-size", required_argument, NULL, 'm'},
                                            {"iterations", required_argument, NULL, 'i'},
                                            {"warmup", required_argument, NULL, 'x'},
                                            {"window-size", required_argument, NULL, 'W'},
                                            {"validation", no_argument, NULL, 'c'},
                                            {"buffers", required_argument, NULL, 'b'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    unsigned long n, iterations = 0, warmup = 0;
    bool own_iterations = false, own_warmup = false;
    *set = (struct settings){.buffers_text = "same", .min = 1, .max = 4u << 20, .window = 64};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "m:i:x:W:cb:h", options, NULL)) != -1;) {
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
        case 'b':
            if (!buffers(optarg, set))
                return "-b wants same, fresh, rotate:N, slide:N, strided:N or buffered; N is 1 to "
                       "1048576";
            break;
        case 'h':
            *help = true;
            return NULL;
        default:
            return "unknown option, or one without its value; see --help";
        }
    }
    const char *mode = optind == argc - 1 ? argv[optind] : "";
    if (strcmp(mode, "latency") == 0)
        set->mode = LATENCY;
    else if (strcmp(mode, "bw") == 0)
        set->mode = BW;
    else if (strcmp(mode, "bibw") == 0)
        set->mode = BIBW;
    else
        return "one test is wanted: latency, bw or bibw";

    bool latency = set->mode == LATENCY;
    set->iterations = own_iterations ? (int)iterations : latency ? 10000 : 100;
    set->iterations_large = own_iterations ? (int)iterations : latency ? 1000 : 20;
    set->warmup = own_warmup ? (int)warmup : latency ? 100 : 10;
    set->warmup_large = own_warmup ? (int)warmup : latency ? 10 : 2;
    return NULL;
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    int ranks, status = 2;
    bool help = false;
    const char *wrong = parse(argc, argv, &b.set, &help);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (wrong == NULL && !help && ranks != 2)
        wrong = "exactly two ranks are wanted (mpirun -n 2)";
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
