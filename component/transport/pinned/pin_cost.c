/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a registration is to take. Pinning by io_uring takes less than registering with an adapter,
 * which has tables of its own to fill in.
 */
#include "transport/pinned/pinned.h"

#include <stdio.h>
#include <string.h>

#define PAGE 4096u       /* bytes, whatever the machine's are: profiles are of such */
#define MOST 1000000000u /* ns of one registration, and of one page */

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

bool regx_pin_cost_read(const char *text, regx_pin_cost_t *cost, regx_error_t error)
{
    unsigned long call, page;
    int end = 0;

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
    /* sscanf would take signs and blanks as well. */
    if (strspn(text, "0123456789:") == strlen(text) &&
        sscanf(text, "%10lu:%10lu%n", &call, &page, &end) == 2 && text[end] == '\0' &&
        call <= MOST && page <= MOST) {
        *cost = (regx_pin_cost_t){.call = (uint32_t)call, .page = (uint32_t)page};
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
