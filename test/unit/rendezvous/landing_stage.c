/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "landing_stage.h"

#include <stdlib.h>
#include <sys/mman.h>

static void changes(void *context, uintptr_t start, uintptr_t end)
{
    stage_t *stage = context;

    stage->tellings++;
    if (stage->told != NULL) {
        stage->told(stage, start, end);
    }
}

char *map(size_t bytes, int flags, int fd)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

stage_t *stage_open(void)
{
    stage_t *stage = calloc(1, sizeof(*stage));

    assert_non_null(stage);
    stage->config = (regx_rndv_config_t){
        .chunk_size = SIZE, .chunk_depth = COUNT / 2, .changes = changes, .context = stage};
    regx_landings_init(&stage->landings, &stage->config, &stage->counters);
    stage->buffer = map(ROOM, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    assert_non_null(stage->buffer);
    return stage;
}

void stage_close(stage_t *stage)
{
    munmap(stage->buffer, ROOM);
    regx_landings_fini(&stage->landings);
    free(stage);
}

bool pages_can_be_moved(void)
{
    stage_t *stage = stage_open();
    const char *refusal = regx_landings_refusal(&stage->landings, stage->buffer, PAGE);

    if (refusal != NULL) {
        print_message("not tried: %s\n", refusal);
    }
    stage_close(stage);
    return refusal == NULL;
}

regx_landing_t *land(stage_t *stage, char *to, size_t length)
{
    assert_null(regx_landings_refusal(&stage->landings, to, length));
    regx_landing_t *landing = regx_landing_get(&stage->landings, to, length);

    assert_non_null(landing);
    stage->to = to;
    stage->length = length;
    stage->stream++;
    unit_fill((uint8_t *)regx_landing_at(&stage->landings, landing, to), length, stage->stream, 0);
    return landing;
}

const char *deliver(stage_t *stage, regx_landing_t *landing)
{
    const regx_counters_t *counters = &stage->counters;
    const uint64_t before = counters->remap_pages * PAGE + counters->remap_copied_bytes;
    char *const to = stage->to;
    char *const end = to + stage->length;
    /* What lies beside it in its first and last page. */
    const size_t left = (uintptr_t)to % PAGE;
    const size_t right = (PAGE - (uintptr_t)end % PAGE) % PAGE;
    uint8_t beside[2][PAGE];

    memcpy(beside[0], to - left, left);
    memcpy(beside[1], end, right);
    const char *reason = regx_landing_deliver(&stage->landings, landing, to, stage->length);
    assert_true(unit_is_filled((const uint8_t *)to, stage->length, stage->stream));
    assert_memory_equal(beside[0], to - left, left);
    assert_memory_equal(beside[1], end, right);
    assert_int_equal(counters->remap_pages * PAGE + counters->remap_copied_bytes - before,
                     stage->length);
    return reason;
}

const char *go(stage_t *stage, char *to, size_t length)
{
    regx_landing_t *landing = land(stage, to, length);
    const char *reason = deliver(stage, landing);

    regx_landing_put(&stage->landings, landing);
    return reason;
}

size_t whole_pages(const char *to, size_t length)
{
    const uintptr_t start = ((uintptr_t)to + PAGE - 1) / PAGE;
    const uintptr_t end = ((uintptr_t)to + length) / PAGE;

    return end > start ? end - start : 0;
}
