/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "btl/eager.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define FORMAT "2"
#define FILE_MAX 65536                   /* bytes */
#define COST_MAX UINT64_C(1000000000000) /* nanoseconds */
#define HEAD_MAX 80u                     /* bytes of a line of the head */
/* So many times as fast as eager a rendezvous has to be for the sender to begin with it. Below that it depends on
 * the pattern: 16 KiB, on two cores of a Xeon, took 0.55 of eager's time as a single message, but 1.6 times as
 * long in a stream and in an allreduce. */
#define CLEAR 2u

static const char *const neighbours[REGX_NEIGHBOURS] = {"l2", "l3", "package", "node", "any"};
/* In the order of a line. */
static const regx_path_t paths[] = {REGX_PATH_eager, REGX_PATH_staged, REGX_PATH_together,
                                    REGX_PATH_read};

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
        why = got < 0 ? strerror(errno) : length > FILE_MAX ? "it is longer than 64 KiB" : NULL;
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
static const regx_param_t cost_range = {.name = "cost",
                                        .type = REGX_PARAM_NUMBER,
                                        .min = 1,
                                        .max = COST_MAX,
                                        .words = REGX_WORDS({.word = "-", .value = UINT64_MAX}),
                                        .size = sizeof(uint64_t)};

/* "l3 64K 9000 8100 5200 7400": which way is the fastest. false: it is no such line, or its
 * neighbour and size had one before. */
static bool read_costs(char *line, regx_costs_t *costs)
{
    uint64_t size, cost, least = UINT64_MAX, eager = UINT64_MAX;
    regx_path_t fastest = REGX_PATH_COUNT;
    const char *word = strsep(&line, " ");
    regx_error_t error;
    unsigned of = 0;

    while (of < REGX_NEIGHBOURS && strcmp(word, neighbours[of]) != 0) {
        of++;
    }
    if (of == REGX_NEIGHBOURS || !regx_param_read(&size_range, strsep(&line, " "), &size, error) ||
        (size & (size - 1)) != 0) {
        return false;
    }
    for (unsigned i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (!regx_param_read(&cost_range, strsep(&line, " "), &cost, error)) {
            return false;
        }
        if (paths[i] == REGX_PATH_eager) {
            eager = cost;
        } else if (cost < least && (size > REGX_AUTO_SHORT || paths[i] == REGX_PATH_read)) {
            least = cost;
            fastest = paths[i];
        }
    }
    regx_best_t *best = &costs->best[of][__builtin_ctzll(size / REGX_COSTS_SMALLEST)];

    if (line != NULL || best->known || regx_min(eager, least) == UINT64_MAX) {
        return false;
    }
    *best = (regx_best_t){.known = true,
                          .clear = regx_max(eager, least) != UINT64_MAX &&
                                   (eager < least || CLEAR * least <= eager),
                          .eager = eager < least,
                          .rendezvous = fastest};
    return true;
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
                     "line %u; allowed: neighbour, size, and costs of four ways (1 to %" PRIu64
                     " ns, or -), each size once",
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

void regx_costs_tell(const regx_costs_t *costs, regx_neighbour_t neighbour, regx_eager_t *eager,
                     regx_rndv_t *rndv)
{
    for (unsigned i = 0; i < REGX_COSTS_SIZES; i++) {
        const regx_best_t *own = &costs->best[neighbour][i];
        const regx_best_t *best = own->known ? own : &costs->best[REGX_NEIGHBOUR_ANY][i];

        if (best->clear && i < REGX_EAGER_SIZES) {
            regx_eager_tell(eager, i, best->eager ? REGX_EAGER_SEND : REGX_EAGER_RENDEZVOUS);
        }
        if (best->known && REGX_COSTS_SMALLEST << i > REGX_AUTO_SHORT) {
            regx_rndv_tell(rndv, REGX_COSTS_SMALLEST << i, best->rendezvous);
        }
    }
}
