/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Each change of the table of staleness (table.h), and whether the device tells of it.
 */
#include <malloc.h>

#include "notify.h"
#include "table.h"

static void try_row(const row_t *row)
{
    const char *kind = row->stale ? "stale" : "right", *seen = "refused";
    place_t place;

    open_device();
    if (place_open(&place, row, BY_LIBC)) {
        /* Whole pages, of which malloc's blocks may lie beside others. */
        char *from = (char *)((uintptr_t)place.target & ~(page - 1));
        const size_t length =
            (size_t)(((char *)place.target - from) + (ptrdiff_t)(place.length + page - 1)) &
            ~(page - 1);

        memset(place.target, 1, place.length);
        MUST(watch(from, length) == 0);
        const uint64_t before = count();
        if (row_change(row, &place)) {
            seen = was_told(before, from, length) ? "told"
                   : count() == before            ? "still"
                                                  : "told of another";
        }
    }
    printf("%s\t%s\t%s\n", row->name, kind, seen);
}

int try_rows(void)
{
    /* As the table does: so that the heap shrinks when its end is free. */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_TRIM_THRESHOLD, 128 << 10);
    mallopt(M_TOP_PAD, 0);
    for (size_t i = 0; i < row_count; i++) {
        int status = -1;

        fflush(stdout);
        /* Each in a process of its own, which may take away what it likes. */
        const pid_t child = fork();
        if (child == 0) {
            try_row(&rows[i]);
            fflush(stdout);
            _exit(0);
        }
        MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    return 0;
}
