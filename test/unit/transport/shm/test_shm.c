/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared memory: two processes, every byte checked.
 */
#include "sides.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FRAMES = 2000 };

static void zcopy_done(regx_zcopy_t *zcopy, regx_status_t status)
{
    side_t *side = zcopy->context;

    REQUIRE(status == REGX_OK);
    zcopy->context = NULL; /* free again */
    side->done++;
}

static void pack(void *context, void *to, size_t length)
{
    memcpy(to, context, length);
}

/* Frame n, copied. Whether it was accepted. */
static bool copy_frame(side_t *side, unsigned n)
{
    static uint8_t buffer[REGX_SHM_MAX_FRAME];
    const size_t size = frame_size(n), header = size < 56 ? size : 56;

    unit_fill(buffer, size, side->config.self + n, 0);
    const regx_status_t status = regx_shm_send(side->conn, (uint8_t)(1 + n % 200), buffer, header,
                                               pack, buffer + header, size - header);
    REQUIRE(status == REGX_OK || status == REGX_AGAIN);
    return status == REGX_OK;
}

/* Frame n: copied, or lent from one of eight places in the pool. Whether it was accepted. */
static bool send_frame(side_t *side, unsigned n)
{
    static regx_zcopy_t zcopies[8];
    const size_t size = frame_size(n);
    const uint8_t tag = (uint8_t)(1 + n % 200);
    regx_zcopy_t *zcopy = &zcopies[n % 8];
    regx_status_t status;

    if (n % 3 == 0) {
        if (zcopy->context != NULL) {
            return false;
        }
        uint8_t *place = side->pool + (n % 8) * REGX_SHM_MAX_FRAME;
        unit_fill(place, size, side->config.self + n, 0);
        *zcopy = (regx_zcopy_t){
            .data = place, .length = size, .tag = tag, .done = zcopy_done, .context = side};
        status = regx_shm_send_zcopy(side->conn, zcopy);
        REQUIRE(status == REGX_PENDING || status == REGX_AGAIN);
        zcopy->context = status == REGX_PENDING ? side : NULL;
        return status == REGX_PENDING;
    }
    return copy_frame(side, n);
}

static void stream(side_t *side)
{
    unsigned sent = 0;

    while (sent < FRAMES || side->delivered < FRAMES || side->done < (FRAMES + 2) / 3) {
        while (sent < FRAMES && send_frame(side, sent)) {
            sent++;
        }
        progress(side);
    }
    REQUIRE(side->counters.malformed == 0);
    meet(side);
}

static void stream_to_one(side_t *side)
{
    stream(side);
    REQUIRE(regx_box_ring(&regx_shm_conn_of(side->conn)->box) == REGX_MAILBOX_PAYLOAD_MAX);
}

static void frames_of_every_kind_arrive_in_order(void **state)
{
    (void)state;
    run_pair(false, stream_to_one, stream_to_one);
}

/* How many whole pages between the two this process has mapped to memory. */
static size_t pages_mapped(const void *from, const void *to)
{
    const size_t page = regx_page_size();
    const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    size_t count = 0;

    REQUIRE(pagemap >= 0);
    for (uintptr_t at = regx_align_up((uintptr_t)from, page); at + page <= (uintptr_t)to;
         at += page) {
        uint64_t entry;

        REQUIRE(pread(pagemap, &entry, sizeof(entry), (off_t)(at / page * sizeof(entry))) ==
                sizeof(entry));
        count += entry >> 63;
    }
    close(pagemap);
    return count;
}

/* Linux before 5.14 brings in more, and one that gives huge pages to all shared memory. */
static bool brings_in_lines_alone(void)
{
    const size_t page = regx_page_size();
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
    char setting[80] = ""; /* the one that holds in brackets */
    bool can = false;

    if (file != NULL) {
        REQUIRE(fgets(setting, sizeof(setting), file) != NULL);
        fclose(file);
    }
    if (strstr(setting, "[always]") != NULL || strstr(setting, "[force]") != NULL) {
        return false;
    }
#if defined(MADV_POPULATE_WRITE)
    void *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    REQUIRE(memory != MAP_FAILED);
    can = madvise(memory, page, MADV_POPULATE_WRITE) == 0;
    munmap(memory, page);
#endif
    return can;
}

static void look_at_pages(side_t *side)
{
    attach(side);
    const regx_mailbox_memory_t *memory = side->shm->inbound[0]->memory;
    const uint8_t *end = memory->payload + side->shm->inbound[0]->in.ring;

    REQUIRE(pages_mapped(memory->lines, memory->payload) >=
            sizeof(memory->lines) / regx_page_size() - 1);
    if (brings_in_lines_alone()) {
        REQUIRE(pages_mapped(memory->payload, end) == 0);
    }
    meet(side);
}

/* With many neighbours that say little, this is most of a mailbox. */
static void a_ring_that_nothing_came_by_is_not_mapped(void **state)
{
    (void)state;
    run_pair(false, look_at_pages, look_at_pages);
}

/* The others are never written to. */
static void stream_to_one_of_many(side_t *side)
{
    const regx_shm_address_t address = regx_shm_conn_of(side->conn)->address;
    regx_conn_t *others[REGX_BOXES_FEW];

    for (unsigned i = 0; i < REGX_BOXES_FEW; i++) {
        others[i] = side_connect(side, 1000 + i, &address);
    }
    stream(side);
    REQUIRE(regx_box_ring(&regx_shm_conn_of(side->conn)->box) == REGX_MAILBOX_PAYLOAD_MAX / 2);
    for (unsigned i = 0; i < REGX_BOXES_FEW; i++) {
        regx_shm_disconnect(others[i]);
    }
    REQUIRE(side->shm->boxes.neighbours == 1);
}

static void with_many_neighbours_the_rings_are_shorter(void **state)
{
    (void)state;
    run_pair(false, stream_to_one_of_many, stream_to_one);
}

/* A request that names a mailbox with such a ring must not be believed. */
static void request_wrongly(side_t *side, uint64_t offset, uint32_t ring)
{
    const regx_shm_box_t *box = &regx_shm_conn_of(side->conn)->box;
    const uint64_t before = side->counters.malformed;
    const size_t inbound = side->shm->inbound_count;
    const regx_connect_request_t request = {.sender = 99,
                                            .cookie = side->shm->queue->cookie,
                                            .mailboxes = *regx_box_segment(box),
                                            .mailbox_offset = offset,
                                            .mailbox_ring = ring};

    REQUIRE(regx_connect_queue_request(side->shm->queue, &request) == REGX_OK);
    REQUIRE(regx_shm_progress(side->transport) > 0);
    REQUIRE(side->counters.malformed == before + 1 && side->shm->inbound_count == inbound);
}

static void lie_about_mailboxes(side_t *side)
{
    stream(side);
    const regx_shm_box_t *box = &regx_shm_conn_of(side->conn)->box;
    const uint32_t ring = regx_box_ring(box);
    const uint64_t size = regx_box_segment(box)->length, last = size - regx_mailbox_size(ring);
    static const uint32_t rings[] = {0,
                                     1,
                                     64,
                                     REGX_MAILBOX_PAYLOAD_MIN / 2,
                                     REGX_MAILBOX_PAYLOAD_MIN - 1,
                                     REGX_MAILBOX_PAYLOAD_MIN + 64,
                                     2 * REGX_MAILBOX_PAYLOAD_MAX,
                                     UINT32_C(1) << 31,
                                     UINT32_MAX};

    for (size_t i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
        request_wrongly(side, 0, rings[i]);
    }
    request_wrongly(side, last / 64 * 64 + 64, ring);
    request_wrongly(side, size, REGX_MAILBOX_PAYLOAD_MIN);
    request_wrongly(side, size + 64, REGX_MAILBOX_PAYLOAD_MIN);
    request_wrongly(side, 8, REGX_MAILBOX_PAYLOAD_MIN);
    request_wrongly(side, UINT64_MAX - 63, REGX_MAILBOX_PAYLOAD_MIN);
    meet(side);
}

static unsigned refused;

static void refuse(void *context, uint64_t peer, const char *what)
{
    (void)context, (void)peer;
    REQUIRE(strcmp(what, "there are too many neighbours") == 0);
    refused++;
}

/* One mailbox, into which nobody posts, for all. */
static void ask_too_often(side_t *side)
{
    enum { MORE = 3 };
    regx_shm_box_t box;
    unsigned asked = 0;

    stream(side);
    const size_t before = side->shm->inbound_count;
    side->shm->config.events.broken = refuse;
    refused = 0;
    side->shm->boxes.neighbours++;
    REQUIRE(regx_boxes_take(&side->shm->boxes, &side->shm->domain, &side->shm->queue->cookie,
                            &box) == REGX_OK);
    for (; asked < REGX_SHM_NEIGHBOURS_MAX - before + MORE; asked++) {
        const regx_connect_request_t request = {.sender = 5000 + asked,
                                                .cookie = side->shm->queue->cookie,
                                                .mailboxes = *regx_box_segment(&box),
                                                .mailbox_offset = regx_box_offset(&box),
                                                .mailbox_ring = regx_box_ring(&box)};

        REQUIRE(regx_connect_queue_request(side->shm->queue, &request) == REGX_OK);
        REQUIRE(regx_shm_progress(side->transport) > 0);
    }
    REQUIRE(side->shm->inbound_count == REGX_SHM_NEIGHBOURS_MAX);
    REQUIRE(refused == MORE && side->counters.malformed == 0);
    regx_boxes_give(&box);
    side->shm->boxes.neighbours--;
    meet(side);
}

static void stream_and_meet(side_t *side)
{
    stream(side);
    meet(side);
}

static void more_neighbours_than_a_node_has_are_refused(void **state)
{
    (void)state;
    run_pair(false, ask_too_often, stream_and_meet);
}

static void a_mailbox_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    run_pair(false, lie_about_mailboxes, stream_and_meet);
}

enum { LEFT_BEHIND = 12 };

static void send_and_go(side_t *side)
{
    for (unsigned n = 0; n < LEFT_BEHIND; n++) {
        while (!copy_frame(side, n)) { /* a zcopy would be failed by the end */
        }
    }
    meet(side); /* and on to the end; nothing has been read yet */
}

static void read_late(side_t *side)
{
    meet(side);
    while (side->delivered < LEFT_BEHIND) {
        progress(side);
    }
    while (side->shm->inbound_count > 0) { /* until the goodbye */
        progress(side);
    }
}

static void the_end_waits_until_all_is_read(void **state)
{
    (void)state;
    run_pair(false, read_late, send_and_go);
}

static unsigned reported;

static void note_broken(void *context, uint64_t peer, const char *what)
{
    (void)context;
    REQUIRE(peer == (in_child ? PARENT : CHILD));
    REQUIRE(strcmp(what, "shm: another name space, or a descriptor was closed") == 0);
    reported++;
}

/* Progress says so, once. */
static void cannot_reach(side_t *side)
{
    side->shm->config.events.broken = note_broken;
    reported = 0;
    for (int i = 0; i < 2; i++) {
        REQUIRE(regx_shm_send(side->conn, 1, "x", 1, NULL, NULL, 0) == REGX_UNREACHABLE);
    }
    REQUIRE(strcmp(side->counters.fallbacks[0].reason,
                   "shm: another name space, or a descriptor was closed") == 0);
    REQUIRE(side->counters.fallbacks[0].count == 1);
    meet(side);
    REQUIRE(regx_shm_progress(side->transport) == 1 && reported == 1);
    REQUIRE(regx_shm_progress(side->transport) == 0); /* nobody has knocked */
}

static void another_process_is_not_taken_for_the_peer(void **state)
{
    (void)state;
    run_pair(true, cannot_reach, cannot_reach);
}

/* ---- a neighbour that does not read ---- */

static unsigned selves;

static void deliver_own(void *context, uint64_t sender, uint8_t tag, const void *data,
                        size_t length)
{
    (void)context;
    (void)data;
    REQUIRE(sender == PARENT && tag == 5 && length == 8);
    selves++;
}

/* The other's mailbox is full; frames to this process itself still go. */
static void fill_the_other(side_t *side)
{
    regx_shm_address_t address;
    regx_conn_t *self;
    unsigned sent = 0;

    side_address(side, &address);
    self = side_connect(side, PARENT, &address);
    while (copy_frame(side, sent)) {
        sent++;
    }
    REQUIRE(sent > 0 && sent < REGX_MAILBOX_LINES);
    side->shm->config.events.deliver = deliver_own;
    for (unsigned i = 0; i < 2 * REGX_MAILBOX_LINES; i++) {
        while (regx_shm_send(self, 5, "in time.", 8, NULL, NULL, 0) == REGX_AGAIN) {
            progress(side);
        }
        REQUIRE(!copy_frame(side, sent)); /* still full */
    }
    while (selves < 2 * REGX_MAILBOX_LINES) {
        progress(side);
    }
    regx_shm_disconnect(self);
    REQUIRE(write(side->socket, &sent, sizeof(sent)) == sizeof(sent));
    meet(side);
    REQUIRE(copy_frame(side, sent)); /* there is room again */
    meet(side);
}

static void read_when_told(side_t *side)
{
    unsigned sent;

    REQUIRE(recv(side->socket, &sent, sizeof(sent), MSG_WAITALL) == sizeof(sent));
    REQUIRE(side->delivered == 0);
    while (side->delivered < sent) {
        progress(side);
    }
    meet(side);
    while (side->delivered < sent + 1) {
        progress(side);
    }
    meet(side);
}

static void a_full_mailbox_stops_nobody_else(void **state)
{
    (void)state;
    run_pair(false, fill_the_other, read_when_told);
}

/* ---- a neighbour that comes and goes ---- */

enum { VISITS = 3 * REGX_BOXES_SEGMENT };

static void come_and_go(side_t *side)
{
    const regx_shm_address_t address = regx_shm_conn_of(side->conn)->address;
    const uint64_t peer = side->conn->peer;
    const void *segment = NULL;

    for (unsigned visit = 0; visit < VISITS; visit++) {
        side->delivered = side->done = 0;
        for (unsigned n = 0; n < LEFT_BEHIND; n++) {
            while (!send_frame(side, n)) {
                progress(side);
            }
        }
        while (side->delivered < LEFT_BEHIND || side->done < (LEFT_BEHIND + 2) / 3) {
            progress(side);
        }
        const void *used = regx_shm_conn_of(side->conn)->box.segment;
        REQUIRE(segment == NULL || used == segment); /* no other one is ever made */
        segment = used;
        meet(side);
        regx_shm_disconnect(side->conn);
        while (side->shm->inbound_count > 0) { /* until the other's goodbye is read */
            progress(side);
        }
        meet(side);
        side->conn = side_connect(side, peer, &address);
    }
}

static void mailboxes_are_used_again(void **state)
{
    (void)state;
    run_pair(false, come_and_go, come_and_go);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_every_kind_arrive_in_order),
        cmocka_unit_test(with_many_neighbours_the_rings_are_shorter),
        cmocka_unit_test(a_ring_that_nothing_came_by_is_not_mapped),
        cmocka_unit_test(a_mailbox_that_does_not_fit_is_refused),
        cmocka_unit_test(more_neighbours_than_a_node_has_are_refused),
        cmocka_unit_test(the_end_waits_until_all_is_read),
        cmocka_unit_test(another_process_is_not_taken_for_the_peer),
        cmocka_unit_test(a_full_mailbox_stops_nobody_else),
        cmocka_unit_test(mailboxes_are_used_again),
    };

    return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}
