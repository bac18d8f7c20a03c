/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/strategy.h"

#include <string.h>

#include "rendezvous/auto.h"
#include "rendezvous/bounce.h"
#include "rendezvous/get.h"
#include "rendezvous/put.h"
#include "rendezvous/together.h"

static const regx_strategy_t strategies[] = {
    {.name = "auto",
     .help = "on a node bounce, pipeline or together, whichever was fastest when they were last "
             "tried, on the job's own messages of that size; else pipeline, but a buffer that is "
             "registered already, of up to btl_regx_chunk_depth chunks, at once",
     .choose = regx_auto_choose,
     .grants_known_whole = true},
    {.name = "bounce",
     .help = "through pre-pinned slots of the pool",
     .path = REGX_PATH_bounce,
     .protocol = &regx_protocol_bounce},
    {.name = "pipeline",
     .help = "the buffer registered and written in chunks of btl_regx_chunk_size",
     .path = REGX_PATH_pipeline,
     .protocol = &regx_protocol_put},
    {.name = "direct",
     .help = "the whole buffer registered, one write",
     .path = REGX_PATH_direct,
     .protocol = &regx_protocol_put},
    {.name = "read",
     .help = "the receiver reads what the sender registers in chunks of btl_regx_chunk_size; not "
             "over tcp",
     .path = REGX_PATH_read,
     .protocol = &regx_protocol_get},
    {.name = "together",
     .help = "on a node: the sender has the kernel copy one half, the receiver the other",
     .path = REGX_PATH_together,
     .protocol = &regx_protocol_together,
     .copies = true}};

enum { COUNT = sizeof(strategies) / sizeof(strategies[0]) };

/* The names in the order of the table, which a unit test compares. */
const char regx_strategy_names[] = "auto, bounce, pipeline, direct, read, together";

const regx_strategy_t *regx_strategy_at(size_t index)
{
    return index < COUNT ? &strategies[index] : NULL;
}

const regx_strategy_t *regx_strategy_find(const char *name)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (strcmp(strategies[i].name, name) == 0) {
            return &strategies[i];
        }
    }
    return NULL;
}

bool regx_strategy_copies(const regx_strategy_t *strategy)
{
    return strategy->copies;
}

const char *regx_strategy_name(const regx_strategy_t *strategy)
{
    return strategy->name;
}

const char *regx_strategy_help(const regx_strategy_t *strategy)
{
    return strategy->help;
}

void regx_strategy_protocols(const regx_protocol_t *protocols[REGX_PATH_COUNT])
{
    memset(protocols, 0, REGX_PATH_COUNT * sizeof(protocols[0]));
    for (size_t i = 0; i < COUNT; i++) {
        if (strategies[i].protocol != NULL) {
            protocols[strategies[i].path] = strategies[i].protocol;
        }
    }
}
