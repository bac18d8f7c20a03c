/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/node.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/utsname.h>

/* FNV-1a. */
static uint64_t hash(uint64_t value, const char *text)
{
    for (; *text != '\0'; text++) {
        value = (value ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    }
    return value;
}

static uint64_t machine(void)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    struct utsname names = {0};
    char boot[64] = "";

    if (file != NULL) {
        if (fgets(boot, sizeof(boot), file) == NULL) {
            boot[0] = '\0';
        }
        fclose(file);
    }
    uname(&names);
    return hash(hash(UINT64_C(0xcbf29ce484222325), boot), names.nodename);
}

static uint64_t space(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 ? status.st_ino : 0;
}

regx_shm_node_t regx_shm_node(void)
{
    return (regx_shm_node_t){.machine = machine(),
                             .processes = space("/proc/self/ns/pid"),
                             .ipc = space("/proc/self/ns/ipc")};
}

bool regx_shm_node_same(const regx_shm_node_t *a, const regx_shm_node_t *b)
{
    return a->machine == b->machine && a->processes != 0 && a->processes == b->processes &&
           a->ipc == b->ipc;
}
