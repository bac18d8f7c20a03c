/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The faults that the simulator puts at each of their occasions.
 */
#include "sim.h"

#define EVER 1000000

const sim_fault_t sim_faults[] = {
    {"no room for a frame", SIM_AT_SEND, SIM_ANSWER, REGX_AGAIN, 1, false},
    {"no room for five frames", SIM_AT_SEND, SIM_ANSWER, REGX_AGAIN, 5, false},
    {"a frame finds the peer gone", SIM_AT_SEND, SIM_ANSWER, REGX_UNREACHABLE, 1, true},
    {"no room for a put", SIM_AT_PUT, SIM_ANSWER, REGX_AGAIN, 1, false},
    {"no room for five puts", SIM_AT_PUT, SIM_ANSWER, REGX_AGAIN, 5, false},
    {"a put finds the peer gone", SIM_AT_PUT, SIM_ANSWER, REGX_UNREACHABLE, 1, true},
    {"puts to buffers are denied", SIM_AT_CHUNK, SIM_ANSWER, REGX_DENIED, EVER, false},
    {"a put fails", SIM_AT_WRITTEN, SIM_ANSWER, REGX_FAILED, 1, true},
    {"a put ends as the peer goes", SIM_AT_WRITTEN, SIM_ANSWER, REGX_UNREACHABLE, 1, true},
    {"a put to a buffer fails", SIM_AT_CHUNK_WRITTEN, SIM_ANSWER, REGX_FAILED, 1, false},
    {"puts to buffers fail", SIM_AT_CHUNK_WRITTEN, SIM_ANSWER, REGX_FAILED, EVER, false},
    {"puts to buffers end as denied", SIM_AT_CHUNK_WRITTEN, SIM_ANSWER, REGX_DENIED, EVER, false},
    {"no room for a get", SIM_AT_GET, SIM_ANSWER, REGX_AGAIN, 1, false},
    {"no room for five gets", SIM_AT_GET, SIM_ANSWER, REGX_AGAIN, 5, false},
    {"gets are denied", SIM_AT_GET, SIM_ANSWER, REGX_DENIED, EVER, false},
    {"a get finds the peer gone", SIM_AT_GET, SIM_ANSWER, REGX_UNREACHABLE, 1, true},
    {"a get fails", SIM_AT_GOT, SIM_ANSWER, REGX_FAILED, 1, false},
    {"gets end as denied", SIM_AT_GOT, SIM_ANSWER, REGX_DENIED, EVER, false},
    {"a get ends as the peer goes", SIM_AT_GOT, SIM_ANSWER, REGX_UNREACHABLE, 1, true},
    {"no memory to register", SIM_AT_REG, SIM_ANSWER, REGX_NO_MEMORY, 1, false},
    {"no memory to register any more", SIM_AT_REG, SIM_ANSWER, REGX_NO_MEMORY, EVER, false},
    {"a registration is denied", SIM_AT_REG, SIM_ANSWER, REGX_DENIED, 1, false},
    {"nothing can be registered", SIM_AT_REG, SIM_ANSWER, REGX_INVALID, EVER, false},
    {"a byte is corrupt", SIM_AT_BYTES, SIM_CORRUPT, REGX_OK, 1, false},
    {"a message comes twice", SIM_AT_CONTROL, SIM_TWICE, REGX_OK, 1, false},
    {"a stranger sends a message", SIM_AT_CONTROL, SIM_STRANGE, REGX_OK, 1, false},
    {"a message is cut", SIM_AT_CONTROL, SIM_CUT, REGX_OK, 1, false},
    {"a message is malformed", SIM_AT_CONTROL, SIM_MALFORMED, REGX_OK, 1, true},
    {"a message was never sent", SIM_AT_CONTROL, SIM_MADE_UP, REGX_OK, 1, true},
    {"a CTS is forged", SIM_AT_CTS, SIM_FORGED, REGX_OK, 1, true},
    {"an exposure is forged", SIM_AT_EXPOSURE, SIM_FORGED, REGX_OK, 1, true},
    {"an event comes late", SIM_AT_STEP, SIM_LATE, REGX_OK, 1, false},
    {"the connection is lost", SIM_AT_STEP, SIM_LOST, REGX_OK, 1, true},
    {"memory is replaced", SIM_AT_STEP, SIM_CHANGED, REGX_OK, 1, false},
    {"memory is replaced by what is not watched", SIM_AT_STEP, SIM_UNWATCHED, REGX_OK, 1, false},
    {"memory is replaced and never reported", SIM_AT_STEP, SIM_SECRET, REGX_OK, 1, false},
    {"memory is replaced again and again", SIM_AT_STEP, SIM_CHANGING, REGX_OK, 1, false},
    {"others take all slots", SIM_AT_STEP, SIM_HOGGED, REGX_OK, 1, false},
    {"memory is unmapped", SIM_AT_STEP, SIM_GONE, REGX_OK, 1, false},
    {.name = NULL}};

bool sim_fault_applies(const sim_fault_t *fault, const sim_scenario_t *scenario)
{
    switch (fault->trouble) {
    case SIM_CORRUPT:
        return scenario->verify && scenario->grant == REGX_GRANT_FINAL;
    case SIM_CHANGED:
        return scenario->grant != REGX_GRANT_FINAL && !scenario->final;
    case SIM_SECRET:
    case SIM_UNWATCHED: /* by which it is given up: other changes are the program's own then */
    case SIM_CHANGING:
    case SIM_GONE:
        return scenario->grant != REGX_GRANT_FINAL && !scenario->final && scenario->always == NULL;
    default:
        return true;
    }
}
