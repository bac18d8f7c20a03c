/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/backend.h"

#include <stdio.h>
#include <string.h>

#include "registration/on_demand.h"

/* Registers and deregisters per use. Guarantees that no registration outlives the transfer that
 * made it, so none can be stale; a change of the mapping during a transfer is the application's
 * error. Needs to see no event. The honest baseline of every comparison. */
const regx_backend_t regx_backend_none = {
    .name = "none", .help = "nothing is kept: each transfer registers and deregisters"};

/* The one table of backends. What each guarantees, and what it is blind to, stands at the head of
 * its file. */
static const regx_backend_t *const backends[] = {
    &regx_backend_none,
    &(const regx_backend_t){
        .name = "hooks",
        .start = regx_monitor_hooks,
        .help = "libc's functions report what they unmap, see btl_regx_hooks; blind to raw system "
                "calls",
        .more = "They report in the thread that calls them. They are also blind to where "
                "mremap(MREMAP_FIXED) moves something, to MADV_DONTNEED_LOCKED and "
                "MADV_GUARD_INSTALL, to holes punched into mapped files and their truncation, to "
                "process_madvise, dlclose, what shmdt takes of a segment that was split, what "
                "MAP_FIXED|MAP_HUGETLB takes beyond the length asked for, and the heap's end (brk) "
                "that another thread moves at the moment. They tell before the change is made: "
                "memory that is taken away by one thread while another uses it (an error) may "
                "leave a registration of the old pages behind."},
    &(const regx_backend_t){
        .name = "notifier",
        .start = regx_monitor_notifier,
        .help = "the kernel reports it, by userfaultfd; keeps private anonymous memory only, see "
                "btl_regx_notifier_check",
        .more =
            "It reports what is unmapped, however that was done, also for ordinary users; "
            "Linux 5.18 and later. Shared memory and mapped files are registered for each use. "
            "Blind to MADV_GUARD_INSTALL, and to shmat(SHM_REMAP) over private memory unless "
            "btl_regx_notifier_check is scan; before Linux 6.17 also to another userfaultfd of the "
            "process that unregisters our memory; and MADV_DONTNEED, MADV_FREE and MADV_REMOVE are "
            "told before they are made, as by hooks. A thread of its own in each process, and "
            "over devices that pin memory another for each port, which gives back what is freed "
            "while the program computes. "
            "Whole mappings are watched: to unmap anything in one takes 14 us, not 5; mremap "
            "of a range that is watched in part fails (EFAULT; since Linux 6.17 after it has "
            "taken away what was at a fixed destination); and other users of userfaultfd find "
            "such memory busy."},
    &(const regx_backend_t){
        .name = "hooks+notifier",
        .start = regx_monitor_hooks_notifier,
        .help = "both of them",
        .more = "Also sees SHM_REMAP. The report's hooks_missed says how much hooks alone would "
                "not have seen."},
    &(const regx_backend_t){
        .name = "odp",
        .start = regx_on_demand_start,
        .help = "on-demand paging: nothing is pinned, the device follows the mapping; with "
                "btl_regx_transport verbs on devices that can, see btl_regx_odp_prefetch",
        .more = "Devices that can: of NVIDIA's, or Soft-RoCE of Linux 6.15 and later. It sees "
                "everything; but memory that is unmapped while a transfer is under way ends the "
                "job, so may memory that was received into and then made read-only, and the key "
                "that a peer was given reaches whatever is mapped in that place until the "
                "registration is evicted."},
    &(const regx_backend_t){
        .name = "retain",
        .start = regx_monitor_retain,
        .help = "malloc never gives memory back; only for programs that map no memory themselves",
        .more = "For programs that communicate from malloc'ed memory alone: whatever else they "
                "unmap is not seen. Not for those that call malloc_trim, or free blocks of 128 KiB "
                "and more from before MPI_Init or, in threads, of more than 64 MiB. The process "
                "keeps the most memory it ever had."},
};

enum { BACKENDS = sizeof(backends) / sizeof(backends[0]) };
enum { WHY = REGX_BACKEND_REASON - 16 }; /* room for why one cannot be used */

bool regx_backend_word(unsigned index, regx_param_word_t *word)
{
    if (index == 0) {
        *word = (regx_param_word_t){
            .word = "auto",
            .help = "none where registering costs nothing, else notifier where it passes its "
                    "self-test, else none"};
        return true;
    }
    if (index > BACKENDS) {
        return false;
    }
    *word = (regx_param_word_t){.word = backends[index - 1]->name,
                                .help = backends[index - 1]->help,
                                .more = backends[index - 1]->more};
    return true;
}

const regx_backend_t *regx_backend_find(const char *name)
{
    for (int i = 0; i < BACKENDS; i++) {
        if (strcmp(name, backends[i]->name) == 0) {
            return backends[i];
        }
    }
    return NULL;
}

static regx_status_t start(const char *name, const regx_monitor_config_t *config,
                           regx_backend_choice_t *choice, char *error, size_t error_size)
{
    choice->backend = regx_backend_find(name);
    choice->monitor = NULL;
    return choice->backend->start == NULL
               ? REGX_OK
               : choice->backend->start(config, &choice->monitor, error, error_size);
}

static void choose_auto(bool registering_is_free, const regx_monitor_config_t *config,
                        regx_backend_choice_t *choice)
{
    char error[WHY];

    if (!registering_is_free &&
        start("notifier", config, choice, error, sizeof(error)) == REGX_OK) {
        snprintf(choice->reason, sizeof(choice->reason), "passed its self-test");
        return;
    }
    choice->backend = &regx_backend_none;
    choice->monitor = NULL;
    if (registering_is_free) {
        snprintf(choice->reason, sizeof(choice->reason), "not needed");
    } else {
        snprintf(choice->reason, sizeof(choice->reason), "notifier: %s", error);
    }
}

/* ", NAME" where it works. Only some can be tried without leaving a trace: hooks patch code, retain
 * changes malloc for good. */
static const char *usable_instead(const char *name, const char *refused,
                                  const regx_monitor_config_t *config, const char *text)
{
    regx_backend_choice_t other;
    char error[WHY];

    if (strcmp(name, refused) == 0 ||
        start(name, config, &other, error, sizeof(error)) != REGX_OK) {
        return "";
    }
    other.monitor->stop(other.monitor);
    return text;
}

regx_status_t regx_backend_choose(const char *name, bool registering_is_free,
                                  const regx_monitor_config_t *config,
                                  regx_backend_choice_t *choice, char *error, size_t error_size)
{
    char why[WHY];

    if (strcmp(name, "auto") == 0) {
        choose_auto(registering_is_free, config, choice);
        return REGX_OK;
    }
    const regx_status_t status = start(name, config, choice, why, sizeof(why));
    if (status == REGX_OK) {
        snprintf(choice->reason, sizeof(choice->reason), "asked for");
        return REGX_OK;
    }
    snprintf(error, error_size, "cannot be used: %s; usable here: none%s%s", why,
             usable_instead("notifier", name, config, ", notifier"),
             usable_instead("odp", name, config, ", odp"));
    return REGX_DENIED;
}
