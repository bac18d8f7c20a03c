/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory that the simulator's messages are in, and what replaces parts of it in mid-transfer.
 * A registration is of the pages that were there when it was made: what is written by it to a page
 * that was replaced since is lost.
 */
#include "sim.h"

#include "base/util.h"

enum { CHANGED = 0x77, GAP = 256 };

/* ---- what changes ---- */

void sim_memory_replaced(uintptr_t start, uintptr_t end)
{
    sim_check(sim.stale_count < sizeof(sim.stales) / sizeof(sim.stales[0]));
    sim.stales[sim.stale_count++] = (sim_stale_t){start, end, ++sim.tick};
}

void sim_memory_report(uintptr_t start, uintptr_t end)
{
    if (sim.monitor.log != NULL) {
        regx_inval_log_write(sim.monitor.log, start, end);
    }
}

bool sim_is_stale(const sim_window_t *window, const uint8_t *at)
{
    for (unsigned i = 0; i < sim.stale_count; i++) {
        const sim_stale_t *stale = &sim.stales[i];

        if (stale->tick > window->tick && (uintptr_t)at >= stale->start &&
            (uintptr_t)at < stale->end) {
            return true;
        }
    }
    return false;
}

bool sim_is_gone(const void *base, size_t length)
{
    const uint8_t *start = base;
    bool gone = false;

    for (unsigned i = 0; i < SIM_CHANGES; i++) {
        const sim_change_t *change = &sim.changes[i];

        gone |= change->gone && start < change->start + change->length &&
                start + length > change->start;
    }
    return gone;
}

static void make_change(sim_change_t *change)
{
    sim_show("memory: %zu bytes from %zu on are replaced", change->length,
             (size_t)(change->start - change->of->target));
    change->made = true;
    sim_memory_replaced((uintptr_t)change->start, (uintptr_t)change->start + change->length);
    change->tick = sim.tick;
    memset(change->start, CHANGED, change->length);
}

static void report_change(sim_change_t *change)
{
    sim_show("memory: reported, %zu bytes", change->length);
    change->reported = true;
    change->of->outdated = change->of->watched && change->again == 0;
    sim_memory_report((uintptr_t)change->start, (uintptr_t)change->start + change->length);
}

/* Pages of the first receive that is open and has some, for itself. */
static bool choose_pages(sim_change_t *change)
{
    for (unsigned i = 0; i < sim.message_count; i++) {
        const size_t ahead =
            sim.scenario->adjoins ? -(uintptr_t)sim.messages[i].target % SIM_PAGE : 0;
        const unsigned pages = (unsigned)((sim.messages[i].length - ahead) / SIM_PAGE);

        if (sim.messages[i].recv != NULL && pages > 0) {
            const unsigned first = sim_chance(pages);

            change->of = &sim.messages[i];
            change->start = sim.messages[i].target + ahead + (size_t)first * SIM_PAGE;
            change->length = (1 + (size_t)sim_chance(pages - first)) * SIM_PAGE;
            return true;
        }
    }
    return false;
}

void sim_memory_change(sim_trouble_t trouble)
{
    sim_change_t *change = &sim.changes[sim.changes[0].of != NULL]; /* when that is over */

    if (sim.changes[0].gone || sim_memory_goes_on(&sim.changes[0]) || change->of != NULL ||
        !choose_pages(change)) {
        return;
    }
    const unsigned way = trouble == SIM_CHANGED ? sim_chance(3) : 0;

    change->again = trouble == SIM_CHANGING ? 110 : 0;
    change->secret = trouble == SIM_SECRET;
    change->unwatched = trouble == SIM_UNWATCHED;
    change->gone = trouble == SIM_GONE;
    change->forever = change->gone && sim_chance(2) == 0;
    if (way != 1) {
        make_change(change);
    }
    if (way != 2 && !change->secret) {
        report_change(change);
    }
    if (change->gone) {
        sim_check(mprotect(change->start, change->length, PROT_NONE) == 0);
    }
}

bool sim_memory_goes_on(const sim_change_t *change)
{
    return change->of != NULL &&
           (!change->made || (!change->reported && !change->secret) ||
            (change->again > 0 && change->due) || (change->gone && !change->forever));
}

void sim_memory_go_on(sim_change_t *change)
{
    if (change->gone) {
        change->gone = false;
        sim_check(mprotect(change->start, change->length, PROT_READ | PROT_WRITE) == 0);
    }
    if (!change->made && change->of->recv != NULL) {
        make_change(change);
    }
    change->made = true;
    if (!change->reported || change->due) {
        change->due = false;
        report_change(change);
        change->again -= change->again > 0;
    }
}

void sim_memory_come_back(const sim_message_t *message)
{
    for (unsigned i = 0; i < SIM_CHANGES; i++) {
        if (sim.changes[i].of == message && sim.changes[i].gone) {
            sim_memory_go_on(&sim.changes[i]);
        }
    }
}

void sim_memory_excuse(const sim_message_t *message)
{
    for (unsigned i = 0; i < SIM_CHANGES; i++) {
        const sim_change_t *change = &sim.changes[i];

        if (change->of == message && change->made &&
            (!message->watched || change->forever ||
             (message->looked > 0 && change->tick > message->looked))) {
            sim_memory_come_back(message);
            memcpy(change->start, message->content + (change->start - message->target),
                   change->length);
        }
    }
}

/* ---- what reports it, to both processes ---- */

static bool nothing_is_unreported(regx_monitor_t *monitor)
{
    bool unreported = sim.scenario->restless;

    for (unsigned i = 0; i < SIM_CHANGES; i++) {
        const sim_change_t *change = &sim.changes[i];

        unreported |= change->of != NULL && change->made && !change->reported;
    }
    return !unreported;
}

static regx_status_t watch(regx_monitor_t *monitor, uintptr_t start, uintptr_t end, uint64_t *since)
{
    *since = atomic_load(&monitor->log->head);
    return sim.changes[0].unwatched || sim.changes[1].unwatched ? REGX_DENIED : REGX_OK;
}

/* What is gone is not mapped. */
UNIT_WRAP(int, msync, void *start, size_t length, int flags)
{
    errno = ENOMEM;
    return sim_is_gone(start, length) ? -1 : 0;
}

/* ---- what the component maps ---- */

/* Each run opens caches, of mostly untouched memory. To map it anew and bring its pages in costs ten
 * times what else a run does, so it is cleared and given again. (Not where pages are moved.) */
static struct sim_mapping {
    void *base; /* NULL: none */
    size_t length;
    bool used;
} mappings[SIM_MAPPINGS];

static struct sim_mapping *find_mapping(const void *base, size_t length)
{
    for (unsigned i = 0; i < SIM_MAPPINGS; i++) {
        struct sim_mapping *mapping = &mappings[i];

        if (base != NULL ? mapping->base == base : !mapping->used && mapping->length == length) {
            return mapping;
        }
    }
    return NULL;
}

UNIT_WRAP(void *, mmap, void *where, size_t length, int access, int flags, int file, off_t offset)
{
    const bool keeps = (flags & MAP_NORESERVE) != 0 && strcmp(sim.scenario->strategy, "remap") != 0;
    struct sim_mapping *mapping = keeps ? find_mapping(NULL, length) : NULL;

    if (mapping != NULL) {
        mapping->used = true;
        return memset(mapping->base, 0, length);
    }
    void *base = __real_mmap(where, length, access, flags, file, offset);
    mapping = keeps ? find_mapping(NULL, 0) : NULL;
    if (mapping != NULL && base != MAP_FAILED) {
        *mapping = (struct sim_mapping){base, length, true};
    }
    return base;
}

UNIT_WRAP(int, munmap, void *base, size_t length)
{
    struct sim_mapping *mapping = find_mapping(base, length);

    if (mapping == NULL) {
        return __real_munmap(base, length);
    }
    mapping->used = false;
    return 0;
}

UNIT_WRAP(void *, malloc, size_t size)
{
    const sim_scenario_t *scenario = sim.scenario;

    return scenario != NULL && scenario->poor && size == scenario->slot ? NULL
                                                                        : __real_malloc(size);
}

/* ---- buffers ---- */

void sim_memory_open(void)
{
    const sim_scenario_t *scenario = sim.scenario;
    size_t longest = 0;

    for (unsigned i = 0; i < 8; i++) {
        longest = regx_max(longest, scenario->lengths[i]);
    }
    sim.each = (scenario->skew + longest + 3 * SIM_PAGE - 1) & ~(size_t)(SIM_PAGE - 1);
    sim.memory_size = 2 * sim.message_count * sim.each;
    sim.memory =
        mmap(NULL, sim.memory_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sim.content = malloc(longest + SIM_MESSAGES);
    sim_check(sim.memory != MAP_FAILED && sim.content != NULL);
    unit_fill(sim.content, longest + SIM_MESSAGES, 1, 0);
    if (scenario->cached) {
        sim.monitor = (regx_monitor_t){
            .log = regx_inval_log_open(), .valid = nothing_is_unreported, .subscribe = watch};
        sim_check(sim.monitor.log != NULL);
    }
}

void sim_memory_close(void)
{
    munmap(sim.memory, sim.memory_size);
    sim.memory = NULL;
    free(sim.content);
    if (sim.monitor.log != NULL) {
        regx_inval_log_close(sim.monitor.log);
        sim.monitor.log = NULL;
    }
}

static uint8_t *buffer_of(unsigned number, unsigned side)
{
    const bool again = sim.scenario->reuses && !(sim.scenario->fresh && side == 0);
    const unsigned of = again ? number % 2 : number;

    if (sim.scenario->adjoins && side == 1) {
        return sim.memory + sim.message_count * sim.each + GAP +
               of * (sim.scenario->lengths[0] + GAP);
    }
    if (sim.scenario->adjoins) {
        return sim.memory + of * sim.each + GAP;
    }
    return sim.memory + (2 * of + side) * sim.each + SIM_PAGE + sim.scenario->skew;
}

void sim_memory_reset(void)
{
    const sim_scenario_t *scenario = sim.scenario;
    unsigned lengths = 0;

    while (lengths < 8 && scenario->lengths[lengths] > 0) {
        lengths++;
    }
    sim.message_count = scenario->count > 0 ? scenario->count : lengths;
    sim_check(sim.message_count <= SIM_MESSAGES);
    for (unsigned i = 0; i < sim.message_count && sim.memory != NULL; i++) {
        sim.messages[i] =
            (sim_message_t){.from = scenario->both_ways ? i % 2 : 0,
                            .length = scenario->lengths[scenario->deep ? i > 0 : i % lengths],
                            .content = sim.content + i,
                            .source = buffer_of(i, 0),
                            .target = buffer_of(i, 1)};
    }
}
