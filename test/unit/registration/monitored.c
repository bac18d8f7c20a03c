/* SPDX-License-Identifier: BSD-3-Clause */
#include "monitored.h"

#include "../../below_room.h"

regx_counters_t counters;
char traced_line[256];

static void keep_line(const char *line)
{
    snprintf(traced_line, sizeof(traced_line), "%s", line);
}

static const regx_trace_t trace = {.level = REGX_TRACE_PATH, .write = keep_line};

regx_monitor_t *start(void)
{
    const regx_monitor_config_t config = {.counters = &counters, .trace = &trace};
    regx_monitor_t *monitor = NULL;
    regx_error_t error = "";

    memset(&counters, 0, sizeof(counters));
    unit_expect(regx_backend_notifier.start(&config, &monitor, error) == REGX_OK, "%s", error);
    return monitor;
}

int setup(void **state)
{
    *state = start();
    return 0;
}

int teardown(void **state)
{
    regx_monitor_t *monitor = *state;

    monitor->stop(monitor);
    return 0;
}

region_t keep(regx_monitor_t *monitor, void *base, size_t length)
{
    region_t region = {
        .monitor = monitor, .start = (uintptr_t)base, .end = (uintptr_t)base + length};

    /* What happened here before comes into the log. */
    await(atomic_load(&monitor->log->sequence) % 2 == 0);
    regx_inval_log_interest(monitor->log, region.start, region.end, 1);
    region.status = monitor->subscribe(monitor, region.start, region.end, &region.since);
    return region;
}

region_t must_keep(regx_monitor_t *monitor, void *base, size_t length)
{
    const region_t region = keep(monitor, base, length);

    assert_int_equal(region.status, REGX_OK);
    return region;
}

void drop(region_t *region)
{
    regx_inval_log_interest(region->monitor->log, region->start, region->end, -1);
}

bool hits(const region_t *region)
{
    regx_monitor_t *monitor = region->monitor;

    return (monitor->valid == NULL || monitor->valid(monitor)) &&
           atomic_load(&monitor->log->sequence) % 2 == 0 &&
           !regx_inval_log_touched(monitor->log, region->since, region->start, region->end, true);
}

bool hits_in_the_end(const region_t *region)
{
    await(region->monitor->valid(region->monitor) &&
          atomic_load(&region->monitor->log->sequence) % 2 == 0);
    return hits(region);
}

char *map(size_t length)
{
    char *base = map_below_room(length);

    assert_ptr_not_equal(base, MAP_FAILED);
    memset(base, 1, length);
    return base;
}

static bool refused(void)
{
    const regx_monitor_config_t config = {.counters = &counters};
    regx_monitor_t *monitor;
    regx_error_t error;

    if (regx_backend_notifier.start(&config, &monitor, error) == REGX_DENIED) {
        printf("1..0 # SKIP %s\n", error);
        return true;
    }
    monitor->stop(monitor);
    return false;
}

const unit_group_t unit_group = {.refused = refused};
