/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Backend `odp`: regions on demand (on-demand paging), a property of the device. The monitor that
 * the cache gets is silent; what is asked before each use is asked here. Nothing is pinned: the
 * device asks the kernel for a page when it needs one, and the kernel notifies it when the page is
 * replaced. So a registration follows its range of addresses, whatever is mapped there, and is kept
 * without anybody telling of changes.
 *
 * Guarantees: a transfer reads and writes what is mapped at that time, however it came there
 * (munmap, mremap, madvise, punched holes, shared memory, raw system calls). Memory that is not
 * mapped when a chunk is about to be granted or sent is found by asking the kernel, and bounced,
 * which leaves out what is missing. Nothing counts against the limit of locked memory; the cache's
 * budget then bounds what the device's driver keeps about pages (16 bytes of each, about).
 * Some devices err with what does not begin where a page does (Soft-RoCE of Linux 7.2); the
 * self-test finds that out, and such buffers are pinned for each use, and counted. Is blind to
 * changes while a transfer is under way, which are the application's error: the device reads and
 * writes whatever is there when it comes to a page, also what another part of the program has
 * mapped meanwhile. If nothing is, or what may not be so used (PROT_NONE, receiving into
 * PROT_READ), the device fails the request, which ends the connection and, under ob1, the job; one
 * line says so. The same goes for what mprotect made so before the transfer, once the region was
 * there, unless prefetching touches it, which finds out: then it is bounced. And mlx5 asks the
 * kernel for pages of a region that may be written as to be written, whatever it does with them
 * (its pagefault_real_mr; not tried here): memory that was received into and is PROT_READ since can
 * then not be sent from either. Kept regions can be reached by any peer that holds their key until
 * they are evicted, and so whatever is mapped there later.
 * Costs: a page that the device has not seen, or that was replaced, is a fault of the device, which
 * stops its connection meanwhile. Each munmap and the like over a kept region notifies the driver.
 * What prefetching saves of that, on Soft-RoCE of Linux 7.2 and a library that can advise, in
 * faults for 280 MiB in chunks of 1 MiB between freshly mapped buffers (71,680 pages at each end):
 * none 120,000, touch 120,000, advise 60,300, which are the sender's, since this device takes no
 * advice about what is not writable. With buffers that are used again all three make none. Touching
 * spares the device's fault the wait for the kernel to find a page, not the fault.
 */
#include <errno.h>
#include <stdlib.h>

#include "registration/monitor/monitor.h"

enum { TO_READ, TO_WRITE, DIRECTIONS };

/* How pages are brought in before the device needs them: it is asked to; or the process maps them,
 * and the device still takes page faults; or they are not. */
typedef enum way { ADVISE, TOUCH, NOTHING } way_t;

typedef struct regx_on_demand {
    regx_monitor_t super;
    regx_transport_t *transport;
    regx_counters_t *counters;
    way_t ways[DIRECTIONS]; /* the best that works here */
    uintptr_t page;         /* bytes */
} regx_on_demand_t;

static const unsigned accesses[DIRECTIONS] = {
    [TO_READ] = REGX_ACCESS_LOCAL, [TO_WRITE] = REGX_ACCESS_REMOTE_WRITE};
static const int touches[DIRECTIONS] = {
    [TO_READ] = MADV_POPULATE_READ, [TO_WRITE] = MADV_POPULATE_WRITE};

static bool follows(const regx_monitor_t *monitor, const void *base, size_t length)
{
    const regx_on_demand_t *odp = (const regx_on_demand_t *)monitor;
    const bool whole = (uintptr_t)base % odp->transport->on_demand_grain == 0;

    if (!whole) {
        regx_monitor_fallback(monitor, odp->counters, (uintptr_t)base, (uintptr_t)base + length,
                              "odp: pinned, not where a page begins");
    }
    return whole;
}

static regx_status_t ready(const regx_monitor_t *monitor, const regx_mr_t *mr, void *base,
                           size_t length, unsigned access)
{
    const regx_on_demand_t *odp = (const regx_on_demand_t *)monitor;
    const uintptr_t start = (uintptr_t)base & ~(odp->page - 1);
    const uintptr_t end = regx_align_up((uintptr_t)base + length, odp->page);
    const int direction = (access & REGX_ACCESS_ANY_WRITE) != 0 ? TO_WRITE : TO_READ;

    if (odp->ways[direction] == TOUCH) {
        /* The kernel maps pages as a use of them would, without one. */
        if (madvise((void *)start, end - start, touches[direction]) == 0) {
            regx_count(odp->counters, &odp->counters->prefetch_touched, 1);
            return REGX_OK;
        }
        if (errno != EINTR && errno != EAGAIN) { /* they cannot be used so */
            return REGX_DENIED;
        }
        /* Interrupted, or short of something: the device may have more luck. */
    }
    if (!regx_is_mapped(start, end)) {
        return REGX_DENIED;
    }
    if (odp->ways[direction] == ADVISE &&
        odp->transport->ops->prefetch(odp->transport, mr, base, length, false) != REGX_OK) {
        regx_monitor_fallback(monitor, odp->counters, (uintptr_t)base, (uintptr_t)base + length,
                              "odp: advice refused, no prefetch");
    }
    return REGX_OK;
}

/* Whether library and device take advice for such regions, seen on a page of our own. It is waited
 * for: what is only noted for later is answered with success, whatever comes of it. */
static bool can_advise(const regx_on_demand_t *odp, void *scratch, int direction)
{
    const regx_transport_ops_t *ops = odp->transport->ops;
    regx_mr_t mr;

    if (ops->reg(odp->transport, scratch, odp->page, accesses[direction] | REGX_ACCESS_ON_DEMAND,
                 &mr) != REGX_OK) {
        return false;
    }
    const regx_status_t status = ops->prefetch(odp->transport, &mr, scratch, odp->page, true);

    ops->dereg(odp->transport, &mr);
    return status == REGX_OK;
}

static void choose_ways(regx_on_demand_t *odp)
{
    void *scratch =
        mmap(NULL, odp->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uintptr_t start = (uintptr_t)scratch;

    for (int direction = 0; direction < DIRECTIONS; direction++) {
        odp->ways[direction] = NOTHING;
        if (scratch == MAP_FAILED) {
            continue;
        }
        if (can_advise(odp, scratch, direction)) {
            odp->ways[direction] = ADVISE;
        } else if (madvise(scratch, odp->page, touches[direction]) == 0) {
            odp->ways[direction] = TOUCH;
        } else {
            regx_monitor_fallback(&odp->super, odp->counters, start, start + odp->page,
                                  "odp: this kernel touches nothing, no prefetch");
        }
    }
    if (scratch != MAP_FAILED) {
        munmap(scratch, odp->page);
    }
}

static regx_status_t odp_start(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                               regx_error_t error)
{
    regx_transport_t *transport = config->transport;

    if (transport->ops->on_demand == NULL) {
        return regx_refuse(
            error, REGX_DENIED,
            "btl_regx_transport=%s has no on-demand regions (verbs has, on devices that can)",
            transport->ops->name);
    }
    const regx_status_t status = transport->ops->on_demand(transport, error);
    if (status != REGX_OK) {
        return status;
    }
    regx_on_demand_t *odp = calloc(1, sizeof(*odp));

    if (odp == NULL || (odp->super.log = regx_inval_log_open()) == NULL) {
        free(odp);
        return regx_refuse(error, REGX_NO_MEMORY, "out of memory");
    }
    odp->super.trace = config->trace;
    odp->super.by_device = true;
    odp->super.follows = follows;
    odp->super.ready = ready;
    odp->super.stop = regx_monitor_free;
    odp->transport = transport;
    odp->counters = config->counters;
    odp->page = regx_page_size();
    choose_ways(odp);
    *monitor = &odp->super;
    return REGX_OK;
}

const regx_backend_t regx_backend_odp = {
    .name = "odp", .start = odp_start, .pins_nothing = true, .needs_transfers = true};
