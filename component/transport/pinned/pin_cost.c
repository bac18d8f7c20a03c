/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a registration is to take. Pinning by io_uring takes less than registering with an adapter,
 * which has tables of its own to fill in.
 */
#include "transport/pinned/pinned.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 4096u       /* bytes, whatever the machine's are: profiles are of such */
#define MOST 1000000000L /* ns of one registration, and of one page */

/* Each with its source. */
static const struct {
    const char *name;
    regx_pin_cost_t cost;
} profiles[] = {
    /* UCX, src/uct/ib/base/ib_md.c: MEM_REG_OVERHEAD 16us, MEM_REG_GROWTH 0.06ns (a byte): what it
     * reckons with where a device says nothing. */
    {"ucx", {.call = 16000, .page = 246}},
    /* ibv_reg_mr takes 93 us on average (rdma-core, pull request 767); 500 GB take 49.2 s, which is
     * 375 ns a page (Mooncake, pull request 855): osu-configs/pin-costs.md. */
    {"nic", {.call = 93000, .page = 375}},
};

static bool read_ns(const char **at, char end, uint32_t *value)
{
    char *rest;

    if (**at < '0' || **at > '9') { /* strtol would take signs and blanks */
        return false;
    }
    const long number = strtol(*at, &rest, 10);
    if (number > MOST || *rest != end) {
        return false;
    }
    *value = (uint32_t)number;
    *at = rest + 1;
    return true;
}

bool regx_pin_cost_read(const char *text, regx_pin_cost_t *cost, regx_error_t error)
{
    const char *at = text;

    *cost = (regx_pin_cost_t){0, 0};
    if (*text == '\0' || strcmp(text, "none") == 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++) {
        if (strcmp(text, profiles[i].name) == 0) {
            *cost = profiles[i].cost;
            return true;
        }
    }
    if (read_ns(&at, ':', &cost->call) && read_ns(&at, '\0', &cost->page)) {
        return true;
    }
    regx_option_refuse("pin_cost", text,
                       "none, ucx, nic, CALL:PAGE (ns of a registration, and more for each page)",
                       error);
    return false;
}

void regx_pin_cost_spend(const regx_pin_cost_t *cost, int64_t begun, const void *base,
                         size_t length)
{
    const uintptr_t start = (uintptr_t)base & ~(uintptr_t)(PAGE - 1);
    const uint64_t pages = ((uintptr_t)base + length - start + PAGE - 1) / PAGE;
    const int64_t until = begun + cost->call + (int64_t)(pages * cost->page);

    if (cost->call != 0 || cost->page != 0) {
        while (regx_now_ns() < until) {
        }
    }
}
