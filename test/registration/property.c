/* SPDX-License-Identifier: BSD-3-Clause
 *
 * property BACKEND SEED OPERATIONS: random changes of the address space, a transfer after
 * each, and no byte may be wrong.
 *
 * Operation number i is made of SEED and i alone, and makes sense in whatever state it meets. The
 * last line on stdout says what was done. Ends with 1 where a byte was wrong, and then says where;
 * with 77 where the backend or the oracle cannot be had.
 */
#include <malloc.h>
#include <sys/utsname.h>

#include "operations.h"
#include "rig.h"

enum { UNAVAILABLE = 77 };

static rig_t rig;
static uint64_t made[KINDS], transfers, bytes, refused;
static bool one_file_alone; /* the kernel is so old */

/* ---- transfers ---- */

/* Before Linux 6.5 io_uring takes no memory that lies in several files, or in a file and in none. Each piece of
 * shared memory is a file of its own. */
static bool may_be_refused(const uint8_t *base, size_t length)
{
    const size_t first = (size_t)(base - arena_at(0)) / PAGE;
    const size_t last = (size_t)(base + length - 1 - arena_at(0)) / PAGE;

    return one_file_alone && last < PAGES && first < last &&
           !arena_all_are((unsigned)first, (unsigned)(last - first + 1), PRIVATE);
}

static bool transfer(uint8_t *base, size_t length)
{
    const direction_t direction = below(2) == 0 ? SEND : RECEIVE;

    for (size_t at = below(PAGE / 2); direction == SEND && at + 8 <= length; at += PAGE) {
        memcpy(base + at, &transfers, sizeof(transfers));
    }
    const transfer_t done = rig_transfer(&rig, direction, base, length, random_next());
    if (done.status != REGX_OK) {
        printf("refused: operation %llu: %zu bytes at %p: status %d\n", (unsigned long long)current,
               length, (void *)base, (int)done.status);
        refused += !may_be_refused(base, length);
        return true;
    }
    transfers++;
    bytes += length;
    if (done.right != length) {
        printf(
            "stale: seed %llu, operation %llu: %s of %zu bytes at %p by a %s: byte %zu is wrong\n",
            (unsigned long long)seed, (unsigned long long)current,
            direction == SEND ? "send" : "receive", length, (void *)base,
            done.hit ? "kept region" : "new registration", done.right);
        return false;
    }
    return true;
}

static bool transfer_extent(by_t by, extent_t extent)
{
    if (!arena_all_mapped(extent.page, extent.pages)) {
        if (below(4) == 0) {
            return true;
        }
        arena_fill(by, extent.page, extent.pages);
    }
    return transfer(arena_at(extent.page) + extent.before,
                    (size_t)extent.pages * PAGE - extent.before - extent.after);
}

static bool some_transfer(by_t by)
{
    const unsigned where = below(16);

    if (where == 0) {
        size_t length;
        uint8_t *base = operations_block(&length);

        return base == NULL || transfer(base, length);
    }
    return transfer_extent(by, where < 14 ? arena_favourite(below(FAVOURITES)) : arena_any());
}

/* Operation number `number`, and a transfer or two. */
static bool operate(uint64_t number)
{
    unsigned total = 0;
    kind_t kind = 0;

    random_begin(number);
    for (kind_t i = 0; i < KINDS; i++) {
        total += kinds[i].weight;
    }
    unsigned draw = below(total);
    while (draw >= kinds[kind].weight) {
        draw -= kinds[kind++].weight;
    }
    const by_t by = hooks_only || below(2) == 0 ? BY_LIBC : BY_SYSCALL;
    const extent_t at = arena_place_of_change();
    const extent_t to = arena_place_of_change();
    if (!operations_make(kind, by, at, to)) { /* this makes sense everywhere */
        kind = below(2) == 0 ? MAP_OVER : UNMAP;
        operations_make(kind, by, at, to);
    }
    made[kind]++;
    if (below(2) == 0 && kind != HEAP && !transfer_extent(by, at)) {
        return false;
    }
    if (below(16) == 0) {
        regx_registry_progress(&rig.registry);
    }
    return some_transfer(by);
}

/* ---- the run ---- */

static bool run(uint64_t operations)
{
    for (uint64_t i = 0; i < operations; i++) {
        if (!operate(i)) {
            return false;
        }
    }
    return true;
}

static void report(void)
{
    uint64_t changes = 0;

    for (kind_t i = 0; i < KINDS; i++) {
        printf("%s: %llu\n", kinds[i].name, (unsigned long long)made[i]);
        changes += made[i];
    }
    for (size_t i = 0; i < REGX_REASONS_MAX; i++) {
        const regx_tally_t *tally = &rig.counters.fallbacks[i];

        if (atomic_load(&tally->count) > 0) {
            printf("%s: %llu\n", tally->reason, (unsigned long long)atomic_load(&tally->count));
        }
    }
    rig_report(&rig, seed, changes, transfers, bytes);
    printf(" refused %llu\n", (unsigned long long)refused);
}

int main(int argc, char **argv)
{
    regx_error_t why;
    struct utsname kernel;
    unsigned major = 0, minor = 0;

    if (argc != 4) {
        fprintf(stderr, "usage: property BACKEND SEED OPERATIONS\n");
        return 2;
    }
    seed = strtoull(argv[2], NULL, 10);
    uname(&kernel);
    sscanf(kernel.release, "%u.%u", &major, &minor);
    one_file_alone = major < 6 || (major == 6 && minor < 5);
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* and stays there */
    rig_begin();
    if (!rig_open(&rig, argv[1], 0, why)) {
        printf("%s\n", why);
        rig_end();
        return UNAVAILABLE;
    }
    hooks_only = strcmp(argv[1], "hooks") == 0;
    arena_map(BY_LIBC, 0, PAGES, MAP_PRIVATE | MAP_FIXED_NOREPLACE);
    const bool right = run(strtoull(argv[3], NULL, 10));
    report();
    if (!right) {
        return 1;
    }
    rig_close(&rig);
    rig_end();
    return 0;
}
