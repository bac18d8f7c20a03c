/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whom the verbs transport asks for a sign of life, over a device that is none.
 */
#include "../../unit.h"

#include "transport/verbs/ep.h"
#include "transport/verbs/keepalive.h"

enum { PEERS = 1000, LOOKS = 8 };

static unsigned posted[PEERS];
static regx_verbs_t verbs;
static regx_ep_t eps[PEERS];
static regx_work_t works[PEERS][64];
static struct ibv_qp qps[PEERS];
static struct ibv_context context;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *requests, struct ibv_send_wr **refused)
{
    (void)refused;
    assert_null(requests->next);
    posted[qp - qps]++;
    return 0;
}

/* All of them connected, and heard of last at the beginning of time. */
static int setup(void **state)
{
    (void)state;
    memset(&verbs, 0, sizeof(verbs));
    memset(eps, 0, sizeof(eps));
    regx_list_init(&verbs.eps);
    memset(posted, 0, sizeof(posted));
    context.ops.post_send = post_send;
    regx_keepalive_open(&verbs);
    verbs.outstanding_max = REGX_VERBS_OUTSTANDING;
    verbs.ep_count = PEERS;
    for (int i = 0; i < PEERS; i++) {
        qps[i].context = &context;
        eps[i] = (regx_ep_t){
            .verbs = &verbs, .state = REGX_EP_READY, .qp = &qps[i], .depth = 64, .works = works[i]};
        regx_list_init(&eps[i].asking_link);
        regx_list_append(&verbs.eps, &eps[i].link);
    }
    verbs.idle_ns = regx_now_ns() / 2; /* far longer than this test takes */
    return 0;
}

static void look(int times)
{
    for (int i = 0; i < times; i++) {
        verbs.look_next = 0;
        regx_keepalive_progress(&verbs);
    }
}

static void everybody_is_asked_once_in_the_idle_time(void **state)
{
    (void)state;
    look(LOOKS);
    for (int i = 0; i < PEERS; i++) {
        assert_int_equal(posted[i], 1);
    }
    look(LOOKS);
    for (int i = 0; i < PEERS; i++) {
        assert_int_equal(posted[i], 1);
    }
}

/* What found no room is asked later, not counted as asked. */
static void who_found_no_room_is_asked_later(void **state)
{
    unsigned asked = 0;

    (void)state;
    verbs.outstanding_max = 2;
    look(LOOKS);
    verbs.outstanding_max = REGX_VERBS_OUTSTANDING;
    look(LOOKS);
    for (int i = 0; i < PEERS; i++) {
        asked += posted[i];
    }
    assert_int_equal(asked, PEERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(everybody_is_asked_once_in_the_idle_time, setup),
        cmocka_unit_test_setup(who_found_no_room_is_asked_later, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
