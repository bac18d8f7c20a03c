/* SPDX-License-Identifier: BSD-3-Clause */
#include "guarded.h"

#include <sys/mman.h>
#include <unistd.h>

#include "registration/monitor/monitor.h"

regx_monitor_t fake_monitor = {.name = "fake"};

void fake_changed(const void *start, size_t length)
{
    if (fake_monitor.log != NULL) {
        regx_inval_log_write(fake_monitor.log, (uintptr_t)start, (uintptr_t)start + length);
    }
}

guarded_t guarded_new(size_t length)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t before = page + (page - length % page) % page;
    guarded_t memory = {.length = length, .before = before};

    memory.mapped = mmap(NULL, before + length + page, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory.mapped, MAP_FAILED);
    assert_int_equal(mprotect(memory.mapped + before + length, page, PROT_NONE), 0);
    memory.base = memory.mapped + before;
    memset(memory.mapped, 0xee, before);
    return memory;
}

void guarded_free(guarded_t *memory)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t i = 0; i < memory->before; i++) {
        if (memory->mapped[i] != 0xee) {
            fail_msg("written %zu bytes before the buffer", memory->before - i);
        }
    }
    fake_changed(memory->mapped, memory->before + memory->length + page);
    munmap(memory->mapped, memory->before + memory->length + page);
    memory->base = NULL;
}

void guarded_fill(const guarded_t *memory, uint64_t stream)
{
    for (size_t i = 0; i < memory->length; i++) {
        memory->base[i] = unit_stamp(stream, i);
    }
}
