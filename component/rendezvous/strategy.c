/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/strategy.h"

#include <string.h>

static regx_path_t choose_bounce(regx_rndv_t *rndv, const regx_peer_t *peer, uint64_t length)
{
    (void)rndv, (void)peer, (void)length;
    return REGX_PATH_bounce;
}

static regx_path_t choose_pipeline(regx_rndv_t *rndv, const regx_peer_t *peer, uint64_t length)
{
    (void)rndv, (void)peer, (void)length;
    return REGX_PATH_pipeline;
}

static regx_path_t choose_direct(regx_rndv_t *rndv, const regx_peer_t *peer, uint64_t length)
{
    (void)rndv, (void)peer, (void)length;
    return REGX_PATH_direct;
}

static regx_path_t choose_read(regx_rndv_t *rndv, const regx_peer_t *peer, uint64_t length)
{
    (void)rndv, (void)peer, (void)length;
    return REGX_PATH_read;
}

/* Where both processes map the pool, bounce: two cores copy at once in user space, which is twice
 * what the kernel's single copy reaches. Elsewhere the wire writes the user's buffer in chunks
 * and spares the copy out; a buffer that is registered already goes as one chunk.
 * Never read: a chunk takes one or two requests more than written, and a round trip before its
 * first byte moves (osu-configs/counts). */
static regx_path_t choose_auto(regx_rndv_t *rndv, const regx_peer_t *peer, uint64_t length)
{
    (void)length;
    const bool shared = peer->conn->shares_pool;

    if (rndv->auto_tally[shared] == NULL) {
        rndv->auto_tally[shared] =
            regx_tally_find(rndv->counters->decisions, shared ? "bounce: the pool is shared"
                                                              : "pipeline: the pool is not shared");
    }
    regx_count(rndv->counters, &rndv->auto_tally[shared]->count, 1);
    return shared ? REGX_PATH_bounce : REGX_PATH_pipeline;
}

static const regx_strategy_t strategies[] = {
    {.name = "auto", .choose = choose_auto, .grants_known_whole = true},
    {.name = "bounce", .choose = choose_bounce},
    {.name = "pipeline", .choose = choose_pipeline},
    {.name = "direct", .choose = choose_direct},
    {.name = "read", .choose = choose_read}};

const char regx_strategy_names[] = "auto, bounce, pipeline, direct, read";

const regx_strategy_t *regx_strategy_find(const char *name)
{
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        if (strcmp(strategies[i].name, name) == 0) {
            return &strategies[i];
        }
    }
    return NULL;
}

bool regx_strategy_reads(const regx_strategy_t *strategy)
{
    return strategy->choose == choose_read;
}

const char *regx_strategy_name(const regx_strategy_t *strategy)
{
    return strategy->name;
}
