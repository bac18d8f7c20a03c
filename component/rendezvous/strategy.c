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
     .choose = regx_auto_choose,
     .grants_known_whole = true,
     .exposes = true,
     .help = "on a node bounce, read or together, else pipeline or bounce, whichever makes the "
             "job's own messages of that size go fastest; see btl_regx_auto_choice",
     .more = "For each power of two of sizes, and apart for messages that come alone and in "
             "bursts, some messages go each way. What counts is the time from one message to the "
             "next, so also what the program does with the data, in the long run within 3 % of "
             "the best. Trials become rarer, but do not end. One choice holds for all peers on "
             "the node, another for the others. Where the kernel does not copy to the other "
             "process, bounce is used. Between nodes, or over an RDMA device, a buffer that is "
             "registered already, of up to btl_regx_chunk_depth chunks, is written at once. It is "
             "registered because it was received into before. To a sender whose own buffer is new "
             "that makes no difference: it registers and writes in chunks. Over an RDMA device, "
             "where both buffers are registered already and one port is used, the receiver reads "
             "the whole, which is counted as read; but more than 256 KiB are written if this "
             "process sends such a message at the same time."},
    {.name = "bounce",
     .path = REGX_PATH_bounce,
     .protocol = &regx_protocol_bounce,
     .help = "through pre-pinned slots of the pool, see btl_regx_pool_size and btl_regx_slot_size",
     .more = "Nothing is registered for it. Over verbs, what the sender has registered already is "
             "written to the slots at once, other memory through the device's own buffers."},
    {.name = "pipeline",
     .path = REGX_PATH_pipeline,
     .protocol = &regx_protocol_put,
     .help = "the buffer is registered and written in chunks, see btl_regx_chunk_size and "
             "btl_regx_chunk_depth"},
    {.name = "direct",
     .path = REGX_PATH_direct,
     .protocol = &regx_protocol_put,
     .help = "the whole buffer is registered, and written at once"},
    {.name = "read",
     .path = REGX_PATH_read,
     .protocol = &regx_protocol_get,
     .exposes = true,
     .help = "the receiver reads the sender's buffer; not over tcp",
     .more = "On a node at once, where the kernel copies between the processes "
             "(process_vm_readv). Over verbs the sender registers chunks (btl_regx_chunk_size, "
             "btl_regx_chunk_depth), which takes a round trip more than writing, and three calls "
             "of the device per chunk instead of two."},
    {.name = "together",
     .path = REGX_PATH_together,
     .protocol = &regx_protocol_together,
     .exposes = true,
     .copies = true,
     .help = "on a node: as read, and the sender has the kernel copy a part of the message if it "
             "has nothing else to do",
     .more = "Where the kernel copies between the processes (process_vm_readv, process_vm_writev). "
             "Both take pieces of the message until all are taken. What the sender takes depends "
             "on when it calls MPI."}};

enum { STRATEGIES = sizeof(strategies) / sizeof(strategies[0]) };

bool regx_strategy_word(unsigned index, regx_param_word_t *word)
{
    if (index >= STRATEGIES) {
        return false;
    }
    *word = (regx_param_word_t){.word = strategies[index].name,
                                .help = strategies[index].help,
                                .more = strategies[index].more};
    return true;
}

const regx_strategy_t *regx_strategy_find(const char *name)
{
    for (size_t i = 0; i < STRATEGIES; i++) {
        if (strcmp(strategies[i].name, name) == 0) {
            return &strategies[i];
        }
    }
    return NULL;
}

const regx_strategy_t *regx_strategy_copying(const regx_strategy_t *strategy,
                                             const regx_auto_choice_t *choice)
{
    if (strategy->copies) {
        return strategy;
    }
    for (size_t i = 0; i < STRATEGIES; i++) {
        if (strategies[i].protocol != NULL && strategies[i].copies &&
            memchr(choice->path, (int)strategies[i].path, sizeof(choice->path)) != NULL) {
            return &strategies[i];
        }
    }
    return NULL;
}

const char *regx_strategy_name(const regx_strategy_t *strategy)
{
    return strategy->name;
}

void regx_strategy_protocols(const regx_protocol_t *protocols[REGX_PATH_COUNT])
{
    memset(protocols, 0, REGX_PATH_COUNT * sizeof(protocols[0]));
    for (size_t i = 0; i < STRATEGIES; i++) {
        if (strategies[i].protocol != NULL) {
            protocols[strategies[i].path] = strategies[i].protocol;
        }
    }
}
