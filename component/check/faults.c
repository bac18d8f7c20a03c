/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Faults, as they are found: named by their stacks, counted, and told once.
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "check/check.h"

enum { OWN_FRAMES = 12, PATTERNS = 64, PATTERN = 200, LIMIT = 100 };

regx_check_sum_t *regx_check_sum;

static struct {
    bool shared, stops;
    int rank;
    uint64_t limit;
    int64_t start_ns;
    int pattern_count;
    char patterns[PATTERNS][PATTERN];
} settings;

/* ---- stacks ---- */

/* Of this library, by the linker. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static bool is_own(const void *frame)
{
    return (const char *)frame >= __ehdr_start && (const char *)frame < _end;
}

void regx_check_stack_take(regx_check_stack_t *stack, const void *behind)
{
    void *frames[REGX_CHECK_FRAMES + OWN_FRAMES];
    const int count = backtrace(frames, REGX_CHECK_FRAMES + OWN_FRAMES);
    int first = 0;

    while (behind != NULL && first < count && frames[first] != behind) {
        first++;
    }
    if (first == count) {
        first = 0;
    }
    while (first < count && is_own(frames[first])) {
        first++;
    }
    stack->count = (int)regx_min((uint64_t)(count - first), REGX_CHECK_FRAMES);
    memcpy(stack->frames, frames + first, (size_t)stack->count * sizeof(frames[0]));
}

/* "what in inner < outer < …"; of functions that have no name, the file and the offset. */
static void name_stack(char text[REGX_CHECK_TEXT], const char *what,
                       const regx_check_stack_t *stack)
{
    size_t at = (size_t)snprintf(text, REGX_CHECK_TEXT, "%s", what);

    for (int i = 0; i < stack->count && at < REGX_CHECK_TEXT - 1; i++) {
        const char *frame = stack->frames[i];
        const char *before = i == 0 ? " in " : " < ";
        Dl_info info;

        if (dladdr(frame - 1, &info) == 0) {
            at += (size_t)snprintf(text + at, REGX_CHECK_TEXT - at, "%s%p", before,
                                   (const void *)frame);
        } else if (info.dli_sname != NULL) {
            at += (size_t)snprintf(text + at, REGX_CHECK_TEXT - at, "%s%s", before, info.dli_sname);
        } else {
            const char *slash = strrchr(info.dli_fname, '/');

            if (i > 0 && strstr(info.dli_fname, "/libc.so") != NULL) {
                return; /* what calls main, or a thread's function */
            }
            at += (size_t)snprintf(text + at, REGX_CHECK_TEXT - at, "%s%s+0x%tx", before,
                                   slash != NULL ? slash + 1 : info.dli_fname,
                                   frame - (const char *)info.dli_fbase);
        }
    }
}

/* ---- faults ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3);
}

static uint64_t mix_stack(uint64_t hash, const regx_check_stack_t *stack)
{
    for (int i = 0; i < stack->count; i++) {
        hash = mix(hash, (uintptr_t)stack->frames[i]);
    }
    return mix(hash, (uint64_t)stack->count);
}

/* *is_new: nobody had it. NULL: no more are told. */
static regx_check_fault_t *fault_of(uint64_t key, bool *is_new)
{
    for (uint64_t i = 0; i < settings.limit; i++) {
        regx_check_fault_t *fault = &regx_check_sum->faults[i];
        uint64_t other = 0;

        *is_new = atomic_compare_exchange_strong(&fault->key, &other, key);
        if (*is_new || other == key) {
            return fault;
        }
    }
    return NULL;
}

static bool is_suppressed(const char *registered, const char *changed, const char *used)
{
    for (int i = 0; i < settings.pattern_count; i++) {
        const char *pattern = settings.patterns[i];

        if (fnmatch(pattern, registered, 0) == 0 || fnmatch(pattern, changed, 0) == 0 ||
            fnmatch(pattern, used, 0) == 0) {
            return true;
        }
    }
    return false;
}

static void fill(regx_check_fault_t *fault, const regx_check_range_t *range,
                 const regx_check_change_t *change, const char *use,
                 const regx_check_stack_t *stack)
{
    static const regx_check_stack_t none;
    char when[64];

    snprintf(when, sizeof(when), "after %.3f s", (double)range->since_ns * 1e-9);
    name_stack(fault->registered, when, &range->stack);
    name_stack(fault->changed,
               change == NULL || change->call == NULL ? "a call that was not seen" : change->call,
               change == NULL ? &none : &change->stack);
    name_stack(fault->used, use, stack);
}

void regx_check_fault(regx_check_verdict_t verdict, const regx_check_range_t *range,
                      const regx_check_change_t *change, uintptr_t start, size_t length,
                      const char *use, const regx_check_stack_t *stack)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static regx_check_fault_t text; /* under the lock */
    uint64_t key = mix(UINT64_C(0xcbf29ce484222325), (uint64_t)verdict);
    bool is_new;

    key = mix(mix_stack(key, &range->stack), (uint64_t)getpid());
    key = change != NULL ? mix(mix_stack(key, &change->stack), (uintptr_t)change->call) : key;
    key = mix(mix_stack(key, stack), (uintptr_t)use) | 1;
    pthread_mutex_lock(&lock);
    fill(&text, range, change, use, stack);
    const bool suppressed = is_suppressed(text.registered, text.changed, text.used);
    pthread_mutex_unlock(&lock);
    if (suppressed) {
        atomic_fetch_add(&regx_check_sum->suppressed, 1);
        return;
    }
    atomic_fetch_add(&regx_check_sum->found[verdict], 1);
    regx_check_fault_t *fault = fault_of(key, &is_new);
    if (fault == NULL) {
        atomic_fetch_add(&regx_check_sum->untold, 1);
    } else {
        atomic_fetch_add(&fault->times, 1);
    }
    if (fault != NULL && is_new) {
        fault->verdict = verdict;
        fault->rank = settings.rank;
        fault->process = getpid();
        fault->start = start;
        fault->length = length;
        fill(fault, range, change, use, stack);
        atomic_store(&fault->whole, 1);
        if (verdict != REGX_CHECK_REMOTE) {
            regx_check_fault_print(fault, 0);
        }
    }
    if (settings.stops && verdict != REGX_CHECK_REMOTE) {
        regx_check_say("--stop: the program is aborted at its first fault");
        abort();
    }
}

/* ---- begin and end ---- */

/* A pattern a line, as of a shell, for one of the three stacks as they are printed. */
static void read_patterns(const char *path)
{
    FILE *file = fopen(path, "re");
    char line[PATTERN];

    if (file == NULL) {
        regx_check_say("%s=%s cannot be read: nothing is suppressed", REGX_CHECK_SUPPRESS, path);
        return;
    }
    while (settings.pattern_count < PATTERNS && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != '\0' && line[0] != '#') {
            strcpy(settings.patterns[settings.pattern_count++], line);
        }
    }
    fclose(file);
}

static int rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (getenv(names[i]) != NULL) {
            return atoi(getenv(names[i]));
        }
    }
    return -1;
}

int64_t regx_check_elapsed_ns(void)
{
    return regx_now_ns() - settings.start_ns;
}

__attribute__((constructor)) static void begin(void)
{
    const char *limit = getenv(REGX_CHECK_LIMIT), *suppress = getenv(REGX_CHECK_SUPPRESS);
    void *frame[1];

    backtrace(frame, 1); /* the first one allocates */
    settings.start_ns = regx_now_ns();
    settings.rank = rank();
    settings.stops = getenv(REGX_CHECK_STOP) != NULL;
    settings.limit = regx_min(limit != NULL ? strtoull(limit, NULL, 10) : LIMIT, REGX_CHECK_FAULTS);
    if (suppress != NULL) {
        read_patterns(suppress);
    }
    regx_check_sum = regx_check_sum_map(getenv(REGX_CHECK_SUM), &settings.shared);
    if (regx_check_sum != NULL) {
        atomic_fetch_add(&regx_check_sum->processes, 1);
    }
}

/* With LD_PRELOAD alone there is no command that would tell. */
__attribute__((destructor)) static void end(void)
{
    if (regx_check_sum != NULL && !settings.shared && regx_check_sum->devices > 0) {
        regx_check_sum_print(regx_check_sum);
    }
}
