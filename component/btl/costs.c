/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "btl/costs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define FORMAT "3"
#define FILE_MAX 65536                   /* bytes */
#define COST_MAX UINT64_C(1000000000000) /* nanoseconds */
#define HEAD_MAX 80u                     /* bytes of a line of the head */

static const char *const neighbours[REGX_NEIGHBOURS] = {"l2", "l3", "package", "node", "any"};
static const char *const patterns[REGX_PATTERNS] = {"single", "touched", "stream", "exchange"};
/* In the order of a line. */
static const regx_path_t paths[REGX_COSTS_WAYS] = {REGX_PATH_eager, REGX_PATH_staged,
                                                   REGX_PATH_together, REGX_PATH_read};

/* Reads all of it into `text`, which is zero. false: `error` has what is wrong. */
static bool read_text(const char *name, char text[FILE_MAX + 2], regx_error_t error)
{
    /* A pipe that nobody writes would else keep this process. */
    const int fd = regx_descriptor_move(open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    const char *why = fd < 0 ? strerror(errno) : "it is no regular file";
    struct stat status;
    size_t length = 0;
    ssize_t got;

    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        while ((got = read(fd, text + length, FILE_MAX + 1 - length)) > 0) {
            length += (size_t)got;
        }
        why = got < 0 ? strerror(errno) : NULL;
        if (got >= 0 && length > FILE_MAX) {
            why = "it is longer than 64 KiB";
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    if (why != NULL) {
        snprintf(error, REGX_ERROR, "%s", why);
    }
    return why == NULL;
}

/* The vendor's name and the numbers of the first processor, with a blank between. Not its whole
 * name: a hypervisor makes that up. */
static void ask_processor(char *processor, size_t size)
{
    static const char *const keys[] = {"vendor_id",       "cpu family", "model\t",
                                       "CPU implementer", "CPU part",   "cpu\t"};
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    size_t used = 0;

    processor[0] = '\0';
    while (file != NULL && fgets(line, sizeof(line), file) != NULL && line[0] != '\n') {
        const char *value = strchr(line, ':');

        for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]) && value != NULL && value[1] == ' ';
             i++) {
            if (strncmp(line, keys[i], strlen(keys[i])) == 0 && used < size) {
                used +=
                    (size_t)snprintf(processor + used, size - used, "%s%.*s", used > 0 ? " " : "",
                                     (int)strcspn(value + 2, "\n"), value + 2);
            }
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* ---- lines ---- */

static const regx_param_t size_range = {.name = "size",
                                        .type = REGX_PARAM_SIZE,
                                        .min = REGX_COSTS_SMALLEST,
                                        .max = REGX_COSTS_SMALLEST << (REGX_COSTS_SIZES - 1),
                                        .size = sizeof(uint64_t)};
static const regx_param_t cost_range = {
    .name = "cost",
    .type = REGX_PARAM_NUMBER,
    .min = 1,
    .max = COST_MAX,
    .words = REGX_WORDS({.word = "-", .value = 0}), /* not measured */
    .size = sizeof(uint64_t)};

/* The number of a word among so many; as many: it is none of them. */
static unsigned number_of(const char *word, const char *const words[], unsigned count)
{
    unsigned number = 0;

    while (number < count && (word == NULL || strcmp(word, words[number]) != 0)) {
        number++;
    }
    return number;
}

/* "l3 64K stream 9000 8100 5200 7400". false: it is no such line, or there was one before. */
static bool read_costs(char *line, regx_costs_t *costs)
{
    regx_error_t error;
    uint64_t size;
    bool known = false;

    const unsigned neighbour = number_of(strsep(&line, " "), neighbours, REGX_NEIGHBOURS);
    if (neighbour == REGX_NEIGHBOURS ||
        !regx_param_read(&size_range, strsep(&line, " "), &size, error) ||
        (size & (size - 1)) != 0) {
        return false;
    }
    const unsigned pattern = number_of(strsep(&line, " "), patterns, REGX_PATTERNS);
    if (pattern == REGX_PATTERNS) {
        return false;
    }
    uint64_t *cost = costs->of[neighbour][__builtin_ctzll(size / REGX_COSTS_SMALLEST)][pattern];
    for (unsigned i = 0; i < REGX_COSTS_WAYS; i++) {
        if (cost[i] != 0 || !regx_param_read(&cost_range, strsep(&line, " "), &cost[i], error)) {
            return false;
        }
        known |= cost[i] != 0;
    }
    return line == NULL && known;
}

/* head: what it has to begin with. */
static bool read_lines(char *text, char *head, regx_costs_t *costs, regx_error_t error)
{
    char *line;

    for (unsigned number = 1; (line = strsep(&text, "\n")) != NULL; number++) {
        const char *wanted = strsep(&head, "\n");

        if (wanted != NULL && strcmp(line, wanted) != 0) {
            snprintf(error, REGX_ERROR, "line %u is not \"%s\", as it is here", number, wanted);
            return false;
        }
        if (wanted == NULL && strcmp(line, "end") == 0) {
            return true;
        }
        if (wanted == NULL && line[0] != '#' && !read_costs(line, costs)) {
            snprintf(error, REGX_ERROR,
                     "line %u; allowed: neighbour, size, pattern, and costs of "
                     "four ways (1 to %" PRIu64 " ns, or -), each once",
                     number, COST_MAX);
            return false;
        }
    }
    snprintf(error, REGX_ERROR, "it has no line \"end\"");
    return false;
}

bool regx_costs_read(const char *name, const char *processor, regx_costs_t *costs,
                     regx_error_t error)
{
    char head[HEAD_MAX] = "regx-costs " FORMAT "\nregx " PACKAGE_VERSION "\nprocessor ";
    const size_t used = strlen(head);
    regx_error_t why = "out of memory";
    char *text;
    bool read;

    memset(costs, 0, sizeof(*costs));
    if (name[0] == '\0') {
        return true;
    }
    if (processor != NULL) {
        snprintf(head + used, sizeof(head) - used, "%s", processor);
    } else {
        ask_processor(head + used, sizeof(head) - used);
    }
    text = calloc(1, FILE_MAX + 2);
    read = text != NULL && read_text(name, text, why) && read_lines(text, head, costs, why);
    free(text);
    if (!read) {
        memset(costs, 0, sizeof(*costs));
        regx_refuse(error, REGX_INVALID, REGX_PREFIX "costs=%.160s is ignored: %.180s", name, why);
    }
    return read;
}

/* ---- what the tuners are told ---- */

/* Bits: the ways that a sender of up to 32 KiB has, and those of a receiver of more. */
#define SENDS (1u << REGX_COSTS_EAGER | 1u << REGX_COSTS_READ)
#define RECEIVES (1u << REGX_COSTS_STAGED | 1u << REGX_COSTS_TOGETHER | 1u << REGX_COSTS_READ)

/* The least of those ways; 0: not even two were measured. */
static uint64_t least_of(const uint64_t costs[REGX_COSTS_WAYS], unsigned ways)
{
    uint64_t least = UINT64_MAX;
    unsigned measured = 0;

    for (unsigned i = 0; i < REGX_COSTS_WAYS; i++) {
        if ((ways >> i & 1) != 0 && costs[i] != 0) {
            least = regx_min(least, costs[i]);
            measured++;
        }
    }
    return measured > 1 ? least : 0;
}

/* Of those ways the one that loses least in the pattern in which it loses most. REGX_PATH_COUNT: it loses
 * too much, or of one of the patterns there was nothing to compare. */
static regx_path_t least_regret(const regx_costs_t *costs, regx_neighbour_t neighbour,
                                unsigned size, regx_pattern_t first, regx_pattern_t last,
                                unsigned ways)
{
    uint64_t worst[REGX_COSTS_WAYS] = {0}, least = REGX_TUNE_TOLD_MAX + 1;
    regx_path_t told = REGX_PATH_COUNT;

    for (unsigned pattern = first; pattern <= last; pattern++) {
        const uint64_t *own = costs->of[neighbour][size][pattern];
        const uint64_t *any = costs->of[REGX_NEIGHBOUR_ANY][size][pattern];
        const uint64_t *cost = least_of(own, ways) != 0 ? own : any;
        const uint64_t best = least_of(cost, ways);

        if (best == 0) {
            return REGX_PATH_COUNT;
        }
        for (unsigned i = 0; i < REGX_COSTS_WAYS; i++) {
            const uint64_t takes = cost[i] != 0 ? cost[i] * 100 / best : UINT64_MAX;

            worst[i] = regx_max(worst[i], takes);
        }
    }
    for (unsigned i = 0; i < REGX_COSTS_WAYS; i++) {
        if ((ways >> i & 1) != 0 && worst[i] != 0 && worst[i] < least) {
            least = worst[i];
            told = paths[i];
        }
    }
    return told;
}

static uint8_t sender_of(regx_path_t path)
{
    if (path == REGX_PATH_COUNT) {
        return REGX_TUNE_UNTOLD;
    }
    return path == REGX_PATH_eager ? REGX_EAGER_SEND : REGX_EAGER_RENDEZVOUS;
}

void regx_costs_tell(const regx_costs_t *costs, regx_neighbour_t neighbour, regx_eager_t *eager,
                     regx_rndv_t *rndv)
{
    for (unsigned i = 0; i < REGX_COSTS_SIZES; i++) {
        const bool sends = i < REGX_EAGER_SIZES;
        const unsigned ways = sends ? SENDS : RECEIVES;
        const regx_path_t fastest[REGX_TRAFFICS] = {
            [REGX_TRAFFIC_SINGLE] =
                least_regret(costs, neighbour, i, REGX_PATTERN_SINGLE, REGX_PATTERN_TOUCHED, ways),
            /* A sender does not know whether its receiver sends, too. */
            [REGX_TRAFFIC_STREAM] =
                least_regret(costs, neighbour, i, REGX_PATTERN_STREAM,
                             sends ? REGX_PATTERN_EXCHANGE : REGX_PATTERN_STREAM, ways),
            [REGX_TRAFFIC_EXCHANGE] = sends
                                          ? REGX_PATH_COUNT
                                          : least_regret(costs, neighbour, i, REGX_PATTERN_EXCHANGE,
                                                         REGX_PATTERN_EXCHANGE, ways)};

        if (sends) {
            regx_eager_tell(eager, i, sender_of(fastest[REGX_TRAFFIC_SINGLE]),
                            sender_of(fastest[REGX_TRAFFIC_STREAM]));
        } else {
            regx_rndv_tell(rndv, REGX_COSTS_SMALLEST << i, fastest);
        }
    }
}
