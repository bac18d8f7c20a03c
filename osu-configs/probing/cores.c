// SPDX-License-Identifier: BSD-3-Clause
//
// Which two cores the processes are bound to.

#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "probe.h"

void die(const char *what)
{
    fprintf(stderr, "probe: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void topology(int cpu, const char *what, char *text, int bytes)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(text, bytes, file) == NULL)
        text[0] = 0;
    if (file != NULL)
        fclose(file);
}

// The first two cores as mpirun --map-by core --bind-to core takes them: the first allowed one,
// and the next of the same package that is not its hardware thread; else any other.
void choose_cores(int core[2])
{
    cpu_set_t allowed;
    char package[64], threads[64], other[64];
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        die("sched_getaffinity");
    core[0] = core[1] = -1;
    for (int cpu = 0, near = 0; cpu < CPU_SETSIZE && !near; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &allowed))
            continue;
        if (core[0] < 0) {
            core[0] = cpu;
            topology(cpu, "physical_package_id", package, sizeof package);
            topology(cpu, "thread_siblings_list", threads, sizeof threads);
            continue;
        }
        topology(cpu, "thread_siblings_list", other, sizeof other);
        if (threads[0] != 0 && strcmp(threads, other) == 0)
            continue;
        topology(cpu, "physical_package_id", other, sizeof other);
        near = strcmp(package, other) == 0;
        if (core[1] < 0 || near)
            core[1] = cpu;
    }
    if (core[1] < 0) {
        fprintf(stderr, "probe: two cores are needed; this process may use one only\n");
        exit(1);
    }
}

void bind_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("sched_setaffinity");
}
