/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A run of the simulator: what can happen next, and which of it does.
 */
#include "sim.h"

#include <time.h>

#include "rendezvous/control.h"

enum { STEPS_MAX = 40000, IDLE_MAX = 4000, IDLE_NS = 5000000, STRANGER = 77 };

sim_t sim;

/* The clock is the simulator's. */
UNIT_WRAP(int, clock_gettime, clockid_t clock, struct timespec *time)
{
    sim.now += 100;
    *time = (struct timespec){.tv_sec = sim.now / 1000000000, .tv_nsec = sim.now % 1000000000};
    return 0;
}

unsigned sim_chance(unsigned most)
{
    return (unsigned)(chance_next(&sim.chance) % most);
}

void sim_show(const char *format, ...)
{
    if (sim.shows) {
        va_list list;

        printf("%5u ", sim.time);
        va_start(list, format);
        vprintf(format, list);
        va_end(list);
        printf("\n");
    }
}

void sim_fail(const char *format, ...)
{
    char what[256];
    va_list list;

    va_start(list, format);
    vsnprintf(what, sizeof(what), format, list);
    va_end(list);
    fail_msg("%s\n  in: '%s' '%s' %u %llu (arguments of this program, to see each step)", what,
             sim.scenario->name, sim.fault != NULL ? sim.fault->name : "", sim.at,
             (unsigned long long)sim.seed);
    abort();
}

static bool strikes(const sim_fault_t *fault, sim_occasion_t occasion, unsigned number, unsigned at)
{
    return fault != NULL && fault->at == occasion && number >= at && number - at < fault->times;
}

const sim_fault_t *sim_strikes(sim_occasion_t occasion)
{
    const unsigned number = sim.counts[occasion]++;
    const sim_fault_t *fault = strikes(sim.fault, occasion, number, sim.at) ? sim.fault
                               : strikes(sim.always, occasion, number, sim.scenario->always_at)
                                   ? sim.always
                                   : NULL;

    if (fault != NULL) {
        sim_show("fault: %s", fault->name);
        sim.may_fail |=
            fault->may_fail || (sim.scenario->fresh && occasion == SIM_AT_CHUNK_WRITTEN);
    }
    return fault;
}

void sim_break(unsigned process)
{
    if (sim.process[process].link == SIM_UP) {
        sim.process[process].link = SIM_BREAKING;
    }
}

/* ---- processes ---- */

static void lost(void *context, const regx_peer_t *peer, const char *what, bool may_be_longer)
{
    sim_process_t *process = context;
    const bool verified = strstr(what, "(verify)") != NULL;

    sim_show("lost: %s", what);
    sim_check(peer == &process->peer && (verified || sim.changes[0].forever));
    process->mismatches += verified;
}

static void pages_change(void *context, uintptr_t start, uintptr_t end)
{
    sim_memory_replaced(start, end);
    sim_memory_report(start, end);
}

static void open_engine(sim_process_t *process)
{
    const sim_scenario_t *scenario = sim.scenario;
    const bool second = process->number == 1;
    regx_rndv_config_t config = {
        .strategy = regx_strategy_find(second && scenario->other != NULL ? scenario->other
                                                                         : scenario->strategy),
        .chunk_size = second && scenario->other_chunk > 0 ? scenario->other_chunk : scenario->chunk,
        .chunk_depth = scenario->depth,
        .may_expose = scenario->exposes,
        .verify = scenario->verify,
        .grant = scenario->grant,
        .lost = lost,
        .changes = pages_change,
        .context = process,
        .flow = &process->flow};

    process->counters.flows[0] = &process->flow;
    process->rndv =
        regx_rndv_create(&config, &process->pool, &process->registry, &process->counters);
    sim_check(config.strategy != NULL && process->rndv != NULL);
}

void sim_open_process(unsigned number)
{
    const sim_scenario_t *scenario = sim.scenario;
    sim_process_t *process = &sim.process[number];
    const regx_cache_config_t cache = {.bytes = scenario->cached ? REGX_UNLIMITED : 0,
                                       .count = SIM_WINDOWS};
    sim_frame_t *frames = process->frames;
    uint8_t *pool = process->pool_memory;

    memset(process, 0, sizeof(*process));
    process->frames = frames;
    process->pool_memory = pool;
    process->number = number;
    process->transport = (regx_transport_t){.ops = &sim_ops,
                                            .pool_memory = pool,
                                            .pool_size = scenario->slots * scenario->slot,
                                            .max_frame = SIM_FRAME,
                                            .registers = !scenario->node,
                                            .put_inflight_max = scenario->put_inflight_max};
    process->conn = (regx_conn_t){.transport = &process->transport,
                                  .peer = 1 - number,
                                  .shares_pool = scenario->node,
                                  .single_copy = scenario->node};
    process->peer = (regx_peer_t){.id = 1 - number, .conn = &process->conn};
    sim_check(regx_pool_init(&process->pool, pool, process->transport.pool_size, scenario->slot,
                             false, &process->counters) == REGX_OK);
    sim_check(regx_registry_open(&process->registry, scenario->cached ? &sim.monitor : NULL, &cache,
                                 &process->transport, &process->counters) == REGX_OK);
    open_engine(process);
}

void sim_close_process(sim_process_t *process)
{
    for (unsigned i = 0; i < REGX_REASONS_MAX && process->counters.fallbacks[i].count > 0; i++) {
        sim_show("process %u: %s", process->number, process->counters.fallbacks[i].reason);
    }
    regx_rndv_destroy(process->rndv);
    regx_registry_close(&process->registry);
    regx_pool_fini(&process->pool);
}

/* ---- what can happen ---- */

typedef enum sim_kind {
    BEGIN,
    POST,
    ABANDON,
    DELIVER,
    MAKE,
    END,
    PROGRESS,
    BREAK,
    CHANGE,
    RETURN
} sim_kind_t;

static const char *const kinds[] = {"begins message",     "posts receive of message",
                                    "abandons message",   "is delivered a frame",
                                    "lets go operation",  "sees the end of operation",
                                    "makes progress",     "loses its peer",
                                    "sees memory change", "gets slots back"};

typedef struct sim_event {
    sim_kind_t kind;
    unsigned process, index;
    const void *object;
} sim_event_t;

static struct {
    sim_event_t list[256];
    unsigned count;
    sim_event_t late; /* the fault's; of no kind that happens if there is none */
    bool has_late;
} events;

static void add(sim_kind_t kind, unsigned process, unsigned index, const void *object)
{
    const sim_event_t *late = &events.late;

    if (events.has_late && late->kind == kind && late->process == process &&
        late->object == object) {
        return;
    }
    sim_check(events.count < sizeof(events.list) / sizeof(events.list[0]));
    events.list[events.count++] = (sim_event_t){kind, process, index, object};
}

static void add_messages(void)
{
    for (unsigned i = 0; i < sim.message_count; i++) {
        const sim_message_t *message = &sim.messages[i];

        if (sim_mpi_can_begin(message)) {
            add(BEGIN, message->from, i, message);
            break; /* in their order */
        }
    }
    for (unsigned i = 0; i < sim.message_count; i++) {
        const sim_message_t *message = &sim.messages[i];

        if (sim_mpi_can_post(message)) {
            add(POST, 1 - message->from, i, message);
        }
        for (unsigned process = 0; process < 2; process++) {
            if (sim_mpi_can_abandon(message, process)) {
                add(ABANDON, process, i, message);
            }
        }
    }
}

/* Over a device operations go, and end, in their order. */
static void add_operations(const sim_process_t *process)
{
    bool makes = process->link == SIM_UP, ends = true;

    for (unsigned i = 0; i < process->op_count; i++) {
        const sim_op_t *op = &process->ops[i];

        if (op->made && ends) {
            add(END, process->number, i, op->put != NULL ? (const void *)op->put : op->get);
        } else if (!op->made && makes) {
            add(MAKE, process->number, i, op->put != NULL ? (const void *)op->put : op->get);
        }
        makes &= process->conn.shares_pool || op->made;
        ends &= process->conn.shares_pool;
    }
}

static void add_process(sim_process_t *process)
{
    sim_process_t *other = &sim.process[1 - process->number];

    while (other->first < other->end &&
           (other->frames[other->first].dropped || process->link != SIM_UP)) {
        other->first++;
    }
    if (other->first < other->end && !other->frames[other->first].held) {
        add(DELIVER, process->number, other->first, other);
    }
    add_operations(process);
    if (process->hogged_count > 0) {
        add(RETURN, process->number, 0, NULL);
    }
    if (!process->quiet && !regx_rndv_is_idle(process->rndv)) {
        add(PROGRESS, process->number, 0, NULL);
    }
    if (process->link == SIM_BREAKING || (process->link == SIM_UP && other->link == SIM_DOWN)) {
        add(BREAK, process->number, 0, NULL);
    }
}

static void find_events(void)
{
    events.count = 0;
    add_messages();
    add_process(&sim.process[0]);
    add_process(&sim.process[1]);
    for (unsigned i = 0; i < SIM_CHANGES; i++) {
        if (sim_memory_goes_on(&sim.changes[i])) {
            add(CHANGE, 1 - sim.changes[i].of->from, i, NULL);
        }
    }
}

/* ---- what happens ---- */

uint64_t sim_malformed(void)
{
    return sim.process[0].counters.malformed + sim.process[1].counters.malformed;
}

static void hand(sim_process_t *to, uint64_t sender, const sim_frame_t *frame, size_t length)
{
    uint8_t *copy = malloc(length); /* reading past the end is found */

    if (frame->immediate != 0) {
        to->immediates++;
        regx_rndv_immediate(to->rndv, sender, frame->immediate);
    } else {
        memcpy(copy, frame->data, length);
        regx_rndv_control(to->rndv, sender, copy, length);
    }
    free(copy);
}

void sim_hand_wrong(sim_process_t *to, uint64_t sender, const sim_frame_t *frame, size_t length,
                    bool must)
{
    const bool was_hostile = sim.hostile;
    const uint64_t before = sim_malformed();

    sim.hostile = true;
    hand(to, sender, frame, length);
    sim_check(!must || sim_malformed() == before + 1);
    sim.refused += sim_malformed() - before;
    sim.hostile = was_hostile || sim_malformed() == before;
}

/* Another message with the same address: one that might be sent, but is not. */
static void make_up(sim_frame_t *frame)
{
    const sim_scenario_t *scenario = sim.scenario;
    regx_control_t control = {.type = REGX_CONTROL_READY};

    if (frame->immediate != 0) {
        frame->immediate = 1u << 23 | sim_chance(1u << 23);
        return;
    }
    sim_check(regx_control_unpack(frame->data, frame->length, &control));
    control.type = (uint8_t)(regx_control_from_sender(control.type)
                                 ? REGX_CONTROL_READY + sim_chance(REGX_CONTROL_DIFFERS)
                                 : REGX_CONTROL_CTS_SLOTS +
                                       sim_chance(REGX_CONTROL_RESUME - REGX_CONTROL_DIFFERS));
    control.offset = sim_chance(8) * scenario->chunk;
    control.length = (1 + sim_chance(2)) * scenario->chunk;
    control.slot = sim_chance(scenario->slots) * (uint32_t)scenario->slot;
    control.bits = sim_chance(2) == 0 ? REGX_CONTROL_CHECKSUM : 0;
    control.slot_count = control.type == REGX_CONTROL_CTS_SLOTS;
    if (control.slot_count > 0) {
        control.slots[0] = (regx_slot_grant_t){control.slot, (uint32_t)scenario->slot};
    }
    frame->length = regx_control_pack(&control, frame->data);
}

/* The message that a frame of its sender is for; NULL: there is none, or it is of its receiver. */
static sim_message_t *addressee(const sim_process_t *to, const sim_frame_t *frame)
{
    for (unsigned i = 0; i < sim.message_count; i++) {
        sim_message_t *message = &sim.messages[i];

        if (frame->immediate == 0 && frame->data[1] <= REGX_CONTROL_DIFFERS &&
            message->from != to->number && message->recv != NULL &&
            memcmp(message->recv_handle, frame->data + 4, 8) == 0) {
            return message;
        }
    }
    return NULL;
}

/* Changes one bit. true: that is of whom it is for or from, so it must be refused. */
static bool flip(const sim_process_t *to, sim_frame_t *frame)
{
    const sim_message_t *message = addressee(to, frame);
    const unsigned at = sim_chance((unsigned)frame->length);

    if (frame->immediate != 0) {
        frame->immediate ^= 1u << sim_chance(24);
        return false;
    }
    frame->data[at] ^= (uint8_t)(1u << sim_chance(8));
    const unsigned from = offsetof(regx_control_t, from);
    return (at >= 8 && at < 12) || (message != NULL && message->met && at >= from && at < from + 8);
}

static void trouble(sim_process_t *to, const sim_frame_t *frame, sim_trouble_t what)
{
    const uint64_t peer = to->conn.peer;
    sim_frame_t wrong = *frame;
    bool must;

    switch (what) {
    case SIM_STRANGE:
        sim_hand_wrong(to, STRANGER, frame, frame->length, true);
        break;
    case SIM_CUT:
        wrong.immediate &= 0x7fffff;
        sim_hand_wrong(to, peer, &wrong, frame->length + 1 - 2 * sim_chance(2), true);
        break;
    case SIM_MALFORMED:
        must = flip(to, &wrong);
        sim_hand_wrong(to, peer, &wrong, frame->length, must);
        break;
    case SIM_MADE_UP:
        make_up(&wrong);
        sim_hand_wrong(to, peer, &wrong, wrong.length, false);
        break;
    default:
        break;
    }
}

static void deliver(sim_process_t *to)
{
    sim_process_t *from = &sim.process[1 - to->number];
    const sim_frame_t *frame = &from->frames[from->first++];

    if (frame->tag == SIM_TAG_MPI) {
        sim_mpi_deliver(to->number, frame->data);
        return;
    }
    const sim_fault_t *fault = sim_strikes(SIM_AT_CONTROL);

    sim_show("control message of type %u", frame->immediate != 0 ? 0 : frame->data[1]);
    if (fault != NULL) {
        trouble(to, frame, fault->trouble);
    }
    sim_message_t *message = addressee(to, frame);
    if (message != NULL) {
        message->met = true;
    }
    hand(to, from->number, frame, frame->length);
    if (fault != NULL && fault->trouble == SIM_TWICE) {
        sim_hand_wrong(to, from->number, frame, frame->length, false);
    }
}

/* The BTL's order: the transport's report, forget, disconnect. */
static void break_now(sim_process_t *process)
{
    while (process->op_count > 0 && sim_chance(2) == 0) {
        sim_end(process, 0, REGX_UNREACHABLE);
    }
    process->link = SIM_BREAKING;
    regx_rndv_forget(process->rndv, &process->peer);
    process->link = SIM_DOWN; /* nothing is asked of the connection from here on */
    while (process->op_count > 0) {
        sim_end(process, 0, REGX_FAILED);
    }
    sim_break(1 - process->number);
}

static void progress(sim_process_t *process)
{
    regx_rndv_progress(process->rndv);
    regx_registry_progress(&process->registry);
    process->quiet = true;
}

static void happen(const sim_event_t *event)
{
    sim_process_t *process = &sim.process[event->process];

    sim_show("process %u %s %u", event->process, kinds[event->kind], event->index);
    if (event->kind != PROGRESS) {
        sim.process[0].quiet = sim.process[1].quiet = false;
    }
    switch (event->kind) {
    case BEGIN:
        sim_mpi_begin(&sim.messages[event->index]);
        break;
    case POST:
        sim_mpi_post(&sim.messages[event->index]);
        break;
    case ABANDON:
        sim_mpi_abandon(&sim.messages[event->index], event->process);
        break;
    case DELIVER:
        deliver(process);
        break;
    case MAKE:
        sim_make(process, event->index);
        break;
    case END:
        sim_end(process, event->index, REGX_FAILED);
        break;
    case PROGRESS:
        progress(process);
        break;
    case BREAK:
        break_now(process);
        break;
    case CHANGE:
        sim_memory_go_on(&sim.changes[event->index]);
        break;
    case RETURN:
        while (process->hogged_count > 0) {
            regx_pool_put(&process->pool, process->hogged[--process->hogged_count]);
        }
        break;
    }
}

static void hog(sim_process_t *process)
{
    uint32_t slot;

    while ((slot = regx_pool_get(&process->pool)) != REGX_SLOT_NONE) {
        process->hogged[process->hogged_count++] = slot;
    }
}

/* The trouble comes in place of the event, but where that is only put off. */
static void trouble_step(const sim_fault_t *fault, const sim_event_t *event)
{
    switch (fault->trouble) {
    case SIM_LATE:
        events.late = *event;
        events.has_late = true;
        break;
    case SIM_LOST:
        sim_break(sim.at % 2);
        break;
    case SIM_HOGGED:
        hog(&sim.process[0]);
        hog(&sim.process[1]);
        break;
    default:
        sim_memory_change(fault->trouble);
    }
}

static void step(void)
{
    const sim_event_t event = events.list[sim_chance(events.count)];
    const sim_fault_t *fault = sim_strikes(SIM_AT_STEP);

    sim_check(++sim.time < STEPS_MAX);
    sim.now += 1000;
    if (fault != NULL) {
        trouble_step(fault, &event);
    } else {
        happen(&event);
    }
}

static bool have_all_ended(void)
{
    for (unsigned i = 0; i < sim.message_count; i++) {
        if (!sim_mpi_has_ended(&sim.messages[i])) {
            return false;
        }
    }
    return true;
}

/* Nothing can happen but with time. false: it is over. */
static bool wait(unsigned *idle)
{
    if (events.has_late) {
        events.has_late = false;
        return true;
    }
    if (have_all_ended()) {
        return false;
    }
    if (++*idle > IDLE_MAX) {
        if (!sim.hostile || sim.process[0].link != SIM_UP) {
            sim_fail("nothing happens any more, and not all messages have ended");
        }
        sim_break(0); /* what a peer that lies has begun need not end by itself */
        *idle = 0;
    }
    sim.now += IDLE_NS;
    for (unsigned i = 0; i < 2; i++) {
        progress(&sim.process[i]);
    }
    return true;
}

void sim_go(void)
{
    unsigned idle = 0;

    events.has_late = false;
    do {
        for (find_events(); events.count > 0; find_events()) {
            step();
            idle = 0;
        }
    } while (wait(&idle));
}
