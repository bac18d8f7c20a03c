/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Many runs of the simulator, and what must hold at the end of each.
 */
#include "sim.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { SEEDS = 10, MOVE = 1 << 16 /* Linux 6.8 */ };

static unsigned runs;

/* ---- what must hold then ---- */

/* What was said before means nothing now. */
static void replay(void)
{
    for (unsigned i = 0; i < 2; i++) {
        const sim_process_t *from = &sim.process[i];

        for (unsigned at = 0; at < from->first; at++) {
            const sim_frame_t *frame = &from->frames[at];

            if (frame->tag != SIM_TAG_MPI && !frame->dropped) {
                sim_hand_wrong(&sim.process[1 - i], i, frame, frame->length, !sim.hostile);
            }
        }
    }
}

static void check_empty(sim_process_t *process)
{
    if (sim.monitor.log != NULL) { /* nothing is kept but what is in use */
        sim_memory_report((uintptr_t)sim.memory, (uintptr_t)sim.memory + sim.memory_size);
    }
    for (unsigned i = 0; i < 20; i++) {
        regx_registry_progress(&process->registry);
    }
    sim_check(process->pool.unused == process->pool.slots);
    sim_check(process->open_windows == 0);
    sim_check(process->staged == 0);
    sim_check(process->counters.registrations == process->counters.deregistrations);
    sim_check(process->counters.registered_bytes == 0);
    sim_check(process->peer.granted == 0 && process->peer.slots == 0);
    sim_check(process->peer.writing == 0 && process->peer.writes == 0);
    sim_check(process->peer.waiting == 0);
}

/* What others change is not waited for, nor does a message go by slots for that. */
static void check_restless(void)
{
    if (sim.scenario->restless && sim.fault == NULL) {
        sim_check(sim.now - sim.began < 1000000000);
        sim_check(sim.process[0].counters.regrants + sim.process[1].counters.regrants == 0);
    }
}

/* Where nothing fails all goes as the scenario says. */
static void check_path(uint64_t messages)
{
    const sim_scenario_t *scenario = sim.scenario;
    const sim_process_t *process = sim.process;

    if (scenario->path != REGX_PATH_eager) {
        sim_check(messages >= (scenario->least > 0 ? scenario->least : sim.message_count));
    }
    if (scenario->path == REGX_PATH_remap) {
        sim_check(process[0].counters.remap_pages + process[1].counters.remap_pages > 0);
    }
    if (!scenario->verify) {
        sim_check((process[0].immediates + process[1].immediates > 0) == scenario->immediates);
    }
}

static void check_counters(void)
{
    uint64_t messages = 0, bytes = 0, length = 0, by_path = 0;
    bool failed = sim.hostile, given_up = false; /* for one that sent, and is not there */

    for (unsigned i = 0; i < sim.message_count; i++) {
        length += sim.messages[i].length;
        given_up |= sim.messages[i].status == REGX_FAILED;
        failed |= !sim.messages[i].closed || sim.messages[i].status != REGX_OK;
    }
    failed |= sim.process[0].link != SIM_UP;
    for (unsigned i = 0; i < 2; i++) {
        const regx_counters_t *counters = &sim.process[i].counters;

        for (const regx_counter_t *at = regx_counter_table; at->where != REGX_PATH_fallback; at++) {
            const uint64_t value = regx_counter_value(counters, at);

            messages += at->kind == REGX_MESSAGES ? value : 0;
            bytes += at->kind == REGX_BYTES ? value : 0;
            by_path += at->kind == REGX_MESSAGES && at->where == sim.scenario->path ? value : 0;
        }
        if (!failed) {
            sim_check(counters->puts == sim.process[i].puts);
            sim_check(counters->gets == sim.process[i].gets);
        }
    }
    sim_check(sim.hostile || given_up || sim_malformed() == sim.refused);
    sim_check(failed || (messages == sim.message_count && bytes == length));
    sim_check(messages <= sim.message_count && bytes <= length);
    if (sim.fault == NULL && sim.always == NULL) {
        check_path(by_path);
    }
}

static void check_mismatches(void)
{
    const unsigned mismatches = sim.process[0].mismatches + sim.process[1].mismatches;
    const uint64_t verified = sim.process[0].counters.verified + sim.process[1].counters.verified;

    if (!sim.hostile && sim.process[0].link == SIM_UP && sim.scenario->grant == REGX_GRANT_FINAL) {
        sim_check(mismatches == sim.corrupt);
        sim_check((verified > 0) == sim.scenario->verify);
    }
}

/* One change has its message sent again when it is reported, and perhaps once more when it is made.
 * Each time the neighbour may be sent again too, by what is given up of the page that they share, but
 * that is the end of it. */
static void check_regrants(void)
{
    const uint64_t regrants = sim.process[0].counters.regrants + sim.process[1].counters.regrants;

    if (sim.scenario->adjoins && sim.always == NULL && sim.fault != NULL &&
        sim.fault->trouble == SIM_CHANGED) {
        sim_check(regrants <= 4);
    }
}

/* The stream has as many bytes as eight of the long message. */
static void check_order(void)
{
    if (sim.scenario->deep && sim.fault == NULL) {
        sim_show("rank %u", sim.messages[0].rank);
        sim_check(sim.messages[0].rank < sim.message_count / 2);
    }
}

static void run(const sim_fault_t *fault, unsigned at, uint64_t seed)
{
    runs++;
    sim.fault = fault;
    sim.at = at;
    sim.seed = sim.chance = seed;
    memset(sim.counts, 0, sizeof(sim.counts));
    sim.time = sim.tick = sim.stale_count = sim.closed = 0;
    sim.began = sim.now;
    sim.hostile = sim.corrupt = sim.may_fail = false;
    sim.refused = 0;
    memset(sim.changes, 0, sizeof(sim.changes));
    sim_memory_reset();
    sim_open_process(0);
    sim_open_process(1);
    sim_go();
    sim_mpi_check();
    replay();
    check_empty(&sim.process[0]);
    check_empty(&sim.process[1]);
    check_mismatches();
    check_regrants();
    check_order();
    check_restless();
    sim_close_process(&sim.process[0]);
    sim_close_process(&sim.process[1]);
    check_counters();
}

/* ---- many of them ---- */

static const sim_fault_t *find_fault(const char *name)
{
    const sim_fault_t *fault = sim_faults;

    while (name != NULL && fault->name != NULL && strcmp(fault->name, name) != 0) {
        fault++;
    }
    return name != NULL && fault->name != NULL ? fault : NULL;
}

static void open_scenario(const sim_scenario_t *scenario)
{
    sim.scenario = scenario;
    sim_memory_reset();
    sim_memory_open();
    for (unsigned i = 0; i < 2; i++) {
        const size_t size = scenario->slots * scenario->slot;

        sim.process[i].frames = malloc(SIM_FRAMES * sizeof(sim_frame_t));
        sim.process[i].pool_memory = aligned_alloc(SIM_PAGE, (size + SIM_PAGE - 1) & ~4095ul);
        sim_check(sim.process[i].frames != NULL && sim.process[i].pool_memory != NULL);
    }
    sim.always = find_fault(scenario->always);
}

static void close_scenario(void)
{
    for (unsigned i = 0; i < 2; i++) {
        free(sim.process[i].frames);
        free(sim.process[i].pool_memory);
    }
    sim_memory_close();
}

static void sweep(const sim_fault_t *fault, uint64_t seed, const unsigned counts[SIM_OCCASIONS])
{
    const unsigned stride = sim.scenario->stride > 0 ? sim.scenario->stride : 1;

    if (sim_fault_applies(fault, sim.scenario)) {
        for (unsigned at = (unsigned)(seed % stride); at < counts[fault->at]; at += stride) {
            run(fault, at, seed);
        }
    }
}

/* Of no fault there is a run with each of the seeds. Where there is one always, what matters is how
 * the other meets it: more orders are tried. */
static void sweep_all(const sim_scenario_t *scenario)
{
    const uint64_t swept = scenario->always != NULL ? 3 : 1;
    unsigned counts[SIM_OCCASIONS];

    open_scenario(scenario);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        run(NULL, 0, seed);
        memcpy(counts, sim.counts, sizeof(counts));
        for (const sim_fault_t *fault = sim_faults; seed < swept && fault->name != NULL; fault++) {
            sweep(fault, seed, counts);
        }
    }
    close_scenario();
}

static bool pages_can_be_moved(void)
{
    struct uffdio_api api = {.api = UFFD_API, .features = MOVE};
    const int uffd = (int)syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);
    const bool can = ioctl(uffd, UFFDIO_API, &api) == 0;

    close(uffd);
    return can;
}

static void test_scenario(void **state)
{
    const sim_scenario_t *scenario = *state;

    unit_need(scenario->path != REGX_PATH_remap || pages_can_be_moved(), "no UFFDIO_MOVE");
    unit_handle_no_faults(); /* what is gone stays gone */
    sim_given_back = 0;
    sweep_all(scenario);
    assert_true(!scenario->revokes || sim_given_back > 0);
}

static void show(const sim_scenario_t *scenario, int argc, char **argv)
{
    open_scenario(scenario);
    sim.shows = true;
    run(argc > 2 ? find_fault(argv[2]) : NULL, argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0,
        argc > 4 ? strtoull(argv[4], NULL, 10) : 0);
    close_scenario();
}

int sim_main(const char *name, const sim_scenario_t *scenarios, size_t count, int argc, char **argv)
{
    struct CMUnitTest *tests = calloc(count, sizeof(*tests));
    int status;

    if (tests == NULL) {
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && strcmp(argv[1], scenarios[i].name) == 0) {
            show(&scenarios[i], argc, argv);
        }
        tests[i] = (struct CMUnitTest){.name = scenarios[i].name,
                                       .test_func = test_scenario,
                                       .initial_state = (void *)(uintptr_t)&scenarios[i]};
    }
    status = argc > 1 ? 0 : _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    print_message("# %u runs\n", runs);
    free(tests);
    return status;
}
