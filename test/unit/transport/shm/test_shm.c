/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared memory: what its mailboxes take of it, and whom a process believes.
 */
#include "../../process.h"
#include "shm_parties.h"

/* Each expects the other from the start, and nothing is sent yet. */
#define EARLY_TEST(test) UNIT_TEST_WITHIN(test, NULL, shm_parties_open_early(), parties_close())

/* ---- memory ---- */

/* Linux before 5.14 brings in more, and one that gives huge pages to all shared memory. */
static bool brings_in_lines_alone(void)
{
    const size_t page = regx_page_size();
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
    char setting[80] = ""; /* the one that holds in brackets */
    bool can = false;

    if (file != NULL) {
        assert_non_null(fgets(setting, sizeof(setting), file));
        fclose(file);
    }
    if (strstr(setting, "[always]") != NULL || strstr(setting, "[force]") != NULL) {
        return false;
    }
#if defined(MADV_POPULATE_WRITE)
    void *memory = unit_map(NULL, page);

    can = madvise(memory, page, MADV_POPULATE_WRITE) == 0;
    munmap(memory, page);
#endif
    return can;
}

static bool sysv_refused;

UNIT_WRAP(int, shmget, key_t key, size_t length, int flags)
{
    if (sysv_refused) {
        errno = ENOSPC;
        return -1;
    }
    return __real_shmget(key, length, flags);
}

/* Which needs no descriptor and no room in /dev/shm; a file where that is refused, with a name where
 * neighbours could not open it by its descriptor. */
SHM_TEST(memory_of_system_v_comes_first)
{
    regx_transport_t *transport;
    regx_error_t error;

    assert_int_equal(shm_of(&one)->main.name.kind, REGX_SEGMENT_SYSV);
    assert_int_equal(fallbacks(&one), 0);
    sysv_refused = true;
    party_open(&three, THREE, false);
    assert_int_equal(shm_of(&three)->main.name.kind, REGX_SEGMENT_POSIX);
    assert_ptr_equal(strstr(three.counters.fallbacks[0].reason, "sysv: no shared memory of "),
                     three.counters.fallbacks[0].reason);
    assert_int_equal(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
    const regx_status_t status = regx_shm_ops.open(&three.config, error, &transport);
    assert_int_equal(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
    sysv_refused = false;
    assert_int_equal(status, REGX_OK);
    assert_int_equal(regx_shm_of(transport)->main.name.kind, REGX_SEGMENT_NAMED);
    transport->ops->close(transport);
    party_close(&three);
}

/* With many neighbours that say little, this is most of a mailbox. */
SHM_TEST(a_ring_that_nothing_came_by_is_not_mapped)
{
    const regx_shm_inbound_t *inbound = shm_of(&one)->inbound[0];
    const regx_mailbox_memory_t *memory = inbound->memory;

    assert_true(process_pages(memory->lines, memory->payload, 63) >=
                sizeof(memory->lines) / regx_page_size() - 1);
    if (brings_in_lines_alone()) {
        assert_int_equal(process_pages(memory->payload, memory->payload + inbound->in.ring, 63), 0);
    }
}

/* The others are never written to. */
UNIT_TEST(with_many_neighbours_the_rings_are_shorter)
{
    static const struct {
        unsigned neighbours;
        uint32_t ring;
    } cases[] = {{1, REGX_MAILBOX_PAYLOAD_MAX},
                 {8, REGX_MAILBOX_PAYLOAD_MAX},
                 {9, REGX_MAILBOX_PAYLOAD_MAX / 2},
                 {17, REGX_MAILBOX_PAYLOAD_MAX / 4},
                 {33, REGX_MAILBOX_PAYLOAD_MIN}};
    regx_conn_t *others[33];

    shm_parties_open(false);
    parties_close();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        parties_open(false);
        regx_conn_t *const used = one.conn;
        for (unsigned other = 1; other < cases[i].neighbours; other++) {
            party_connect(&one, &two);
            others[other] = one.conn;
        }
        one.conn = used;
        parties_exchange();
        assert_int_equal(conn_of(&one)->box->ring, cases[i].ring);
        for (unsigned other = 1; other < cases[i].neighbours; other++) {
            tested->ops->disconnect(others[other]);
        }
        assert_int_equal(shm_of(&one)->mailboxes.neighbours, 1);
        parties_close();
    }
}

SHM_TEST(mailboxes_are_used_again)
{
    const struct regx_mailbox_segment *segment = NULL;

    for (unsigned visit = 0; visit < 3 * REGX_MAILBOX_POOL_UNIT; visit++) {
        parties_exchange();
        const struct regx_mailbox_segment *used = shm_of(&one)->mailboxes.segments;
        assert_true(segment == NULL || used == segment); /* no other one is ever made */
        segment = used;
        parties_leave();
        party_connect(&one, &two);
        party_connect(&two, &one);
    }
}

/* The last line found no room: it is posted once there is some, and the reader leaves the mailbox. */
SHM_TEST(who_disconnects_from_a_full_mailbox_is_left)
{
    parties_exchange();
    while (party_try(&one, 1, 5, 8) == REGX_OK) {
    }
    tested->ops->disconnect(one.conn);
    assert_false(shm_of(&one)->disconnecting->last_posted);
    work(&two);
    work(&one);
    work(&two);
    assert_int_equal(shm_of(&two)->inbound_count, 0);
    assert_int_equal(shm_of(&one)->copy_count, 0);
    party_connect(&one, &two);
}

/* Who closes does not wait until it is read: perhaps the two are connected no more, and the reader waits
 * outside MPI for the other's end. In a mailbox of the main segment, and in another. */
UNIT_TEST(frames_are_read_after_their_sender_has_closed)
{
    for (int late = 0; late < 2; late++) {
        (late ? shm_parties_open(false) : shm_parties_open_early());
        parties_exchange();
        for (unsigned i = 0; i < 12; i++) {
            assert_int_equal(party_try(&one, 1, i, (size_t)i * 300), REGX_OK);
        }
        const unsigned before = two.delivered;
        party_leave(&one);
        tested->ops->close(one.transport); /* two is in no progress */
        one.transport = NULL;
        work(&two);
        assert_int_equal(two.delivered, before + 12);
        assert_true(two.last_length == 3300 && unit_is_filled(two.last, 3300, 11));
        assert_int_equal(shm_of(&two)->inbound_count, 0);
        party_end(&two);
    }
}

/* A process that spawns or serves others, one after another, has of all no more than of a few. What is sent to one
 * of them is refused. */
UNIT_TEST(of_who_has_ended_nothing_stays)
{
    enum { VISITS = 12, FEW = 3 };
    regx_conn_t *ended[VISITS];
    unsigned mapped = 0, descriptors = 0;

    shm_parties_open(false);
    regx_conn_t *const first = one.conn;
    for (unsigned visit = 0; visit < VISITS; visit++) {
        party_open(&three, THREE, false);
        party_connect(&one, &three);
        party_connect(&three, &one);
        party_send(&one, 1, visit, 8);
        party_send(&three, 1, visit, 8);
        parties_settle();
        assert_int_equal(three.delivered, 1);
        party_leave(&three);
        party_close(&three);
        work(&one);
        ended[visit] = one.conn;
        if (visit == FEW) {
            mapped = process_entries("/proc/self/map_files");
            descriptors = process_descriptors();
        }
    }
    assert_int_equal(process_entries("/proc/self/map_files"), mapped);
    assert_int_equal(process_descriptors(), descriptors);
    assert_int_equal(shm_of(&one)->mailboxes.neighbours, 2);
    one.conn = ended[0];
    assert_int_equal(party_try(&one, 1, 1, 1), REGX_UNREACHABLE);
    assert_true(fell_back(&one, "shm: the neighbour has ended"));
    assert_true(step(&one) == 1 && one.broken == 1);
    for (unsigned visit = 0; visit < VISITS; visit++) {
        tested->ops->disconnect(ended[visit]);
    }
    one.conn = first;
    parties_close();
}

/* Killed: it has closed nothing, but its life is over. What it had posted is delivered first. */
SHM_TEST(who_is_killed_is_reported_once_when_all_has_arrived)
{
    op_t op;

    regx_shm_look(one.transport);
    assert_int_equal(one.broken, 0);
    for (unsigned i = 0; i < 40; i++) {
        party_send(&two, 1, i, 8);
    }
    const unsigned before = one.delivered;
    op_zcopy(&op, one.transport->pool_memory, 4096, 5);
    assert_int_equal(tested->ops->send_zcopy(one.conn, &op.zcopy), REGX_PENDING);
    regx_life_end(shm_of(&two)->life);
    shm_of(&two)->life = NULL;
    regx_shm_look(one.transport); /* not within a second of the first */
    shm_of(&one)->looked = 0;
    regx_shm_look(one.transport);
    assert_int_equal(one.broken, 0);
    work(&one);
    assert_int_equal(one.delivered, before + 40);
    for (int i = 0; i < 2; i++) {
        shm_of(&one)->looked = 0;
        regx_shm_look(one.transport);
    }
    assert_true(
        one.broken == 1 &&
        strcmp(one.what, "the process has ended, and has not read all that was sent to it") == 0);
    assert_true(op.ended == 0 && shm_of(&one)->inbound_count == 0);
    party_leave(&one);
    assert_int_equal(op.ended, 1);
}

/* The job may be about to end for the same reason. */
SHM_TEST(who_is_killed_is_reported_at_the_second_look)
{
    regx_life_end(shm_of(&two)->life);
    shm_of(&two)->life = NULL;
    for (int look = 0; look < 3; look++) {
        assert_int_equal(one.broken, look > 1);
        shm_of(&one)->looked = 0;
        regx_shm_look(one.transport);
    }
    assert_int_equal(one.broken, 1);
}

/* As a process leaves it that is killed before it has counted its request. */
static void request_dead(unsigned entry)
{
    regx_connect_queue_t *queue = shm_of(&one)->queue;

    queue->entries[entry].request =
        (regx_connect_request_t){.sender = THREE,
                                 .address = shm_of(&two)->address,
                                 .mailboxes = conn_of(&two)->box->segment,
                                 .mailbox_ring = conn_of(&two)->box->ring};
    queue->entries[entry].request.mailboxes.id = INT32_MAX;
    queue->entries[entry].state = REGX_REQUEST_READY;
}

/* A neighbour that dies between any two of its stores when it connects. Others are still seen. */
SHM_TEST(who_dies_while_it_connects_holds_nobody_up)
{
    regx_connect_queue_t *queue = shm_of(&one)->queue;

    queue->entries[3].state = REGX_REQUEST_CLAIMED; /* before it has filled it in */
    request_dead(4);                                /* before it has counted */
    assert_int_equal(step(&one), 0);
    regx_conn_t *const first = two.conn;
    party_connect(&two, &one);
    party_send(&two, 1, 1, 8);
    parties_settle();
    assert_int_equal(queue->entries[4].state, REGX_REQUEST_FREE);
    assert_int_equal(queue->requests, shm_of(&one)->requests_seen);
    assert_true(one.broken == 1 && strcmp(one.what, "its mailbox cannot be mapped") == 0);
    tested->ops->disconnect(first);
}

/* The frames of its pool alone: those pages are freed. And what the reader has not mapped yet. */
UNIT_TEST(who_closes_waits_for_what_its_end_would_take_away)
{
    op_t op;

    for (int lent = 0; lent < 2; lent++) {
        (lent ? shm_parties_open(false) : shm_parties_open_early());
        memset(one.transport->pool_memory, 7, 4096);
        op_zcopy(&op, one.transport->pool_memory, 4096, 5);
        assert_int_equal(lent ? tested->ops->send_zcopy(one.conn, &op.zcopy)
                              : party_try(&one, 1, 1, 8),
                         lent ? REGX_PENDING : REGX_OK);
        atomic_store(&shm_of(&one)->queue->closed, 1); /* as close does before it waits */
        party_leave(&one);
        regx_shm_reap(shm_of(&one));
        assert_non_null(shm_of(&one)->disconnecting);
        work(&two);
        assert_true(two.last_length == (lent ? 4096 : 8));
        regx_shm_reap(shm_of(&one));
        assert_null(shm_of(&one)->disconnecting);
        parties_close();
    }
}

/* ---- a mailbox that is used again while its reader closes ---- */

static _Atomic unsigned stage; /* 0: no party closes; 1: one does; then what it has left */

static void await_stage(unsigned value)
{
    await(stage >= value);
}

static unsigned maps; /* that were asked for */

/* All that is asked for is mapped here: thousands of mappings cost minutes where a hypervisor
 * shadows page tables. */
static regx_shm_mapping_t same;

UNIT_WRAP(regx_status_t, regx_segment_map, const regx_segment_name_t *name,
          regx_shm_mapping_t *mapping)
{
    maps++;
    if (same.base == NULL) {
        return __real_regx_segment_map(name, mapping);
    }
    *mapping = same;
    return REGX_OK;
}

UNIT_WRAP(void, regx_segment_unmap, regx_shm_mapping_t *mapping)
{
    if (mapping->base == same.base) {
        return;
    }
    if (stage == 1) { /* one mailbox is left, and the other is not */
        stage = 2;
        await_stage(3);
    } else if (stage == 3) { /* both are */
        stage = 4;
        await_stage(5);
    }
    __real_regx_segment_unmap(mapping);
}

static void *close_two(void *nothing)
{
    tested->ops->close(two.transport);
    return nothing;
}

/* A process that closes does not mark mailboxes that are used again. */
UNIT_TEST(who_closes_leaves_each_mailbox_once)
{
    shm_parties_open(false);
    regx_conn_t *const first = one.conn;
    tested->ops->disconnect(two.conn);
    party_connect(&one, &two);
    regx_conn_t *const second = one.conn;
    party_send(&one, 1, 1, 8);
    parties_settle();
    assert_int_equal(shm_of(&two)->inbound_count, 2);
    stage = 1;
    const pthread_t closer = unit_thread(close_two, NULL);
    await_stage(2); /* it has left the first mailbox */
    tested->ops->disconnect(second);
    party_connect(&one, &one);
    regx_status_t status;
    until((status = party_try(&one, 1, 1, 8)) != REGX_AGAIN, step(&one));
    assert_int_equal(status, REGX_OK);
    stage = 3;
    await_stage(4); /* it leaves the second */
    assert_int_equal(atomic_load(&conn_of(&one)->box->memory->left), 0);
    stage = 5;
    pthread_join(closer, NULL);
    stage = 0;
    two.transport = NULL;
    tested->ops->disconnect(one.conn);
    tested->ops->disconnect(first);
    parties_settle();
    tested->ops->close(one.transport);
    one.transport = NULL;
}

/* A process that spawns many others, one after another, has mapped the segments of all. */
UNIT_TEST(who_closes_leaves_no_pages_to_those_who_stay)
{
    shm_parties_open(false);
    party_send(&one, 1, 1, 8);
    parties_settle();
    assert_non_null(conn_of(&one)->peer.main);
    const char *pool = conn_of(&one)->peer.pool;
    memset(conn_of(&one)->peer.pool, 1, POOL);
    assert_true(process_pages(pool, pool + POOL, 63) >= POOL / regx_page_size());
    tested->ops->disconnect(two.conn);
    parties_settle();
    tested->ops->close(two.transport);
    two.transport = NULL;
    assert_int_equal(process_pages(pool, pool + POOL, 63), 0);
    party_end(&one);
}

/* ---- neighbours that are there at the start ---- */

static bool lies_in_main(const party_t *party)
{
    return memcmp(&conn_of(party)->box->segment, &shm_of(party)->main.name,
                  sizeof(regx_segment_name_t)) == 0;
}

/* It may not be allowed to, or be able to, once the program runs. */
EARLY_TEST(after_connect_nothing_more_is_mapped)
{
    op_t op;

    const unsigned before = maps;
    assert_true(conn_of(&one)->peer.main != NULL && conn_of(&two)->peer.main != NULL);
    parties_exchange();
    memset(one.transport->pool_memory, 7, 4096);
    op_zcopy(&op, one.transport->pool_memory, 4096, 5);
    assert_int_equal(tested->ops->send_zcopy(one.conn, &op.zcopy), REGX_PENDING);
    op_await(&op);
    assert_int_equal(two.last_length, 4096);
    assert_true(lies_in_main(&one) && lies_in_main(&two));
    assert_int_equal(maps, before);
}

/* By two connections, and by who reads what it posts. The last of them unmaps it. */
EARLY_TEST(a_neighbour_is_mapped_once)
{
    parties_exchange();
    const regx_shm_view_t *view = conn_of(&one)->peer.view;
    assert_ptr_equal(shm_of(&one)->inbound[0]->peer.view, view);
    regx_conn_t *const first = one.conn;
    party_connect(&one, &two);
    const unsigned before = maps;
    party_send(&one, 1, 1, 8);
    parties_settle();
    assert_int_equal(two.delivered, 2);
    assert_ptr_equal(conn_of(&one)->peer.view, view);
    assert_int_equal(maps, before);
    parties_leave();
    assert_ptr_equal(shm_of(&one)->views, view);
    tested->ops->disconnect(first);
    parties_settle();
    regx_shm_reap(shm_of(&one));
    assert_null(shm_of(&one)->views);
}

/* One that is taken while its reader has not left it is not given to another. */
EARLY_TEST(a_mailbox_of_the_start_is_used_again_once_it_is_left)
{
    for (unsigned visit = 0; visit < 3; visit++) {
        parties_exchange();
        assert_true(lies_in_main(&one));
        tested->ops->disconnect(one.conn);
        party_connect(&one, &two);
        regx_conn_t *const second = one.conn;
        party_connect(&one, &two);
        assert_true(conn_of(&one)->box == NULL && regx_shm_conn_of(second)->box != NULL);
        tested->ops->disconnect(one.conn);
        tested->ops->disconnect(second);
        parties_settle();
        regx_shm_reap(shm_of(&one));
        party_connect(&one, &two);
    }
}

/* By itself, or killed: then it has closed nothing. What is mapped of it is there as before, but nobody
 * would ever answer. */
UNIT_TEST(who_has_ended_before_the_first_frame_is_refused)
{
    for (int killed = 0; killed < 2; killed++) {
        shm_parties_open_early();
        assert_non_null(conn_of(&one)->peer.main);
        assert_true(regx_shm_reachable(one.conn));
        party_leave(&two);
        party_close(&two);
        atomic_fetch_and(&conn_of(&one)->peer.main->queue.closed, !killed);
        assert_int_equal(party_try(&one, 1, 1, 1), REGX_UNREACHABLE);
        assert_true(fell_back(&one, "shm: the neighbour has ended"));
        assert_true(step(&one) == 1 && one.broken == 1);
        party_leave(&one);
        party_close(&one);
    }
}

/* ---- whom a process believes ---- */

/* A request that names a mailbox with such a ring must not be believed. */
static void request_wrongly(uint64_t offset, uint32_t ring)
{
    const uint64_t before = one.counters.malformed;
    const size_t inbound = shm_of(&one)->inbound_count;
    const regx_connect_request_t request = {.sender = THREE,
                                            .address = shm_of(&one)->address,
                                            .mailboxes = conn_of(&one)->box->segment,
                                            .mailbox_offset = offset,
                                            .mailbox_ring = ring};

    assert_int_equal(regx_connect_queue_request(shm_of(&one)->queue, &request), REGX_OK);
    assert_true(step(&one) > 0);
    assert_int_equal(one.counters.malformed, before + 1);
    assert_int_equal(shm_of(&one)->inbound_count, inbound);
}

SHM_TEST(a_mailbox_that_does_not_fit_is_refused)
{
    static const uint32_t rings[] = {0,
                                     1,
                                     64,
                                     REGX_MAILBOX_PAYLOAD_MIN / 2,
                                     REGX_MAILBOX_PAYLOAD_MIN - 1,
                                     REGX_MAILBOX_PAYLOAD_MIN + 64,
                                     2 * REGX_MAILBOX_PAYLOAD_MAX,
                                     UINT32_C(1) << 31,
                                     UINT32_MAX};

    const uint32_t ring = conn_of(&one)->box->ring;
    const uint64_t size = conn_of(&one)->box->segment.length, last = size - regx_mailbox_size(ring);
    for (size_t i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
        request_wrongly(0, rings[i]);
    }
    request_wrongly(last / 64 * 64 + 64, ring);
    request_wrongly(size, REGX_MAILBOX_PAYLOAD_MIN);
    request_wrongly(size + 64, REGX_MAILBOX_PAYLOAD_MIN);
    request_wrongly(8, REGX_MAILBOX_PAYLOAD_MIN);
    request_wrongly(UINT64_MAX - 63, REGX_MAILBOX_PAYLOAD_MIN);
    one.counters.malformed = 0;
}

/* A process that names another's segment, and says that it is longer, is not given a mapping of it. */
EARLY_TEST(who_lies_about_a_length_is_not_believed)
{
    parties_exchange();
    regx_connect_request_t request = {.sender = THREE,
                                      .address = shm_of(&two)->address,
                                      .mailbox_ring = conn_of(&two)->box->ring};
    request.mailbox_offset = regx_align_up(request.address.main.length, 64);
    request.address.main.length += 64 * (uint64_t)MIB;
    request.mailboxes = request.address.main;
    assert_int_equal(regx_connect_queue_request(shm_of(&one)->queue, &request), REGX_OK);
    assert_true(step(&one) > 0);
    assert_true(one.broken == 1 && strcmp(one.what, "its mailbox cannot be mapped") == 0);
    assert_int_equal(shm_of(&one)->inbound_count, 1);
}

/* One mailbox, into which nothing is posted, for all. */
UNIT_TEST(more_neighbours_than_a_node_has_are_refused)
{
    regx_segment_t unused;

    shm_parties_open(false);
    assert_int_equal(regx_segment_alloc(REGX_SEGMENT_POSIX,
                                        regx_mailbox_size(REGX_MAILBOX_PAYLOAD_MIN), &unused),
                     REGX_OK);
    regx_mailbox_memory_t *memory = (void *)unused.base;
    memory->owner = shm_of(&one)->queue->cookie;
    same = (regx_shm_mapping_t){unused.base, unused.name.length, REGX_SEGMENT_POSIX, {.fd = -1}};
    const regx_connect_request_t request = {.sender = THREE,
                                            .address = shm_of(&one)->address,
                                            .mailboxes = unused.name,
                                            .mailbox_ring = REGX_MAILBOX_PAYLOAD_MIN};
    while (one.broken == 0) {
        while (regx_connect_queue_request(shm_of(&one)->queue, &request) == REGX_OK) {
        }
        assert_true(step(&one) > 0);
    }
    assert_int_equal(shm_of(&one)->inbound_count, REGX_SHM_NEIGHBOURS_MAX);
    parties_close();
    same.base = NULL;
    regx_segment_free(&unused);
}

/* Progress says so, once. */
SHM_TEST(another_process_is_not_taken_for_the_peer)
{
    uint8_t bytes[REGX_ADDRESS_MAX];
    regx_shm_address_t address;

    tested->ops->disconnect(one.conn);
    parties_settle();
    tested->ops->address(two.transport, bytes);
    memcpy(&address, bytes, sizeof(address));
    address.cookie.words[0] ^= 1;
    assert_int_equal(regx_shm_connect(one.transport, TWO, &address, sizeof(address), &one.conn),
                     REGX_OK);
    assert_false(one.conn->single_copy);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(party_try(&one, 1, 1, 1), REGX_UNREACHABLE);
    }
    assert_true(fell_back(&one, "shm: another namespace, or a descriptor was closed") &&
                fallbacks(&one) == 1);
    assert_true(step(&one) == 1 && one.broken == 1);
    assert_int_equal(step(&one), 0);
}

/* ---- what is known of who writes ---- */

static unsigned behind;

static void count_if_behind(party_t *party)
{
    behind += regx_shm_has_next(party->transport);
}

/* Of three frames that are there at once, two; wherever in the ring of lines, and not one that came by
 * another mailbox. */
SHM_TEST(a_frame_is_known_behind_which_another_has_come)
{
    regx_conn_t *const first = one.conn;

    party_connect(&one, &two);
    regx_conn_t *const second = one.conn;
    two.on_deliver = count_if_behind;
    for (unsigned round = 0; round < REGX_MAILBOX_LINES; round++) {
        const unsigned before = two.delivered;

        behind = 0;
        for (unsigned frame = 0; frame < 4; frame++) {
            one.conn = frame == 0 ? first : second;
            party_send(&one, 1, frame, 8);
        }
        parties_settle();
        assert_int_equal(two.delivered, before + 4);
        assert_int_equal(behind, 2);
    }
    one.conn = first;
    tested->ops->disconnect(second);
}
