/* SPDX-License-Identifier: BSD-3-Clause
 *
 * retain: what malloc handed out stays mapped and keeps its pages, whichever thread had it. Each
 * case runs in a process of its own, since malloc cannot be told to forget.
 */
#include "../unit.h"

#include <sys/wait.h>

#include "registration/monitor/monitor.h"

static regx_status_t retain(regx_error_t error)
{
    static regx_counters_t counters;
    const regx_monitor_config_t config = {.counters = &counters};
    regx_monitor_t *monitor = NULL;
    const regx_status_t status = regx_backend_retain.start(&config, &monitor, error);

    if (status == REGX_OK) {
        if (monitor->valid != NULL || monitor->subscribe != NULL) {
            return REGX_FAILED;
        }
        monitor->stop(monitor); /* what was set outlives it */
    }
    return status;
}

/* ---- blocks taken, given back, and looked at ---- */

enum { MOST_BLOCKS = 400 };

typedef struct load {
    size_t size; /* of a block */
    unsigned blocks;
    bool older; /* in a thread that has its arena since before */
    atomic_int go;
    unsigned pages_gone;
} load_t;

static unsigned gone(uintptr_t block, size_t size)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned count = 0;

    for (uintptr_t at = (block + page - 1) & ~(page - 1); at + page <= block + size; at += page) {
        unsigned char there = 0;

        count += mincore((void *)at, page, &there) != 0 || (there & 1) == 0;
    }
    return count;
}

static void *run(void *argument)
{
    static uintptr_t places[MOST_BLOCKS];
    load_t *load = argument;
    void *blocks[MOST_BLOCKS];
    void *volatile block = malloc(100); /* it has its arena now */

    free(block);
    atomic_store(&load->go, 1);
    while (atomic_load(&load->go) < 2) {
    }
    for (unsigned i = 0; i < load->blocks; i++) {
        blocks[i] = malloc(load->size);
        memset(blocks[i], 1, load->size);
        places[i] = (uintptr_t)blocks[i];
    }
    for (unsigned i = 0; i < load->blocks; i++) {
        free(blocks[i]);
    }
    for (unsigned i = 0; i < load->blocks; i++) {
        load->pages_gone += gone(places[i], load->size);
    }
    return NULL;
}

/* How many pages are gone, after a start of retain or without. */
static int pages_gone(load_t load, bool retained)
{
    const pid_t child = fork();
    int status;

    if (child == 0) {
        regx_error_t error = "";
        pthread_t thread;

        if (load.older) {
            pthread_create(&thread, NULL, run, &load);
            while (atomic_load(&load.go) == 0) {
            }
        }
        if (retained && retain(error) != REGX_OK) {
            fprintf(stderr, "%s\n", error);
            _exit(255);
        }
        if (!load.older) {
            pthread_create(&thread, NULL, run, &load);
            while (atomic_load(&load.go) == 0) {
            }
        }
        atomic_store(&load.go, 2);
        pthread_join(thread, NULL);
        _exit(load.pages_gone > 200 ? 200 : (int)load.pages_gone);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

UNIT_TEST(free_gives_no_memory_back)
{
    static const load_t loads[] = {
        {.size = 300 << 10, .blocks = 20}, /* mappings of their own */
        {.size = 60 << 10, .blocks = 400}, /* on the heap */
        {.size = 80 << 20, .blocks = 1},
        {.size = 1 << 20, .blocks = 150, .older = true}, /* several heaps */
    };

    for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
        const int without = pages_gone(loads[i], false);
        const int retained = pages_gone(loads[i], true);

        unit_expect(without != 0 && retained == 0, "case %zu: %d pages gone without, %d with", i,
                    without, retained);
    }
}
