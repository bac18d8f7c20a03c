/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What was found: named by its stacks, counted, and told once. A fault's key has its process, so each
 * place of the table has one process that fills it in: the one that took it.
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "check/check.h"

enum { OWN_FRAMES = 12, LIMIT = 100, LINE = 2048 };

regx_check_sum_t *regx_check_sum;

const char *const regx_check_verdict_names[REGX_CHECK_VERDICTS] = {"",
                                                                   "stale and different",
                                                                   "stale, same bytes",
                                                                   "stale, bytes not compared",
                                                                   "stale, remote access possible",
                                                                   ""};
const char *const regx_check_event_names[REGX_CHECK_EVENTS] = {"registered", "changed", "used"};

static int rank; /* Open MPI's; -1: none */

/* ---- lines ---- */

static regx_file_t standard_error; /* as it was: the program may open a file of its own there */

__attribute__((constructor)) static void find_standard_error(void)
{
    standard_error = regx_file_of(STDERR_FILENO);
}

void regx_check_say(const char *format, ...)
{
    char line[LINE] = "regx-check: ";
    const size_t begin = strlen(line);
    va_list arguments;

    va_start(arguments, format);
    const int written = vsnprintf(line + begin, LINE - begin, format, arguments);
    va_end(arguments);
    const size_t length = regx_min(begin + (size_t)written, LINE - 1);
    line[length] = '\n';
    if (regx_file_is_ours(&standard_error)) {
        regx_raw(SYS_write, STDERR_FILENO, (long)line, (long)length + 1, 0, 0);
    }
}

static void print_fault(const regx_check_fault_t *fault, const char *often)
{
    regx_check_say("%s%s %d: %s: %" PRIu64 " bytes at 0x%" PRIx64
                   "; registered %s; made stale by %s; used by %s",
                   often, fault->rank >= 0 ? "rank" : "process",
                   fault->rank >= 0 ? fault->rank : fault->process,
                   regx_check_verdict_names[fault->verdict], fault->length, fault->start,
                   fault->text[REGX_CHECK_REGISTERED], fault->text[REGX_CHECK_CHANGED],
                   fault->text[REGX_CHECK_USED]);
}

/* ---- stacks ---- */

/* Of this library, by the linker. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static bool is_own(const void *frame)
{
    return (const char *)frame >= __ehdr_start && (const char *)frame < _end;
}

void regx_check_stack_take(regx_check_stack_t *stack, const void *from)
{
    void *frames[REGX_CHECK_FRAMES + OWN_FRAMES];
    const int count = backtrace(frames, REGX_CHECK_FRAMES + OWN_FRAMES);
    int first = 0;

    while (first < count && (from != NULL ? frames[first] != from : is_own(frames[first]))) {
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

    for (int i = 0; i < stack->count && at < REGX_CHECK_TEXT; i++) {
        const char *frame = stack->frames[i], *file = "?", *name = NULL;
        Dl_info info = {0};

        if (dladdr(frame - 1, &info) != 0) {
            const char *slash = strrchr(info.dli_fname, '/');

            name = info.dli_sname;
            file = slash != NULL ? slash + 1 : info.dli_fname;
        }
        if (name == NULL && i > 0 && strncmp(file, "libc.so", 7) == 0) {
            break; /* what calls main, or a thread's function */
        }
        at += (size_t)snprintf(text + at, REGX_CHECK_TEXT - at, "%s%s", i == 0 ? " in " : " < ",
                               name != NULL ? name : file);
        if (name == NULL && at < REGX_CHECK_TEXT) {
            at += (size_t)snprintf(text + at, REGX_CHECK_TEXT - at, "+0x%tx",
                                   frame - (const char *)info.dli_fbase);
        }
    }
    for (; *text != '\0'; text++) { /* as it is in JSON */
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ') {
            *text = '?';
        }
    }
}

/* ---- faults ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3);
}

static uint64_t mix_event(uint64_t hash, const char *call, const regx_check_stack_t *stack)
{
    for (int i = 0; i < stack->count; i++) {
        hash = mix(hash, (uintptr_t)stack->frames[i]);
    }
    return mix(hash, (uintptr_t)call);
}

/* *is_new: nobody had it. NULL: there is no place left. */
static regx_check_fault_t *fault_of(uint64_t key, bool *is_new)
{
    *is_new = false;
    for (uint64_t i = 0; i < regx_check_sum->limit; i++) {
        regx_check_fault_t *fault = &regx_check_sum->faults[i];
        uint64_t other = 0;

        *is_new = atomic_compare_exchange_strong(&fault->key, &other, key);
        if (*is_new || other == key) {
            return fault;
        }
    }
    return NULL;
}

static bool is_suppressed(const regx_check_fault_t *fault)
{
    for (const char *at = regx_check_sum->patterns; *at != '\0'; at += strlen(at) + 1) {
        for (int i = 0; i < REGX_CHECK_EVENTS; i++) {
            if (fnmatch(at, fault->text[i], 0) == 0) {
                return true;
            }
        }
    }
    return false;
}

void regx_check_fault(regx_check_verdict_t verdict, const regx_check_range_t *range,
                      const regx_check_change_t *change, uintptr_t start, size_t length,
                      const char *use, const regx_check_stack_t *stack)
{
    static const regx_check_change_t unseen;
    const bool seen = change != NULL && change->call != NULL;
    const char *call = seen ? change->call : "a call that was not seen";
    uint64_t key = mix(mix(UINT64_C(0xcbf29ce484222325), verdict), (uint64_t)getpid());
    char when[64];
    bool is_new;

    change = seen ? change : &unseen;
    stack = stack != NULL ? stack : &unseen.stack;
    key = mix_event(mix_event(mix_event(key, "", &range->stack), call, &change->stack), use, stack);
    regx_check_fault_t *fault = fault_of(key | 1, &is_new);
    if (is_new) {
        fault->rank = rank;
        fault->process = getpid();
        fault->start = start;
        fault->length = length;
        snprintf(when, sizeof(when), "after %.3f s",
                 (double)(range->since_ns - regx_check_sum->start_ns) * 1e-9);
        name_stack(fault->text[REGX_CHECK_REGISTERED], when, &range->stack);
        name_stack(fault->text[REGX_CHECK_CHANGED], call, &change->stack);
        name_stack(fault->text[REGX_CHECK_USED], use, stack);
        fault->verdict = is_suppressed(fault) ? REGX_CHECK_SUPPRESSED : verdict;
    }
    if (fault == NULL) {
        atomic_fetch_add(&regx_check_sum->untold, verdict != REGX_CHECK_REMOTE);
    } else {
        atomic_fetch_add(&fault->times, 1);
    }
    /* Whether it is suppressed, the thread knows that names it. */
    if (verdict == REGX_CHECK_REMOTE || (fault != NULL && fault->verdict != verdict)) {
        return;
    }
    if (is_new) {
        print_fault(fault, "");
    }
    if (regx_check_sum->stops) {
        regx_check_say("--stop: the program is aborted at its first fault");
        abort();
    }
}

/* For programs that test: uses of stale memory, of all processes of the command. */
__attribute__((visibility("default"))) uint64_t regx_check_found(void);
uint64_t regx_check_found(void)
{
    return regx_check_sum != NULL ? regx_check_sum_used(regx_check_sum) : 0;
}

/* ---- the sum ---- */

regx_check_sum_t *regx_check_sum_map(int fd)
{
    regx_check_sum_t *sum = mmap(NULL, sizeof(*sum), PROT_READ | PROT_WRITE,
                                 fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, fd, 0);

    if (sum == MAP_FAILED) {
        return NULL;
    }
    if (sum->limit == 0) { /* it is new */
        sum->limit = LIMIT;
        sum->start_ns = regx_now_ns();
    }
    return sum;
}

uint64_t regx_check_sum_times(const regx_check_sum_t *sum, regx_check_verdict_t verdict)
{
    uint64_t times = 0;

    for (int i = 0; i < REGX_CHECK_FAULTS; i++) {
        times += sum->faults[i].verdict == verdict ? sum->faults[i].times : 0;
    }
    return times;
}

uint64_t regx_check_sum_used(const regx_check_sum_t *sum)
{
    uint64_t times = sum->untold;

    for (int verdict = REGX_CHECK_DIFFERENT; verdict <= REGX_CHECK_UNCOMPARED; verdict++) {
        times += regx_check_sum_times(sum, verdict);
    }
    return times;
}

/* What could not be known, and why. */
static void print_limits(const regx_check_sum_t *sum)
{
    if (sum->processes == 0) {
        regx_check_say(
            "nothing was followed: no process loaded libregx-check.so (the program is static, "
            "or set-uid, or resets LD_PRELOAD)");
    } else if (sum->devices == 0) {
        regx_check_say(
            "nothing was followed: no RDMA device was opened by calls of libibverbs that "
            "came by here (none is used, or by dlsym, RTLD_DEEPBIND, or a process that "
            "reset LD_PRELOAD)");
    } else if (sum->registrations > 0 && sum->postings == 0) {
        regx_check_say("no posting was followed: the program posts past libibverbs (as by mlx5dv), "
                       "or not at all");
    }
    if (sum->windows > 0) {
        regx_check_say("memory windows are not followed: %" PRIu64 " were made", sum->windows);
    }
    if (sum->unwatched > 0) {
        regx_check_say("of %" PRIu64 " registrations changes are not reported (shared memory, a "
                       "file's, or watched by the program): bytes were compared at each use",
                       sum->unwatched);
    }
    if (sum->unwitnessed > 0) {
        regx_check_say("of %" PRIu64 " registrations bytes could not be compared; of %" PRIu64
                       " nothing was known",
                       sum->unwitnessed, sum->blind);
    }
}

void regx_check_sum_print(const regx_check_sum_t *sum)
{
    char often[32];

    print_limits(sum);
    if (sum->devices == 0) {
        return;
    }
    regx_check_say(
        "%" PRIu64 " registrations, %" PRIu64 " postings; stale ones used: %" PRIu64
        " different, %" PRIu64 " same bytes, %" PRIu64 " not compared; %" PRIu64 " open to peers",
        sum->registrations, sum->postings, regx_check_sum_times(sum, REGX_CHECK_DIFFERENT),
        regx_check_sum_times(sum, REGX_CHECK_SAME),
        regx_check_sum_times(sum, REGX_CHECK_UNCOMPARED),
        regx_check_sum_times(sum, REGX_CHECK_REMOTE));
    for (int i = 0; i < REGX_CHECK_FAULTS; i++) {
        if (regx_check_is_told(&sum->faults[i])) {
            snprintf(often, sizeof(often), "%" PRIu64 " times: ", sum->faults[i].times);
            print_fault(&sum->faults[i], often);
        }
    }
    if (sum->untold > 0) {
        regx_check_say("%" PRIu64 " uses more, beyond --limit", sum->untold);
    }
    const uint64_t suppressed = regx_check_sum_times(sum, REGX_CHECK_SUPPRESSED);
    if (suppressed > 0) {
        regx_check_say("%" PRIu64 " uses suppressed", suppressed);
    }
}

/* ---- begin and end, in the library ---- */

void regx_check_faults_begin(void)
{
    const char *path = getenv(REGX_CHECK_SUM), *word = getenv("OMPI_COMM_WORLD_RANK");
    const int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *frame[1];

    backtrace(frame, 1); /* the first one allocates */
    rank = word != NULL ? atoi(word) : -1;
    regx_check_sum = regx_check_sum_map(fd);
    if (regx_check_sum != NULL) {
        atomic_fetch_add(&regx_check_sum->processes, 1);
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* With LD_PRELOAD alone there is no command that would tell. */
void regx_check_faults_end(void)
{
    if (!regx_check_sum->has_command && regx_check_sum->devices > 0) {
        regx_check_sum_print(regx_check_sum);
    }
}
