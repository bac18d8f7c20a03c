/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Start here: why a cache of registrations has to be told of changes.
 *
 *     seven_steps [BACKEND...]
 *
 * A program sends a buffer, gives the memory back, gets new memory at the same address, and sends
 * that. A cache that goes by addresses finds the address registered, and the device sends what it
 * had pinned: the first buffer's bytes. Nothing fails, nothing is logged; the data is wrong.
 * `unprotected` is regx's cache with a monitor that never tells of anything; the other backends do
 * better. What happens is printed, step by step. Ends with 1 if it is not what should, and with 77
 * where there is no device (linked with oracle_verbs.c: an RDMA device).
 */
#include <sys/mman.h>

#include "rig.h"

enum { LENGTH = 64 << 10, UNAVAILABLE = 77 };

static const char *const usual[] = {"unprotected", "none",           "hooks",
                                    "notifier",    "hooks+notifier", NULL};

static rig_t rig;

/* New memory, at that address if one is given. */
static char *new_memory(char *at)
{
    char *memory =
        mmap(at, LENGTH, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | (at == NULL ? 0 : MAP_FIXED_NOREPLACE), -1, 0);

    if (memory == MAP_FAILED || (at != NULL && memory != at)) {
        perror("seven_steps: mmap");
        exit(2);
    }
    return memory;
}

/* Sends the buffer, which is all one letter; whether the peer gets that, from its first byte to its
 * last. */
static bool send(char *buffer)
{
    static char wire[LENGTH];
    const uint64_t hits = rig_count(&rig, &rig.counters.hits);
    regx_region_t region;

    if (regx_region_acquire(&rig.registry, buffer, LENGTH, REGX_ACCESS_LOCAL, &region) != REGX_OK) {
        fprintf(stderr, "seven_steps: the device does not register memory\n");
        exit(2);
    }
    memset(wire, '?', LENGTH);
    oracle_send(rig.oracle, region.mr, buffer, LENGTH, wire);
    regx_region_release(&rig.registry, &region);
    const bool hit = rig_count(&rig, &rig.counters.hits) != hits;
    const bool right = memcmp(wire, buffer, LENGTH) == 0;
    printf("%s; the peer gets %c%s\n",
           hit ? "its address is registered already" : "it is registered", wire[0],
           right ? "" : ": WRONG");
    return right;
}

/* Whether all the peer got was right. */
static bool seven_steps(void)
{
    printf("  1. Buffer A is allocated, and filled with A.\n");
    char *buffer = new_memory(NULL);
    memset(buffer, 'A', LENGTH);
    printf("  2. A is sent: ");
    bool right = send(buffer);
    printf("  3. A is sent again: ");
    right = send(buffer) && right;
    printf("  4. A is freed.\n");
    munmap(buffer, LENGTH);
    printf("  5. Buffer B is allocated: at the same address.\n");
    new_memory(buffer);
    printf("  6. B is filled with B.\n");
    memset(buffer, 'B', LENGTH);
    printf("  7. B is sent: ");
    right = send(buffer) && right;
    munmap(buffer, LENGTH);
    return right;
}

int main(int argc, char **argv)
{
    const char *const *backends = argc > 1 ? (const char *const *)argv + 1 : usual;
    int status = 0;
    regx_error_t why;

    rig_begin();
    for (const char *const *backend = backends; *backend != NULL; backend++) {
        printf("%s%s\n", backend == backends ? "" : "\n", *backend);
        if (!rig_open(&rig, *backend, 0, why)) {
            printf("  %s\n", why);
            status = UNAVAILABLE;
            break;
        }
        if (seven_steps() != (strcmp(*backend, "unprotected") != 0)) {
            status = 1;
        }
        rig_close(&rig);
    }
    rig_end();
    return status;
}
