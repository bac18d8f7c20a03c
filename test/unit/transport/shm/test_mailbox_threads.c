/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The mailbox between two threads, of which one posts and one polls, as two processes do.
 */
#include "box.h"

#include <pthread.h>
#include <sched.h>

/* Some hundred laps. Each hand-over may take time slices of other programs. The thread sanitizer is
 * content with a few laps, and looks at each byte for long. */
#ifdef __SANITIZE_THREAD__
enum { STREAM = 2500, STREAM_SEED = 7 };
#else
enum { STREAM = 50000, STREAM_SEED = 7 };
#endif

typedef struct stream {
    box_t *box;
    _Atomic bool failed;
} stream_t;

static void *produce(void *argument)
{
    stream_t *stream = argument;
    uint64_t seed = STREAM_SEED;

    for (uint64_t number = 0; number < STREAM; number++) {
        const size_t length = some_length(&seed);

        while (post(stream->box, number, length) == REGX_AGAIN) {
            if (atomic_load(&stream->failed)) {
                return NULL;
            }
            sched_yield();
        }
    }
    return NULL;
}

static void many_frames_between_threads(void **state)
{
    stream_t stream = {.box = box_open()};
    regx_frame_t frame;
    pthread_t producer;
    uint64_t seed = STREAM_SEED;
    uint64_t number = 0;

    assert_int_equal(pthread_create(&producer, NULL, produce, &stream), 0);
    while (number < STREAM && !atomic_load(&stream.failed)) {
        const regx_status_t status = regx_mailbox_peek(&stream.box->in, &frame);

        if (status == REGX_AGAIN) {
            sched_yield();
        } else if (status == REGX_OK && is_frame(&frame, number, some_length(&seed))) {
            regx_mailbox_pop(&stream.box->in, &frame);
            number++;
        } else {
            atomic_store(&stream.failed, true);
        }
    }
    pthread_join(producer, NULL);
    assert_int_equal(number, STREAM);
    assert_true(stream.box->in.line > 8 * REGX_MAILBOX_LINES);
    assert_true(stream.box->in.payload > 8 * (uint64_t)BOX_RING);
    assert_empty(stream.box);
    box_close(stream.box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_frames_between_threads),
    };

    return cmocka_run_group_tests(tests, box_setup, NULL);
}
