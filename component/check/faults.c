/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What was found: named by its stacks, counted, and told once. A fault's key has its process, so each
 * place of the table has one process that fills it in: the one that took it.
 */
#include <dlfcn.h>
#include <fnmatch.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#include "base/file.h"
#include "check/check.h"

enum { HALF = REGX_CHECK_FRAMES / 2, DEEPEST = 1000 }; /* functions of a stack */
enum { LIMIT = 100, LINE = 2048, WIDTH = 120, SYMBOL = 160, FILE_NAME = 30 };

regx_check_sum_t *regx_check_sum;

const char *const regx_check_verdict_names[REGX_CHECK_VERDICTS] = {
    [REGX_CHECK_DIFFERENT] = "stale and different",
    [REGX_CHECK_SAME] = "stale, same bytes",
    [REGX_CHECK_UNCOMPARED] = "stale, bytes not compared",
    [REGX_CHECK_REMOTE] = "stale, remote access possible"};

static int rank = -1; /* this process's in Open MPI; -1: none */

/* ---- lines ---- */

static regx_file_t standard_error; /* as it was: the program may open a file of its own there */

void regx_check_say(const char *format, ...)
{
    char line[LINE];
    const size_t begin =
        (size_t)sprintf(line, rank < 0 ? "regx-check: " : "regx-check: rank %d: ", rank);
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

static bool is_mpi(const char *function)
{
    return strncmp(function, "MPI_", 4) == 0 || strncmp(function, "PMPI_", 5) == 0;
}

static const char *next_of(const char *frame)
{
    const char *next = strstr(frame + 1, " < ");

    return next != NULL ? next : frame + strlen(frame);
}

/* As much of the text as a line has room for: of a stack, the innermost function, the outermost one of MPI with its
 * caller, and the outermost ones; or the innermost ones and the outermost. */
static int put_line(char *to, const char *before, const char *text, bool innermost)
{
    static const char left_out[] = " < ...";
    const size_t room = WIDTH - strlen(before) - strlen(left_out);
    const char *inner = next_of(text), *outer = inner, *mpi = text + strlen(text), *next;
    size_t kept = 0; /* of mpi */

    if (strlen(text) <= room + strlen(left_out) || *inner == '\0') {
        return sprintf(to, "\n%s%s", before, text);
    }
    for (next = inner; *next != '\0' && !innermost; next = next_of(next)) {
        mpi = is_mpi(next + 3) ? next : mpi;
    }
    while (*(next = next_of(outer)) != '\0' &&
           (innermost || (size_t)(inner - text) + kept + strlen(outer) > room)) {
        outer = next;
        kept = mpi < outer ? regx_min((size_t)(next_of(next_of(mpi)) - mpi), (size_t)(outer - mpi))
                           : 0;
    }
    while (innermost && (size_t)(next_of(inner) - text) + strlen(outer) <= room) {
        inner = next_of(inner);
    }
    return sprintf(to, "\n%s%.*s%s%.*s%s%s", before, (int)(inner - text), text,
                   mpi == inner && kept > 0 ? "" : left_out, (int)kept, mpi,
                   kept == 0 || mpi + kept == outer ? "" : left_out, outer);
}

/* A line tells of a call that made memory stale, which is to be mended, whatever registered and used that memory: so
 * only the first of such faults is told, at_end with how often all of these were seen. Beside a use none tells that
 * peers may have used it. */
static void print_fault(const regx_check_fault_t *fault, bool at_end)
{
    static const char *const before[] = {"  registered ", "  made stale by ", "  used by "};
    const bool told = at_end && fault->verdict != REGX_CHECK_REMOTE;
    const bool seen = strstr(fault->text[REGX_CHECK_CHANGED], " in ") != NULL;
    uint64_t times = 0;
    char lines[LINE] = "";
    char often[32] = "", who[32] = "";
    int at = 0;

    if (regx_check_verdict_names[fault->verdict] == NULL) {
        return;
    }
    for (int i = 0; i < REGX_CHECK_FAULTS; i++) {
        const regx_check_fault_t *other = &regx_check_sum->faults[i];

        if (regx_check_verdict_names[other->verdict] == NULL || other->process != fault->process ||
            other->rank != fault->rank || (!seen && other->start != fault->start) ||
            strcmp(other->text[REGX_CHECK_CHANGED], fault->text[REGX_CHECK_CHANGED]) != 0) {
            continue;
        }
        if (other->verdict == fault->verdict && other >= fault) {
            times += other->times;
        } else if (other->verdict == fault->verdict || fault->verdict == REGX_CHECK_REMOTE) {
            return; /* that one is told in its place */
        }
    }
    if (at_end) {
        snprintf(often, sizeof(often), "%lu time%s: ", times, times == 1 ? "" : "s");
    }
    if (rank < 0) { /* else each line has it */
        snprintf(who, sizeof(who), "%s %d: ", fault->rank >= 0 ? "rank" : "process",
                 fault->rank >= 0 ? fault->rank : fault->process);
    }
    for (int i = 0; i < REGX_CHECK_EVENTS; i++) {
        /* Who changed memory is often a wrapper of the call; who sends it, the program, is far out. */
        if (!told || i == REGX_CHECK_CHANGED) {
            at += put_line(lines + at, before[i], fault->text[i], i == REGX_CHECK_CHANGED);
        }
    }
    regx_check_say("%s%s%s%s: %lu bytes at 0x%lx%s", often, who,
                   regx_check_verdict_names[fault->verdict],
                   fault->verdict == REGX_CHECK_REMOTE ? ", no fault until a peer uses it" : "",
                   fault->length, fault->start, lines);
}

/* ---- calls ---- */

/* Of this library, by the linker. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static bool is_own(const void *frame)
{
    return (const char *)frame >= __ehdr_start && (const char *)frame < _end;
}

/* The return addresses on a stack, and where on it they are: the innermost, which are libraries', and the outermost,
 * the program's. */
typedef struct walk {
    size_t count; /* also of those between, which are not kept */
    const void *frames[REGX_CHECK_FRAMES];
    const void *const *places[REGX_CHECK_FRAMES];
} walk_t;

static size_t place_of(size_t number)
{
    return number < HALF ? number : HALF + number % HALF;
}

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *argument)
{
    walk_t *walk = argument;
    const void *const frame = (const void *)_Unwind_GetIP(context);

    if (frame == NULL || walk->count == DEEPEST) {
        return _URC_END_OF_STACK;
    }
    const size_t at = place_of(walk->count++);
    walk->frames[at] = frame;
    walk->places[at] = (const void *const *)_Unwind_GetCFA(context) - 1;
    return _URC_NO_REASON;
}

/* To walk takes longer than the rest of a registration. Most come from where the last one came from: then the places
 * of its return addresses, this function's first, still have them. Where these are elsewhere (all but x86-64) they
 * never do. */
void regx_check_call_take(regx_check_call_t *call, const char *what, const void *from)
{
    static __thread walk_t last;
    walk_t other = {.count = 0}, *walk = from == NULL ? &last : &other;
    const void *const *const here = (const void *const *)__builtin_frame_address(0) + 1;
    bool same = from == NULL && walk->count > 1 && walk->places[1] == here;
    size_t at = 0;

    for (size_t i = 1; same && i < regx_min(walk->count, REGX_CHECK_FRAMES); i++) {
        same = *walk->places[i] == walk->frames[i];
    }
    if (!same) {
        walk->count = 0;
        _Unwind_Backtrace(step, walk);
    }
    *call = (regx_check_call_t){.what = what};
    while (at < regx_min(walk->count, HALF) &&
           (from != NULL ? walk->frames[at] != from : is_own(walk->frames[at]))) {
        at++;
    }
    for (; at < walk->count && (call->count > 0 || at < HALF); at++) {
        if (at == HALF &&
            walk->count > REGX_CHECK_FRAMES) { /* in the place of this library's own */
            call->frames[call->count++] = NULL;
            at = walk->count - HALF;
        }
        call->frames[call->count++] = walk->frames[place_of(at)];
    }
}

static bool read_at(long fd, void *to, size_t length, uint64_t from)
{
    return regx_raw(SYS_pread64, fd, (long)to, (long)length, (long)from, 0) > 0;
}

/* The first function of a table of symbols that is at that place; or that has the name of `like`, and another place. */
static bool find_function(long fd, const ElfW(Shdr) * table, uint64_t at, const ElfW(Sym) * like,
                          ElfW(Sym) * function)
{
    ElfW(Sym) some[64];

    for (uint64_t from = 0; from < table->sh_size; from += sizeof(some)) {
        const size_t length = regx_min(sizeof(some), table->sh_size - from);

        if (!read_at(fd, some, length, table->sh_offset + from)) {
            break; /* the file is shorter than it says, and this would not end */
        }
        for (size_t i = 0; i < length / sizeof(some[0]); i++) {
            *function = some[i];
            if ((function->st_info & 0xf) == STT_FUNC &&
                (like == NULL ? at - function->st_value < function->st_size
                              : function->st_name == like->st_name &&
                                    function->st_value != like->st_value)) {
                return true;
            }
        }
    }
    return false;
}

/* Of the file's own table of symbols, which also has static functions, and those of a program that was not
 * linked with -rdynamic. *at becomes a place in the function. false: also where the whole name has no room, or
 * another function has it as well (most linkers keep a name once): nobody would find the place by it. Nothing is
 * mapped or allocated: whoever posts may be inside a hook. */
static bool find_symbol(const char *path, uint64_t *at, char name[SYMBOL])
{
    const long fd = regx_raw(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0);
    ElfW(Ehdr) file = {.e_shnum = 0};
    ElfW(Shdr) table, strings;
    ElfW(Sym) symbol, other;
    bool found = false;

    read_at(fd, &file, sizeof(file), 0);
    for (unsigned i = 0; i < file.e_shnum && !found; i++) {
        found =
            read_at(fd, &table, sizeof(table), file.e_shoff + i * sizeof(table)) &&
            table.sh_type == SHT_SYMTAB &&
            read_at(fd, &strings, sizeof(strings), file.e_shoff + table.sh_link * sizeof(table)) &&
            find_function(fd, &table, *at, NULL, &symbol) &&
            !find_function(fd, &table, 0, &symbol, &other) &&
            read_at(fd, name, SYMBOL, strings.sh_offset + symbol.st_name) &&
            memchr(name, '\0', SYMBOL) != NULL;
        *at -= found ? symbol.st_value : 0;
    }
    regx_raw(SYS_close, fd, 0, 0, 0, 0);
    return found;
}

/* "what in inner+0x1 (library) < outer+0x2 < …": functions, or files where they have no name, and where in it the call
 * is. */
static void name_call(char text[REGX_CHECK_TEXT], const char *what, const regx_check_call_t *call)
{
    size_t at = (size_t)snprintf(text, REGX_CHECK_TEXT, "%s", what);

    for (uint64_t i = 0; i < call->count; i++) {
        const char *frame = call->frames[i], *between = i == 0 ? " in " : " < ";
        Dl_info info = {.dli_fname = "?"};
        struct link_map *map = NULL;
        char own[SYMBOL] = "";

        if (frame == NULL) {
            at += (size_t)sprintf(text + at, " < ...");
            continue;
        }
        frame--; /* in the call, which returns behind it */
        dladdr1(frame, &info, (void **)&map, RTLD_DL_LINKMAP);
        const char *file = basename(info.dli_fname);                    /* or the function */
        const char *library = map != NULL ? basename(map->l_name) : ""; /* the program has none */
        uint64_t place = (uintptr_t)frame - (map != NULL ? map->l_addr : 0);
        if (info.dli_sname != NULL && strlen(info.dli_sname) < SYMBOL) {
            file = info.dli_sname;
            place = (uint64_t)(frame - (const char *)info.dli_saddr);
        } else if (map != NULL &&
                   find_symbol(*map->l_name != '\0' ? map->l_name : REGX_PROC "exe", &place, own)) {
            file = own;
        } else if (i > 0 && strncmp(file, "libc.so", 7) == 0) {
            break; /* what calls main, or a thread's function */
        } else {
            library = "";
        }
        at += (size_t)sprintf(text + at, "%s%.*s+0x%lx", between, SYMBOL, file, place);
        if (*library != '\0' && !is_mpi(file)) { /* else the name says it */
            const char *end = strstr(library, ".so");
            const size_t length = end != NULL ? (size_t)(end - library) + 3 : strlen(library);

            at += (size_t)sprintf(text + at, " (%.*s)", (int)regx_min(length, FILE_NAME), library);
        }
    }
    for (; *text != '\0'; text++) { /* as it is in JSON */
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ') {
            *text = '?';
        }
    }
}

/* ---- faults ---- */

void regx_check_fault(regx_check_finding_t *found, const char *use)
{
    const bool is_use = found->verdict != REGX_CHECK_REMOTE;
    const unsigned char *const bytes = (const unsigned char *)found->calls;
    regx_check_fault_t *fault = NULL; /* there is no place left */
    regx_check_verdict_t verdict = found->verdict;
    bool is_new = false; /* nobody had that fault */

    if (found->verdict == REGX_CHECK_NONE) {
        return;
    }
    if (use != NULL) {
        regx_check_call_take(&found->calls[REGX_CHECK_USED], use, NULL);
    }
    uint64_t key = (uint64_t)getpid() << 8 | found->verdict; /* of what is the same in a fault */
    for (size_t i = 0; i < sizeof(found->calls); i++) { /* frames that there are not are NULL */
        key = (key ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    key |= 1; /* 0: no fault yet */
    for (uint64_t i = 0; i < regx_check_sum->limit && fault == NULL; i++) {
        regx_check_fault_t *place = &regx_check_sum->faults[i];
        uint64_t other = 0;

        is_new = atomic_compare_exchange_strong(&place->key, &other, key);
        fault = is_new || other == key ? place : NULL;
    }
    if (is_new) {
        char when[64];

        fault->rank = rank;
        fault->process = getpid();
        fault->start = found->start;
        fault->length = found->length;
        snprintf(when, sizeof(when), "at %.3f s",
                 (double)(found->registered_ns - regx_check_sum->start_ns) * 1e-9);
        for (int i = 0; i < REGX_CHECK_EVENTS; i++) {
            const char *what = found->calls[i].what;

            name_call(fault->text[i], what != NULL ? what : when, &found->calls[i]);
        }
        for (const char *at = regx_check_sum->patterns; *at != '\0'; at += strlen(at) + 1) {
            for (int i = 0; i < REGX_CHECK_EVENTS; i++) {
                verdict = fnmatch(at, fault->text[i], 0) == 0 ? REGX_CHECK_SUPPRESSED : verdict;
            }
        }
        fault->verdict = verdict; /* last: from then on the command reads it */
    }
    atomic_fetch_add(fault != NULL ? &fault->times : &regx_check_sum->untold,
                     fault != NULL || is_use);
    /* Whether it is suppressed, the thread knows that names it. */
    if (!is_use || (fault != NULL && fault->verdict != found->verdict)) {
        return;
    }
    if (is_new) {
        print_fault(fault, false);
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
    uint64_t times[REGX_CHECK_VERDICTS];

    return regx_check_sum != NULL ? regx_check_sum_used(times) : 0;
}

/* ---- the sum ---- */

void regx_check_sum_open(int fd)
{
    const char *word = regx_check_rank();
    void *memory = mmap(NULL, sizeof(*regx_check_sum), PROT_READ | PROT_WRITE,
                        fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, fd, 0);

    standard_error = regx_file_of(STDERR_FILENO);
    rank = word != NULL ? atoi(word) : -1;
    regx_check_sum = memory != MAP_FAILED ? memory : NULL;
    if (regx_check_sum != NULL && regx_check_sum->limit == 0) { /* it is new */
        regx_check_sum->limit = LIMIT;
        regx_check_sum->start_ns = regx_now_ns();
    }
}

uint64_t regx_check_sum_used(uint64_t times[REGX_CHECK_VERDICTS])
{
    memset(times, 0, REGX_CHECK_VERDICTS * sizeof(*times));
    for (int i = 0; i < REGX_CHECK_FAULTS; i++) {
        times[regx_check_sum->faults[i].verdict] += regx_check_sum->faults[i].times;
    }
    return regx_check_sum->untold + times[REGX_CHECK_DIFFERENT] + times[REGX_CHECK_SAME] +
           times[REGX_CHECK_UNCOMPARED];
}

static void say_count(const char *before, uint64_t count, const char *after)
{
    if (count > 0) {
        regx_check_say("%s%lu%s", before, count, after);
    }
}

static const char *why_nothing(const regx_check_sum_t *sum, const char *ended)
{
    if (sum->processes == 0) {
        return "no process loaded libregx-check.so (the program is static, or set-uid, or resets "
               "LD_PRELOAD)";
    }
    if (sum->devices == 0 && access("/dev/infiniband", F_OK) != 0) {
        return "there is no RDMA device here (no /dev/infiniband)";
    }
    if (ended != NULL) {
        return ended;
    }
    if (sum->registrations > 0 && sum->postings == 0) {
        return "the program posts past libibverbs (by mlx5dv, as UCX does but for "
               "UCX_TLS=rc_verbs,ud_verbs,sm,self), or not at all";
    }
    return "messages go another way (within a node by a device with --mca pml ucx -x "
           "UCX_TLS=rc_verbs,ud_verbs,self, or --mca pml ob1 --mca btl regx,self --mca "
           "btl_regx_transport verbs), or by calls of libibverbs that do not come by here (dlsym, "
           "RTLD_DEEPBIND, a process that reset LD_PRELOAD, or one of another node: for these, "
           "mpirun ... regx-check COMMAND)";
}

bool regx_check_sum_print(const char *ended)
{
    const regx_check_sum_t *sum = regx_check_sum;
    uint64_t times[REGX_CHECK_VERDICTS];
    const bool followed =
        regx_check_sum_used(times) != 0 || times[REGX_CHECK_SUPPRESSED] + sum->large > 0;

    if (sum->registrations > 0) {
        say_count("memory windows are not followed: ", sum->windows, " were made");
        say_count("registrations that cannot be watched (shared memory, files): ", sum->unwatched,
                  ", compared at each use");
        say_count("registrations of which bytes could not be compared: ", sum->unwitnessed, "");
        say_count("registrations that were not followed: ", sum->unfollowed,
                  ", for want of memory, or more than 16384 at a time");
        regx_check_say("%lu registrations, %lu postings, %lu of 1 KiB or more; stale uses: %lu "
                       "different, %lu same, %lu not compared",
                       sum->registrations, sum->postings, sum->large, times[REGX_CHECK_DIFFERENT],
                       times[REGX_CHECK_SAME], times[REGX_CHECK_UNCOMPARED]);
    }
    for (int i = 0; i < REGX_CHECK_FAULTS; i++) {
        print_fault(&sum->faults[i], true);
    }
    say_count("", sum->untold, " uses more, beyond --limit");
    say_count("", times[REGX_CHECK_SUPPRESSED], " uses suppressed");
    if (!followed) {
        regx_check_say("nothing was followed%s, so nothing is known: %s",
                       sum->postings > 0 ? " but messages of less than 1 KiB" : "",
                       why_nothing(sum, ended));
    }
    return followed && sum->unfollowed == 0;
}

/* ---- begin and end, in the library ---- */

void regx_check_faults_begin(void)
{
    const char *name = getenv(REGX_CHECK_SUM), *path = name != NULL ? strchr(name, ' ') : NULL;
    char file[128] = "";
    /* Elsewhere that path may be any file's. */
    const bool is_sum = path != NULL && readlink(path + 1, file, sizeof(file) - 1) > 0 &&
                        strncmp(file, "/memfd:", 7) == 0 &&
                        strncmp(file + 7, name, (size_t)(path + 1 - name)) == 0;
    const int fd = is_sum ? open(path + 1, O_RDWR | O_CLOEXEC) : -1;

    regx_check_sum_open(fd);
    if (regx_check_sum != NULL) {
        atomic_fetch_add(&regx_check_sum->processes, 1);
    }
    if (fd >= 0) {
        close(fd);
    }
}
