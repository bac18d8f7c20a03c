/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/file.h"
#include "base/util.h"

/* ---- handlers ---- */

/* Objects whose handlers print where the program crashed, and end it; of Fortran's by default. (Python's
 * faulthandler does so; a handler written in Python runs too late to bring in anything.) */
static const char *const reporters[] = {"libopen-pal.", "libucs",    "libgfortran.",
                                        "libifcore",    "libpython", "python3",
                                        "libasan.",     "libtsan.",  "libubsan."};

/* Where their code lies: noted before any thread asks. */
static struct {
    uintptr_t start, end;
} code[16];
static unsigned codes;

static bool only_reports(uintptr_t handler)
{
    for (unsigned i = 0; i < codes; i++) {
        if (handler >= code[i].start && handler < code[i].end) {
            return true;
        }
    }
    return false;
}

static int note_object(struct dl_phdr_info *object, size_t size, void *unused)
{
    const char *slash = strrchr(object->dlpi_name, '/');
    const char *name = slash != NULL ? slash + 1 : object->dlpi_name;
    bool reports = false;

    (void)size, (void)unused;
    if (name[0] == '\0') { /* the program itself */
        name = program_invocation_short_name;
    }
    for (unsigned i = 0; i < sizeof(reporters) / sizeof(reporters[0]); i++) {
        reports |= strncmp(name, reporters[i], strlen(reporters[i])) == 0;
    }
    for (unsigned i = 0; reports && i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const uintptr_t start = object->dlpi_addr + part->p_vaddr;

        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0 &&
            codes < sizeof(code) / sizeof(code[0])) {
            code[codes].start = start;
            code[codes++].end = start + part->p_memsz;
        }
    }
    return 0;
}

void regx_fault_note_reporters(void)
{
    codes = 0;
    dl_iterate_phdr(note_object, NULL);
}

bool regx_fault_has_handler(int signal)
{
    struct sigaction action;

    /* One word in all of Linux's ABIs, whichever of both members was set. */
    return sigaction(signal, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
           action.sa_handler != SIG_IGN && !only_reports((uintptr_t)action.sa_handler);
}

bool regx_fault_is_handled(int signal)
{
    sigset_t blocked;

    /* The kernel ends a process that ignores or blocks the signal of its own access. */
    return regx_fault_has_handler(signal) && pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0 &&
           sigismember(&blocked, signal) != 1;
}

/* ---- mappings ---- */

typedef struct mapping {
    uintptr_t start, end;
    bool readable, writable;
    bool file;      /* of a file or shared memory, that may have been cut short */
    bool device;    /* pages that only the processor reaches */
    bool paged;     /* by a userfaultfd, where they are missing */
    bool protected; /* single pages may be, by a userfaultfd */
} mapping_t;

/* Reads the next mapping, of smaps with its flags. false: there is no other. */
static bool read_mapping(FILE *maps, bool with_flags, mapping_t *mapping)
{
    unsigned long inode;
    bool found = false;
    char line[512], may[5];

    while (fgets(line, sizeof(line), maps) != NULL) {
        mapping_t next = {0};

        if (!found && sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %*x:%*x %lu", &next.start,
                             &next.end, may, &inode) == 4) {
            next.readable = may[0] == 'r';
            next.writable = may[1] == 'w';
            next.file = inode != 0;
            next.device = strstr(line, " /secretmem (deleted)") != NULL;
            *mapping = next;
            found = true;
        } else if (found && strncmp(line, "VmFlags:", 8) == 0) {
            /* Each flag has a blank on both sides. */
            mapping->device |= strstr(line, " io ") != NULL || strstr(line, " pf ") != NULL;
            mapping->paged = strstr(line, " um ") != NULL || strstr(line, " ui ") != NULL;
            mapping->protected = strstr(line, " uw ") != NULL;
            break;
        }
        if (found && !with_flags) {
            break;
        }
    }
    return found;
}

/* The mapping that the address is in. false: none, or /proc cannot be read. Takes long in a large
 * process, with its flags several times as long. */
static bool find_mapping(uintptr_t address, bool with_flags, mapping_t *mapping)
{
    FILE *maps = fopen(with_flags ? REGX_PROC "smaps" : REGX_PROC "maps", "re");
    bool found = false;

    if (maps == NULL) {
        return false;
    }
    while (!found && read_mapping(maps, with_flags, mapping) && mapping->start <= address) {
        found = address < mapping->end;
    }
    fclose(maps);
    return found;
}

#define PROTECTED 57 /* for writing, by a userfaultfd: regx's own protects none */
#define GUARD 58     /* by MADV_GUARD_INSTALL, since Linux 6.15, as of shared memory */

/* What the kernel says of that page, by the number of a bit. */
static bool is_page(uintptr_t address, unsigned bit)
{
    const int pagemap = open(REGX_PROC "pagemap", O_RDONLY | O_CLOEXEC);
    const off_t at = (off_t)(address / regx_page_size() * sizeof(uint64_t));
    uint64_t entry = 0;

    if (pagemap < 0) {
        return false;
    }
    const bool read_it = pread(pagemap, &entry, sizeof(entry), at) == (ssize_t)sizeof(entry);
    close(pagemap);
    return read_it && (entry >> bit & 1) != 0;
}

/* A mapping above grows down to an address (MAP_GROWSDOWN) that the processor reaches for, or the kernel for it: here
 * for a name. false: none has. */
static bool may_have_grown(uintptr_t address)
{
    struct stat status;

    return regx_raw(SYS_newfstatat, -1, (long)address, (long)&status, 0, 0) != -EFAULT;
}

bool regx_fault_may_touch(const void *address, bool stores, size_t *length)
{
    const uintptr_t at = (uintptr_t)address;
    const size_t wanted = *length;
    mapping_t mapping;

    *length = regx_min(wanted, regx_page_size() - at % regx_page_size());
    const bool found = find_mapping(at, false, &mapping);
    if (!found && may_have_grown(at) && find_mapping(at, false, &mapping)) {
        return stores ? mapping.writable : mapping.readable;
    }
    if (found && (stores ? !mapping.writable : !mapping.readable)) {
        *length = regx_min(wanted, mapping.end - at);
        return regx_fault_is_handled(SIGSEGV);
    }
    if (!found || !find_mapping(at, true, &mapping)) {
        /* Where /proc cannot be read: of what is mapped, and only the processor may reach, the kernel does
         * not say whose it is: a pager's, a handler's of SIGBUS, or nobody's, which then ends the job. */
        return regx_fault_is_handled(SIGSEGV) || regx_fault_bring_in(address, 1, stores) == EFAULT;
    }
    if (mapping.paged || mapping.device) {
        *length = regx_min(wanted, mapping.end - at);
        return true;
    }
    if (mapping.protected && is_page(at, PROTECTED)) {
        return true;
    }
    /* Behind a file's end, or memory that has failed; or a guard page. */
    const bool bus = (mapping.file && !is_page(at, GUARD)) ||
                     regx_fault_bring_in(address, 1, stores) == EHWPOISON;
    return regx_fault_is_handled(bus ? SIGBUS : SIGSEGV);
}

int regx_fault_bring_in(const void *base, size_t length, bool stores)
{
    const uintptr_t page = regx_page_size(), at = (uintptr_t)base & ~(page - 1);
    const size_t whole = regx_align_up((uintptr_t)base + length - at, page);

    return madvise((void *)at, whole, stores ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0
               ? 0
               : errno;
}

/* Before Linux 5.14 the kernel does not even answer of memory that is there. (A futex that adds 0 to the last
 * word takes half the time, and valgrind blames it for what nobody has written yet.) */
bool regx_fault_has_end(const char *end)
{
    const char there = 0;
    size_t one = 1;

    return regx_fault_bring_in(end - 1, 1, true) == 0 ||
           regx_fault_bring_in(&there, 1, true) != 0 || regx_fault_may_touch(end - 1, true, &one);
}

const char *regx_fault_lacks(const void *base, size_t length, bool stores)
{
    FILE *maps = fopen(REGX_PROC "maps", "re");
    uintptr_t at = (uintptr_t)base;
    const uintptr_t end = at + length;
    const char *lacks = NULL;
    mapping_t mapping;

    if (maps == NULL) {
        return NULL;
    }
    while (at < end && lacks == NULL) {
        if (!read_mapping(maps, false, &mapping) || mapping.start > at) {
            lacks = "not mapped";
        } else if (mapping.end > at) {
            at = mapping.end;
            if (stores && !mapping.writable) {
                lacks = "not writable";
            } else if (!stores && !mapping.readable) {
                lacks = "not readable";
            }
        }
    }
    fclose(maps);
    return lacks;
}
