/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of strategies: each path of large messages has the strategy of its name.
 */
#include "../unit.h"

#include "rendezvous/strategy.h"

static void each_path_of_large_messages_has_the_strategy_of_its_name(void **state)
{
    const regx_protocol_t *protocols[REGX_PATH_COUNT];
    unsigned count = 0;

    (void)state;
    regx_strategy_protocols(protocols);
    for (const regx_counter_t *path = regx_paths; path->name != NULL; path++) {
        const regx_strategy_t *strategy = regx_strategy_find(path->name);

        assert_int_equal(strategy != NULL, protocols[path->offset] != NULL);
        if (strategy != NULL) {
            assert_int_equal(strategy->path, path->offset);
            assert_ptr_equal(strategy->protocol, protocols[path->offset]);
            count++;
        }
    }
    regx_param_word_t word;
    for (unsigned i = 0; regx_strategy_word(i, &word); i++) {
        assert_string_equal(regx_strategy_name(regx_strategy_find(word.word)), word.word);
        count -= regx_strategy_find(word.word)->protocol != NULL;
    }
    assert_int_equal(count, 0); /* and there are no others */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_path_of_large_messages_has_the_strategy_of_its_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
