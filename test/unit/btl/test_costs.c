/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The file of btl_regx_costs: what is read of it, and that anything else in its place is refused
 * with one line, and keeps nobody waiting.
 */
#include "config.h"

#include "../unit.h"

#include <sys/stat.h>

#include "btl/costs.h"

#define HEAD "regx-costs 3\nregx " PACKAGE_VERSION "\nprocessor Me 1 2\n"

enum { KIB = 1024, S8K = 0, S16K, S32K, S64K };

static char name[] = "/tmp/costs.XXXXXX";
static regx_costs_t costs;
static regx_error_t error;

static int make(void **state)
{
    const int fd = mkstemp(name);

    assert_true(fd >= 0);
    close(fd);
    return 0;
}

static int take_away(void **state)
{
    remove(name);
    return 0;
}

static void write_file(const char *text, size_t length)
{
    FILE *file = fopen(name, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static bool read_text(const char *text)
{
    write_file(text, strlen(text));
    error[0] = '\0';
    return regx_costs_read(name, "Me 1 2", &costs, error);
}

static bool nothing_is_known(void)
{
    static const regx_costs_t none;

    return memcmp(&costs, &none, sizeof(costs)) == 0;
}

/* Refused by a line that names the parameter, the file and what is wrong, and nothing is kept. */
static void assert_refused(bool was_read, const char *why)
{
    assert_false(was_read);
    assert_true(nothing_is_known());
    assert_non_null(strstr(error, "btl_regx_costs="));
    assert_non_null(strstr(error, "is ignored"));
    assert_null(strchr(error, '\n'));
    unit_expect(strstr(error, why) != NULL, "\"%s\" does not say \"%s\"", error, why);
}

UNIT_TEST(without_a_file_nothing_is_known)
{
    assert_true(regx_costs_read("", NULL, &costs, error));
    assert_true(nothing_is_known());
}

UNIT_TEST(of_each_line_the_costs_are_known)
{
    static const uint64_t line[REGX_COSTS_WAYS] = {10, 20, 0, 40};

    assert_true(read_text(HEAD "# a remark\n"
                               "l3 8K stream 10 20 - 40\n"
                               "any 32768 exchange 10 20 - 40\n"
                               "any 8G touched 10 20 - 40\n"
                               "end\n"));
    assert_memory_equal(costs.of[REGX_NEIGHBOUR_L3][S8K][REGX_PATTERN_STREAM], line, sizeof(line));
    assert_memory_equal(costs.of[REGX_NEIGHBOUR_ANY][S32K][REGX_PATTERN_EXCHANGE], line,
                        sizeof(line));
    assert_memory_equal(costs.of[REGX_NEIGHBOUR_ANY][REGX_COSTS_SIZES - 1][REGX_PATTERN_TOUCHED],
                        line, sizeof(line));
    assert_int_equal(costs.of[REGX_NEIGHBOUR_L3][S8K][REGX_PATTERN_SINGLE][0], 0);
}

UNIT_TEST(a_file_from_elsewhere_is_refused)
{
    assert_refused(read_text("regx-costs 2\n"), "line 1 is not \"regx-costs 3\"");
    assert_refused(read_text("regx-costs 3\nregx 0.0.9\n"),
                   "line 2 is not \"regx " PACKAGE_VERSION);
    assert_refused(read_text("regx-costs 3\nregx " PACKAGE_VERSION "\nprocessor Me 1 3\nend\n"),
                   "line 3 is not \"processor Me 1 2\"");
}

UNIT_TEST(lines_that_make_no_sense_are_refused)
{
    static const char *const lines[] = {
        "l3 8K stream - - - -",
        "l3 8K stream 10 20 30",
        "l3 8K stream 10 20 30 40 50",
        "l3 8K stream 10 20 30 -40",
        "l3 8K stream 10 20 30 0",
        "l3 8K stream 10 20 30 1000000000001",
        "l3 12K stream 10 20 30 40",
        "l3 4K stream 10 20 30 40",
        "l3 16G stream 10 20 30 40",
        "l4 8K stream 10 20 30 40",
        "l3 8K streams 10 20 30 40",
        "l3 8K 10 20 30 40", /* as in format 2 */
        "l3",
        "",
        "any 64K stream 1 2 3 4", /* again */
        "end of it",
        "\x1b[31m",
    };

    for (unsigned i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char text[256];

        snprintf(text, sizeof(text), HEAD "any 64K stream 1 2 3 4\n%s\nend\n", lines[i]);
        assert_refused(read_text(text), "line 5; allowed: ");
    }
}

/* At every byte. What ends with the word itself lacks its line's end alone. */
UNIT_TEST(a_file_that_was_cut_is_refused)
{
    static const char text[] =
        HEAD "l2 8K single 10 20 30 40\nany 64K stream 100 200 300 400\nend\n";

    for (size_t length = 0; length < sizeof(text) - 2; length++) {
        write_file(text, length);
        assert_refused(regx_costs_read(name, "Me 1 2", &costs, error), "");
    }
    write_file(text, sizeof(text) - 2);
    assert_true(regx_costs_read(name, "Me 1 2", &costs, error));
    write_file(text, sizeof(text)); /* a zero behind it */
    assert_true(regx_costs_read(name, "Me 1 2", &costs, error));
}

UNIT_TEST(what_is_no_file_is_refused)
{
    remove(name);
    assert_refused(regx_costs_read(name, "Me 1 2", &costs, error), "No such file");
    assert_refused(regx_costs_read("/tmp", "Me 1 2", &costs, error), "no regular file");
    assert_refused(regx_costs_read("/dev/zero", "Me 1 2", &costs, error), "no regular file");
    assert_int_equal(mkfifo(name, 0600), 0);
    assert_refused(regx_costs_read(name, "Me 1 2", &costs, error), "no regular file");
    remove(name);
}

UNIT_TEST(a_file_without_end_is_not_read)
{
    assert_true(read_text(HEAD "end\n"));
    assert_int_equal(truncate(name, (off_t)1 << 40), 0);
    assert_refused(regx_costs_read(name, "Me 1 2", &costs, error), "longer than 64 KiB");
    assert_int_equal(truncate(name, 65537), 0);
    assert_refused(regx_costs_read(name, "Me 1 2", &costs, error), "longer than 64 KiB");
    assert_int_equal(truncate(name, 65536), 0);
    assert_true(regx_costs_read(name, "Me 1 2", &costs, error));
}

/* ---- what the tuners are told ---- */

static regx_path_t told[REGX_COSTS_SIZES][REGX_TRAFFICS];
static regx_eager_t eager;

UNIT_WRAP(void, regx_rndv_tell, regx_rndv_t *rndv, uint64_t length,
          const regx_path_t fastest[REGX_TRAFFICS])
{
    memcpy(told[__builtin_ctzll(length / REGX_COSTS_SMALLEST)], fastest, sizeof(told[0]));
}

/* What a file of these lines tells. */
static void tell(const char *lines, regx_neighbour_t neighbour)
{
    size_t limit = REGX_EAGER_MAX;
    char text[1024];

    snprintf(text, sizeof(text), HEAD "%send\n", lines);
    assert_true(read_text(text));
    for (unsigned i = 0; i < REGX_COSTS_SIZES * REGX_TRAFFICS; i++) {
        told[i / REGX_TRAFFICS][i % REGX_TRAFFICS] = REGX_PATH_COUNT;
    }
    regx_eager_init(&eager, &limit, true);
    regx_costs_tell(&costs, neighbour, &eager, NULL);
}

UNIT_TEST(a_neighbour_without_a_line_is_any)
{
    static const char lines[] = "l3 8K stream 20 30 40 10\n"
                                "any 8K stream 10 20 30 40\n"
                                "l3 8K exchange 20 - - 10\n"
                                "any 8K exchange 10 - - 20\n"
                                "l3 16K stream 10 - - 20\n"
                                "l3 16K exchange 20 - - 10\n"
                                "any 16K stream 10 - - 20\n"
                                "any 16K exchange 10 - - 20\n"
                                "l3 64K stream - 10 30 20\n"
                                "any 64K stream - 20 10 30\n"
                                "any 64K exchange - 20 30 10\n";

    tell(lines, REGX_NEIGHBOUR_NODE);
    assert_int_equal(eager.of[S8K].told[REGX_TRAFFIC_STREAM], REGX_EAGER_SEND);
    assert_int_equal(told[S64K][REGX_TRAFFIC_STREAM], REGX_PATH_together);
    /* The same process has another neighbour, farther away. */
    regx_costs_tell(&costs, REGX_NEIGHBOUR_L3, &eager, NULL);
    assert_int_equal(eager.of[S8K].told[REGX_TRAFFIC_STREAM], REGX_EAGER_RENDEZVOUS);
    assert_int_equal(told[S64K][REGX_TRAFFIC_STREAM], REGX_PATH_staged);
    assert_int_equal(told[S64K][REGX_TRAFFIC_EXCHANGE], REGX_PATH_read);
    assert_int_equal(told[S64K][REGX_TRAFFIC_SINGLE], REGX_PATH_COUNT);
    assert_int_equal(told[S16K][REGX_TRAFFIC_STREAM], REGX_PATH_COUNT); /* nothing */
    assert_int_equal(eager.of[S16K].state, REGX_TUNE_UNTRIED);
}

enum { SINGLE = REGX_TRAFFIC_SINGLE, STREAM, EXCHANGE, UNTOLD = REGX_TUNE_UNTOLD };

/* Two lines, and one thing that is told of them, or not: to the sender of 8 KiB, or the receiver of 64 KiB. */
static const struct {
    const char *first, *second;
    bool sends;
    uint8_t traffic;
    unsigned way;
} cases[] = {
    /* `together` loses most in the first pattern: a quarter, or more */
    {"single - 200 125 100", "touched - 100 110 130", false, SINGLE, REGX_PATH_together},
    {"single - 200 126 100", "touched - 100 110 130", false, SINGLE, REGX_PATH_COUNT},
    {"touched - 100 1 130", "stream - 1 2 3", false, SINGLE, REGX_PATH_COUNT},
    {"single 125 1 1 100", "touched 100 1 1 150", true, SINGLE, REGX_EAGER_SEND},
    {"single 126 1 1 100", "touched 100 1 1 150", true, SINGLE, UNTOLD},
    /* a sender does not know whether its receiver sends, too */
    {"stream 100 1 1 130", "exchange 120 1 1 100", true, STREAM, REGX_EAGER_SEND},
    {"stream 100 1 1 130", "exchange 130 1 1 100", true, STREAM, UNTOLD},
    {"stream 100 1 1 130", "touched 100 1 1 130", true, STREAM, UNTOLD},
    {"stream - 100 1 130", "exchange - 130 100 1", false, STREAM, REGX_PATH_together},
    {"stream - 100 1 130", "exchange - 130 100 1", false, EXCHANGE, REGX_PATH_read},
    /* one way alone is not compared */
    {"stream 100 1 1 -", "exchange 100 1 1 -", true, STREAM, UNTOLD},
    {"stream 1 - 2 -", "exchange - 1 2 3", false, STREAM, REGX_PATH_COUNT},
};

UNIT_TEST(what_loses_little_in_each_pattern_is_told)
{
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *size = cases[i].sends ? "8K" : "64K";
        char lines[128];

        snprintf(lines, sizeof(lines), "l2 %s %s\nl2 %s %s\n", size, cases[i].first, size,
                 cases[i].second);
        tell(lines, REGX_NEIGHBOUR_L2);
        assert_int_equal(cases[i].sends ? eager.of[S8K].told[cases[i].traffic]
                                        : told[S64K][cases[i].traffic],
                         cases[i].way);
    }
}

const unit_group_t unit_group = {.setup = make, .teardown = take_away};
