/* SPDX-License-Identifier: BSD-3-Clause
 *
 * regx-check: runs a program with libregx-check.so preloaded, and says at the end what was found.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/file.h"
#include "check/check.h"

enum { USAGE = 2, FOUND = 3, NOT_FOLLOWED = 4, NOT_RUN = 126, NOT_FOUND = 127 };

/* Named by this process's descriptor, so that it needs none of the program's; and by the time, since in
 * another container the same path may be that of another command. */
static bool make_sum(void)
{
    char name[128];
    const int length = snprintf(name, sizeof(name), "regx-check-%ld", regx_now_ns());
    const int fd = memfd_create(name, MFD_CLOEXEC);

    snprintf(name + length, sizeof(name) - (size_t)length, " /proc/%d/fd/%d", getpid(), fd);
    if (fd >= 0 && ftruncate(fd, sizeof(*regx_check_sum)) == 0 &&
        setenv(REGX_CHECK_SUM, name, 1) == 0) {
        regx_check_sum_open(fd);
    }
    if (regx_check_sum == NULL) {
        regx_check_say("no memory for what is found: %s", strerror(errno));
        return false;
    }
    regx_check_sum->has_command = true;
    return true;
}

/* A pattern a line, as of a shell, for one of the three texts of a fault. # begins a comment. */
static bool read_patterns(const char *path)
{
    char *at = regx_check_sum->patterns;
    const char *const end = at + sizeof(regx_check_sum->patterns) - 1;
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        regx_check_say("--suppress=%s: %s", path, strerror(errno));
        return false;
    }
    while (end - at > 1 && fgets(at, (int)(end - at), file) != NULL) {
        at[strcspn(at, "\n")] = '\0';
        at += *at == '#' || *at == '\0' ? 0 : strlen(at) + 1;
    }
    *at = '\0';
    const bool whole = feof(file) != 0;
    if (!whole) {
        regx_check_say("--suppress=%s: %s", path,
                       ferror(file) ? strerror(errno) : "more than 8 KiB of patterns");
    }
    fclose(file);
    return whole;
}

/* The ranks of a job share a device or a pipe, but not a file; nor do those of a job that a program spawned, which
 * have ranks from 0 on again. Open MPI numbers the jobs of an mpirun: in the last 16 bits, or behind an @. */
static void name_json(char path[PATH_MAX], const char *given)
{
    const char *rank = regx_check_rank(), *job = getenv("PMIX_NAMESPACE");
    struct stat status;

    if (rank == NULL || (stat(given, &status) == 0 && !S_ISREG(status.st_mode))) {
        snprintf(path, PATH_MAX, "%s", given);
    } else if (getenv("OMPI_PARENT_PORT") == NULL || job == NULL) {
        snprintf(path, PATH_MAX, "%s.%s", given, rank);
    } else {
        const char *number = strrchr(job, '@') != NULL ? strrchr(job, '@') + 1 : job;
        snprintf(path, PATH_MAX, "%s.%lu.%s", given, strtoul(number, NULL, 10) & 0xffff, rank);
    }
}

/* Beside this command, as in the tree that it is built in; else where it is installed. The loader divides its
 * list at blanks and colons: a path that has one is named by a descriptor of this process. */
static bool preload(void)
{
    char path[PATH_MAX] = "/", held[64], list[2 * PATH_MAX];
    const char *before = getenv("LD_PRELOAD"), *library = path;

    if (readlink("/proc/self/exe", path, sizeof(path) - 32) > 0) {
        strcpy(strrchr(path, '/') + 1, "libregx-check.so");
    }
    if (access(path, R_OK) != 0 && access(library = REGX_CHECK_LIBRARY, R_OK) != 0) {
        regx_check_say("%s: %s", library, strerror(errno));
        return false;
    }
    if (strpbrk(library, " :") != NULL) {
        const int fd = open(library, O_RDONLY | O_CLOEXEC);

        snprintf(held, sizeof(held), "/proc/%d/fd/%d", getpid(), fd);
        library = held;
    }
    snprintf(list, sizeof(list), "%s:%s", library, before != NULL ? before : "");
    return setenv("LD_PRELOAD", list, 1) == 0;
}

/* Its wait status. Meanwhile the program gets the signals that this command is sent; those that a terminal
 * sends it gets by itself. */
static int run(char **arguments)
{
    const pid_t parent = getpid();
    sigset_t all, before;
    siginfo_t sent;
    int status = NOT_RUN << 8;

    sigfillset(&all);
    sigdelset(&all, SIGTSTP); /* this stops with the program */
    sigprocmask(SIG_SETMASK, &all, &before);
    void (*const for_children)(int) = signal(SIGCHLD, SIG_DFL);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGCHLD, for_children);
        sigprocmask(SIG_SETMASK, &before, NULL);
        /* Who ends this command means the program. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) {
            execvp(arguments[0], arguments);
            regx_check_say("%s: %s", arguments[0], strerror(errno));
        }
        _exit(errno == ENOENT ? NOT_FOUND : NOT_RUN);
    }
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (sigwaitinfo(&all, &sent) > 0 && sent.si_code <= 0) {
            kill(child, sent.si_signo);
        }
    }
    return status;
}

static void write_json(FILE *json, int status, uint64_t suppressed)
{
    const regx_check_sum_t *sum = regx_check_sum;
    const char *between = "";

    fprintf(json,
            "{\"status\": %d, \"processes\": %lu, \"devices\": %lu, \"registrations\": %lu, "
            "\"postings\": %lu, \"large\": %lu, \"unwatched\": %lu, \"uncompared\": %lu, "
            "\"unfollowed\": %lu, \"suppressed\": %lu, \"untold\": %lu, \"faults\": [",
            status, sum->processes, sum->devices, sum->registrations, sum->postings, sum->large,
            sum->unwatched, sum->unwitnessed, sum->unfollowed, suppressed, sum->untold);
    for (int i = 0; i < REGX_CHECK_FAULTS; i++) {
        const regx_check_fault_t *fault = &sum->faults[i];

        if (regx_check_verdict_names[fault->verdict] == NULL) {
            continue;
        }
        fprintf(json,
                "%s{\"times\": %lu, \"rank\": %d, \"process\": %d, \"address\": %lu, "
                "\"length\": %lu, \"verdict\": \"%s\", \"registered\": \"%s\", "
                "\"changed\": \"%s\", \"used\": \"%s\"}",
                between, fault->times, fault->rank, fault->process, fault->start, fault->length,
                regx_check_verdict_names[fault->verdict], fault->text[REGX_CHECK_REGISTERED],
                fault->text[REGX_CHECK_CHANGED], fault->text[REGX_CHECK_USED]);
        between = ", ";
    }
    fputs("]}\n", json);
    if (fclose(json) != 0) {
        regx_check_say("--json: %s", strerror(errno));
    }
}

int main(int argc, char **argv)
{
    static int is_required, stops;
    static const struct option options[] = {{"require", no_argument, &is_required, 1},
                                            {"json", required_argument, NULL, 'j'},
                                            {"stop", no_argument, &stops, 1},
                                            {"limit", required_argument, NULL, 'l'},
                                            {"suppress", required_argument, NULL, 'p'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    uint64_t times[REGX_CHECK_VERDICTS];
    char path[PATH_MAX], ended[64], *end;
    FILE *json = NULL;
    sigset_t all;
    int option;

    if (!make_sum()) {
        return NOT_RUN;
    }
    /* Files are opened now, before the program has run for nothing. */
    while ((option = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        switch (option) {
        case 0: /* it has its variable */
            break;
        case 'l':
            regx_check_sum->limit = strtoull(optarg, &end, 10);
            if (regx_check_sum->limit - 1 >= REGX_CHECK_FAULTS || *end != '\0') {
                regx_check_say("--limit=%s: allowed: 1 to %d", optarg, REGX_CHECK_FAULTS);
                return USAGE;
            }
            break;
        case 'j':
            name_json(path, optarg);
            json = fopen(path, "we");
            if (json == NULL) {
                regx_check_say("--json=%s: %s", path, strerror(errno));
                return USAGE;
            }
            break;
        case 'p':
            if (!read_patterns(optarg)) {
                return USAGE;
            }
            break;
        default:
            goto usage;
        }
    }
    regx_check_sum->stops = stops != 0;
    if (optind == argc) {
        goto usage;
    }
    const int waited = preload() ? run(argv + optind) : NOT_RUN << 8;
    int status = WIFSIGNALED(waited) ? 128 + WTERMSIG(waited) : WEXITSTATUS(waited);

    snprintf(ended, sizeof(ended), "the command ended %s %d",
             WIFSIGNALED(waited) ? "by signal" : "with status",
             WIFSIGNALED(waited) ? WTERMSIG(waited) : status);
    if ((regx_check_sum->processes != 0 || (status != NOT_FOUND && status != NOT_RUN)) &&
        !regx_check_sum_print(waited != 0 ? ended : NULL) && is_required != 0 && waited == 0) {
        status = NOT_FOLLOWED;
    }
    if (regx_check_sum_used(times) != 0 && (waited == 0 || regx_check_sum->stops)) {
        status = FOUND;
    }
    if (json != NULL) {
        write_json(json, status, times[REGX_CHECK_SUPPRESSED]);
    }
    if (status > 128 && WIFSIGNALED(waited)) { /* ends as the program did */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(WTERMSIG(waited), SIG_DFL);
        sigfillset(&all);
        sigprocmask(SIG_UNBLOCK, &all, NULL);
        raise(WTERMSIG(waited));
    }
    return status;
usage:
    regx_check_say("usage: regx-check [--require] [--json FILE] [--stop] [--limit N] "
                   "[--suppress FILE] COMMAND [ARGUMENT...]; see man regx-check");
    return option == 'h' ? 0 : USAGE;
}
