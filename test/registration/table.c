/* SPDX-License-Identifier: BSD-3-Clause
 *
 * table BACKEND libc|raw|thread [ROW...]: what each way of changing memory, or each that
 * is named, does to what the cache holds of it, with that backend. The changes are made by libc, by
 * the system call itself, or by libc in another thread while this one takes the address. Each is
 * tried in a process of its own. One line for each row and direction, of fields parted by tabs:
 *
 *   row, send|receive, cell, and if that is `broken` what was wrong
 *
 * Cells: fresh; stale: old bytes were sent, or received bytes not seen; not cached; n/a: not on
 * this machine. `staleness` makes the documentation's table of them. Ends with 77, and a line that
 * says why, where the backend or the oracle cannot be had.
 */
#include <malloc.h>
#include <stdatomic.h>

#include "../stamp.h"
#include "rig.h"
#include "table.h"

enum { CONTROLS = 50, UNAVAILABLE = 77, PATIENCE = 120 /* seconds */ };

typedef struct cell {
    bool stale;
    bool cached; /* target's registration was kept, before */
    bool anew;   /* … and what is there since the change may have been, too */
    char broken[256];
} cell_t;

/* One range that a row looks at. */
typedef struct watched {
    const char *name;
    uint8_t *base;
    size_t length;
    bool hit; /* before the change */
} watched_t;

static rig_t rig;
static uint8_t *control; /* a buffer that nothing happens to */
static uint64_t control_tries, control_hits;
static uint64_t stamp;

_Noreturn static void give_up(const char *what)
{
    fprintf(stderr, "table: %s\n", what);
    _exit(2);
}

static void expect(cell_t *cell, bool so, const char *what, const char *which)
{
    if (!so && cell->broken[0] == '\0') {
        snprintf(cell->broken, sizeof(cell->broken), "%s: %s", which, what);
    }
}

static void try_control(cell_t *cell)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (unsigned i = 0; i < CONTROLS; i++) {
        rig_fill(control, page, ++stamp);
        const transfer_t sent = rig_transfer(&rig, SEND, control, page, 0);
        expect(cell, sent.status == REGX_OK && sent.right == page, "wrong bytes", "control");
        control_tries++;
        control_hits += sent.hit;
    }
}

/* One transfer, into the cell. */
static bool try(cell_t *cell, direction_t direction, const watched_t *range)
{
    const transfer_t transfer = rig_transfer(&rig, direction, range->base, range->length, ++stamp);

    expect(cell, transfer.status == REGX_OK, "cannot be registered", range->name);
    cell->stale |= transfer.status == REGX_OK && transfer.right != range->length;
    return transfer.hit;
}

/* In use, and if it can be kept, kept. */
static void prime(cell_t *cell, direction_t direction, watched_t *range)
{
    if (range->base == NULL) {
        return;
    }
    rig_settle(&rig);
    rig_fill(range->base, range->length, ++stamp);
    try(cell, direction, range);
    range->hit = try(cell, direction, range);
}

/* Where target can be kept, so can what is like it: what never was could not be lost. */
static void expect_primed(cell_t *cell, const watched_t *range)
{
    expect(cell, range->base == NULL || range->hit, "was not kept before the change", range->name);
}

/* It did not change: it is as it was, and still kept. */
static void expect_kept(cell_t *cell, direction_t direction, const watched_t *range)
{
    expect(cell, range->base == NULL || try(cell, direction, range) || !range->hit,
           "did not change, and is no longer kept", range->name);
}

/* Whether what is kept may serve after a change: retain keeps malloc from changing anything, the
 * regions of odp follow. */
static bool regions_stay_true(void)
{
    return strcmp(rig.backend, "retain") == 0 || strcmp(rig.backend, "odp") == 0;
}

/* It changed: what was kept of it is used no more. */
static void expect_fresh(cell_t *cell, direction_t direction, const watched_t *range,
                         const row_t *row)
{
    bool hit = false;

    if (direction == SEND && !row->undefined) { /* as it is, before anybody writes */
        hit = try(cell, direction, range);
    }
    if (direction == SEND) {
        rig_fill(range->base, range->length, ++stamp);
    }
    if (direction == RECEIVE || row->undefined) {
        hit = try(cell, direction, range);
    } else {
        try(cell, direction, range);
    }
    expect(cell, !row->stale || !hit || cell->stale || cell->anew || regions_stay_true(),
           "changed, and a kept region served", range->name);
    rig_fill(range->base, range->length, ++stamp);
    try(cell, direction, range);
}

/* ---- the change by another thread, which this one does not wait for ---- */

typedef struct changer {
    const row_t *row;
    place_t *place;
    bool there; /* the machine has it */
    _Atomic bool finished;
} changer_t;

static void *change_in_thread(void *argument)
{
    changer_t *changer = argument;

    changer->there = row_change(changer->row, changer->place);
    atomic_store(&changer->finished, true);
    return NULL;
}

/* Whether this thread goes on to wait for the change: until it has taken the address, or the
 * notifier's reader is held where nothing can be taken yet. */
static bool waits(const changer_t *changer, bool *taken)
{
    const row_t *row = changer->row;

    *taken = row->take != NULL && row->take(changer->place);
    return !*taken && !atomic_load(&changer->finished) &&
           !((row->early || row->take == NULL) && rig_held(&rig));
}

/* The notifier's reader is held, so that the change is under way for as long as this thread likes:
 * it takes the address as soon as it is free, and uses it. */
static bool change_meanwhile(cell_t *cell, direction_t direction, const row_t *row, place_t *place)
{
    changer_t changer = {.row = row, .place = place};
    const watched_t target = {.name = "target, while it changes",
                              .base = place->changed,
                              .length = place->changed_length};
    bool taken = false;
    pthread_t thread;

    rig_hold(&rig, true);
    if (pthread_create(&thread, NULL, change_in_thread, &changer) != 0) {
        abort();
    }
    await(!waits(&changer, &taken));
    if (taken || row->early) {
        try(cell, direction, &target); /* at once, whether the kernel's news is there or not */
        await(!rig_can_hold(&rig) || rig_held(&rig) || atomic_load(&changer.finished));
        cell->anew = !rig_held(&rig);
        expect(cell,
               !try(cell, direction, &target) || cell->stale || cell->anew || regions_stay_true(),
               "a kept region served", target.name);
    }
    rig_hold(&rig, false);
    pthread_join(thread, NULL);
    expect(cell, !changer.there || taken || row->take == NULL || row->take(place),
           "cannot be taken", target.name);
    return changer.there;
}

static bool change(cell_t *cell, bool thread, direction_t direction, const row_t *row,
                   place_t *place)
{
    if (thread) {
        return change_meanwhile(cell, direction, row, place);
    }
    if (!row_change(row, place)) {
        return false;
    }
    expect(cell, row->take == NULL || row->take(place), "cannot be taken", "target");
    return true;
}

/* Of mremap hooks report all that the call names, also what stays where it is. */
static bool hooks_take_the_whole_call(const row_t *row)
{
    return row->part == SECOND_HALF && strncmp(rig.backend, "hooks", strlen("hooks")) == 0;
}

/* To split a huge page is told as a change of all of it. */
static bool kernel_tells_of_the_whole_page(const row_t *row)
{
    return row->shape == HUGE_PAGE && strcmp(rig.backend, "kernel") == 0;
}

/* false: n/a. */
static bool play(cell_t *cell, bool thread, by_t by, direction_t direction, const row_t *row)
{
    place_t place;

    if (!place_open(&place, row, by)) {
        return false;
    }
    watched_t left = {.name = "left", .base = place.left, .length = place.length};
    watched_t right = {.name = "right", .base = place.right, .length = place.length};
    watched_t other = {.name = "other", .base = place.other, .length = place.length};
    watched_t rest = {.name = "rest", .length = place.length - place.changed_length};
    watched_t target = {.name = "target", .base = place.target, .length = place.length};
    if (row->part != WHOLE) {
        rest.base = row->part == FIRST_HALF ? place.target + rest.length : place.target;
    }
    prime(cell, direction, &left);
    prime(cell, direction, &right);
    prime(cell, direction, &other);
    prime(cell, direction, &rest); /* by itself, before target covers it too */
    prime(cell, direction, &target);
    expect(cell, !cell->stale, "wrong bytes before anything changed", "target");
    cell->cached = target.hit;
    if (target.hit || (row->shape == SYSV && strcmp(rig.backend, "none") != 0)) {
        expect_primed(cell, &left);
        expect_primed(cell, &right);
        expect_primed(cell, &other);
        expect_primed(cell, &rest);
    }
    memset(place.target, 0x77, place.length); /* not zero, see is_empty() */
    try_control(cell);

    const bool there = change(cell, thread, direction, row, &place);

    if (there) {
        target.base = place.target;
        other.base = place.other;
        expect_fresh(cell, direction, &target, row); /* first, with no time for news to arrive */
        if (row->other_after) {
            expect_fresh(cell, direction, &other, row);
        }
        rig_settle(&rig);
        if (!kernel_tells_of_the_whole_page(row)) {
            expect_kept(cell, direction, &left);
            expect_kept(cell, direction, &right);
        }
        if (!hooks_take_the_whole_call(row)) {
            expect_kept(cell, direction, &rest);
        }
        try_control(cell);
    }
    place_close(&place, row);
    regx_registry_progress(&rig.registry);
    return there;
}

/* In a process of its own. */
static void print_cell(const char *backend, bool thread, by_t by, direction_t direction,
                       const row_t *row)
{
    cell_t cell = {0};
    const char *name = "n/a";
    regx_error_t why;

    alarm(PATIENCE);
    if (!rig_open(&rig, backend, 0, why)) {
        give_up(why);
    }
    control = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (play(&cell, thread, by, direction, row)) {
        expect(&cell, cell.cached || rig_count(&rig, &rig.counters.uncached) >= 2,
               "not kept, and that was not counted", "target");
        expect(&cell, strcmp(backend, "none") == 0 || control_hits * 100 >= control_tries * 99,
               "less than 99 % hits", "control");
        expect(&cell, strcmp(backend, "unprotected") != 0 || cell.stale == row->stale,
               "is not what the list of rows says", "stale or not");
        name = cell.broken[0] != '\0' ? "broken"
               : cell.stale           ? "stale"
               : cell.cached          ? "fresh"
                                      : "not cached";
    }
    rig_close(&rig);
    printf("%s%s%s", name, cell.broken[0] != '\0' ? "\t" : "", cell.broken);
}

static void print_row(const char *backend, bool thread, by_t by, direction_t direction,
                      const row_t *row)
{
    int status;

    if (row->libc_only && (thread || by == BY_SYSCALL)) {
        return;
    }
    printf("%s\t%s\t", row->name, direction == SEND ? "send" : "receive");
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        print_cell(backend, thread, by, direction, row);
        fflush(stdout);
        _exit(0); /* MPI is the parent's */
    }
    if (waitpid(pid, &status, 0) != pid) {
        give_up("waiting for a child");
    }
    if (WIFSIGNALED(status)) {
        printf("broken\tended by %s", strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) != 0) {
        printf("broken\tended with %d", WEXITSTATUS(status));
    }
    printf("\n");
}

/* Whether the backend can be had, tried in a process of its own too; if not, says why. */
static bool usable(const char *backend)
{
    regx_error_t why;
    int status;

    const pid_t pid = fork();
    if (pid == 0) {
        alarm(PATIENCE);
        if (!rig_open(&rig, backend, 0, why)) {
            printf("%s\n", why);
            fflush(stdout);
            _exit(UNAVAILABLE);
        }
        rig_close(&rig);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || (status != 0 && WEXITSTATUS(status) != UNAVAILABLE)) {
        give_up("opening and closing a registry fails");
    }
    return status == 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: table BACKEND libc|raw|thread [ROW...]\n");
    return 2;
}

/* Whether that row is wanted: it is named, or none is. */
static bool wanted(const row_t *row, char **names)
{
    bool found = names[0] == NULL;

    for (; !found && names[0] != NULL; names++) {
        found = strcmp(names[0], row->name) == 0;
    }
    return found;
}

int main(int argc, char **argv)
{
    const bool thread = argc > 2 && strcmp(argv[2], "thread") == 0;
    const by_t by = argc > 2 && strcmp(argv[2], "raw") == 0 ? BY_SYSCALL : BY_LIBC;

    if (argc < 3 || (by == BY_LIBC && !thread && strcmp(argv[2], "libc") != 0)) {
        return usage();
    }
    rig_begin();
    /* So that the heap shrinks when its end is free. Before `retain` sets its own. */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_TRIM_THRESHOLD, 128 << 10);
    mallopt(M_TOP_PAD, 0);
    if (!usable(argv[1])) {
        rig_end();
        return UNAVAILABLE;
    }
    for (size_t i = 0; i < row_count; i++) {
        if (wanted(&rows[i], argv + 3)) {
            print_row(argv[1], thread, by, SEND, &rows[i]);
            print_row(argv[1], thread, by, RECEIVE, &rows[i]);
        }
    }
    rig_end();
    return 0;
}
