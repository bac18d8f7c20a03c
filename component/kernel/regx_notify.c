// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0
/*
 * The module behind regx_notify.h. One MMU notifier for each open file, with a tree of its own: the
 * kernel's interval notifiers wait, when one is added, for a moment in which nothing at all changes in
 * the process: seconds, with eight busy threads. The callbacks run inside other threads' munmap, in
 * reclaim, and in processes that truncate a file. They take one spinlock, allocate nothing, never refuse.
 *
 * The order that all rests on: a change enters the table of what is under way, and looks for
 * watches that it overlaps, under the lock, before the kernel changes a page table. WATCH enters the
 * tree and looks over that table under the same lock. So of a change and a watch that overlap, one
 * sees the other: either the change is told, or WATCH waits until it is over.
 */
#include <linux/fs.h>
#include <linux/interval_tree_generic.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/vmalloc.h>

#include "regx_notify.h"

#ifndef SLAB_NO_MERGE
#define SLAB_NO_MERGE 0 /* since 6.5. With it /proc/slabinfo tells of watches by themselves */
#endif
#define PAGES (sizeof(struct regx_notify_page) >> PAGE_SHIFT)

static unsigned int watches_max = 1u << 18;
module_param_named(watches, watches_max, uint, 0644);
MODULE_PARM_DESC(watches, "ranges that an open file may watch at once (56 bytes each)");

static struct kmem_cache *watch_cache;
static atomic_t files; /* opened, ever */

/* All watches of one range. */
struct watch {
    struct rb_node node;
    unsigned long first, last; /* inclusive, as interval trees have it */
    unsigned long subtree_last;
    unsigned int count;
};

#define FIRST(watch) ((watch)->first)
#define LAST(watch) ((watch)->last)
INTERVAL_TREE_DEFINE(struct watch, node, unsigned long, subtree_last, FIRST, LAST,
                     static __maybe_unused, tree)

#define UNDER_WAY 64 /* changes at once that are known by their range; of more WATCH refuses */

struct notifier {
    struct mmu_notifier mn;
    struct mm_struct *mm;
    spinlock_t lock; /* of all that follows, to the line */
    struct rb_root_cached tree;
    unsigned int watches;
    u64 begun;  /* changes, ever */
    u64 busy;   /* the bits of `changes` that are in use */
    u64 beyond; /* changes under way that found no place */
    struct change {
        const struct mmu_notifier_range *of; /* tells them apart: it lives on its thread's stack */
        unsigned long first, last;
        u64 number;
    } changes[UNDER_WAY];
    /* ---- */
    wait_queue_head_t ended; /* WATCH waits here */
    bool agreed;
    struct regx_notify_page *page; /* mapped into the kernel */
    struct page *pages[PAGES];
};

/* ---- the tree: by first, then by last, so that an exact range is found at once ---- */

/* The watch of exactly that range; else NULL, and where it belongs. */
static struct watch *find(struct notifier *notifier, unsigned long first, unsigned long last,
                          struct rb_node **parent, struct rb_node ***link, bool *leftmost)
{
    *link = &notifier->tree.rb_root.rb_node;
    *parent = NULL;
    *leftmost = true;
    while (**link) {
        struct watch *watch = rb_entry(**link, struct watch, node);
        bool below = first != watch->first ? first < watch->first : last < watch->last;

        if (watch->first == first && watch->last == last)
            return watch;
        *parent = **link;
        *link = below ? &(*parent)->rb_left : &(*parent)->rb_right;
        *leftmost &= below;
    }
    return NULL;
}

/* Takes over `new` unless it answers that it is not needed. */
static bool insert(struct notifier *notifier, struct watch *new)
{
    struct rb_node *parent, **link;
    struct watch *watch;
    bool leftmost;

    notifier->watches++;
    watch = find(notifier, new->first, new->last, &parent, &link, &leftmost);
    if (watch) {
        watch->count++;
        return false;
    }
    /* What lies above it reaches as far as it does. */
    for (struct rb_node *above = parent; above; above = rb_parent(above)) {
        watch = rb_entry(above, struct watch, node);
        if (watch->subtree_last < new->last)
            watch->subtree_last = new->last;
    }
    rb_link_node(&new->node, parent, link);
    rb_insert_augmented_cached(&new->node, &notifier->tree, leftmost, &tree_augment);
    return true;
}

/* ---- what the kernel tells ---- */

/* Not mprotect, userfaultfd's write protection, NUMA balancing (VMA), fork, write-back (PAGE), nor dirty
 * bits: what replaces such a page later is told by itself. */
static bool takes_pages(const struct mmu_notifier_range *range)
{
    return range->event != MMU_NOTIFY_PROTECTION_VMA &&
           range->event != MMU_NOTIFY_PROTECTION_PAGE && range->event != MMU_NOTIFY_SOFT_DIRTY &&
           range->start < range->end;
}

/* The entry first, then the count. The barrier behind: who sees what the change makes of the page
 * tables sees the count, and the next entry is not written before this count is seen. */
static void tell(struct notifier *notifier, unsigned long start, unsigned long end)
{
    struct regx_notify_page *page = notifier->page;
    u64 told = page->told;

    WRITE_ONCE(page->ring[told % REGX_NOTIFY_RING].start, start);
    WRITE_ONCE(page->ring[told % REGX_NOTIFY_RING].end, end);
    smp_store_release(&page->told, told + 1);
    smp_mb();
}

static int change_begins(struct mmu_notifier *mn, const struct mmu_notifier_range *range)
{
    struct notifier *notifier = container_of(mn, struct notifier, mn);

    if (!takes_pages(range))
        return 0;
    spin_lock(&notifier->lock);
    notifier->begun++;
    if (~notifier->busy) {
        int place = __ffs64(~notifier->busy);

        notifier->busy |= BIT_ULL(place);
        notifier->changes[place] = (struct change){
            .of = range, .first = range->start, .last = range->end - 1, .number = notifier->begun};
    } else {
        notifier->beyond++;
    }
    if (tree_iter_first(&notifier->tree, range->start, range->end - 1))
        tell(notifier, range->start, range->end);
    spin_unlock(&notifier->lock);
    return 0;
}

static void change_ends(struct mmu_notifier *mn, const struct mmu_notifier_range *range)
{
    struct notifier *notifier = container_of(mn, struct notifier, mn);
    u64 left;

    if (!takes_pages(range))
        return;
    spin_lock(&notifier->lock);
    for (left = notifier->busy; left; left &= left - 1) {
        if (notifier->changes[__ffs64(left)].of == range) {
            notifier->busy &= ~BIT_ULL(__ffs64(left));
            break;
        }
    }
    if (!left && notifier->beyond)
        notifier->beyond--;
    spin_unlock(&notifier->lock);
    /* Who waits has entered the queue before it looked at the table under the lock. */
    if (wq_has_sleeper(&notifier->ended))
        wake_up_all(&notifier->ended);
}

static const struct mmu_notifier_ops notifier_ops = {
    .invalidate_range_start = change_begins,
    .invalidate_range_end = change_ends,
};

/* ---- what the process asks for ---- */

static bool under_way(struct notifier *notifier, const struct watch *of, u64 upto)
{
    bool found = false;
    u64 left;

    spin_lock(&notifier->lock);
    for (left = notifier->busy; left && !found; left &= left - 1) {
        const struct change *change = &notifier->changes[__ffs64(left)];

        found = change->number <= upto && change->first <= of->last && change->last >= of->first;
    }
    spin_unlock(&notifier->lock);
    return found;
}

static long unwatch(struct notifier *notifier, unsigned long first, unsigned long last)
{
    struct watch *watch, *ended = NULL;
    struct rb_node *parent, **link;
    bool leftmost;

    spin_lock(&notifier->lock);
    watch = find(notifier, first, last, &parent, &link, &leftmost);
    notifier->watches -= watch != NULL;
    if (watch && --watch->count == 0) {
        tree_remove(watch, &notifier->tree);
        ended = watch;
    }
    spin_unlock(&notifier->lock);
    if (ended)
        kmem_cache_free(watch_cache, ended);
    return watch ? 0 : -ENOENT;
}

static long watch(struct notifier *notifier, unsigned long first, unsigned long last)
{
    const struct watch of = {.first = first, .last = last, .subtree_last = last, .count = 1};
    struct watch *new = kmem_cache_alloc(watch_cache, GFP_KERNEL_ACCOUNT);
    bool used = false;
    long error = 0;
    u64 upto;

    if (!new)
        return -ENOMEM;
    *new = of;
    spin_lock(&notifier->lock);
    if (notifier->watches >= READ_ONCE(watches_max))
        error = -ENOSPC;
    else if (notifier->beyond)
        error = -EAGAIN; /* of what they change nothing is known, and they may never be fewer */
    else
        used = insert(notifier, new);
    upto = notifier->begun;
    spin_unlock(&notifier->lock);
    if (!used)
        kmem_cache_free(watch_cache, new);
    if (error)
        return error;
    if (wait_event_killable(notifier->ended, !under_way(notifier, &of, upto))) {
        unwatch(notifier, first, last);
        return -EINTR;
    }
    return 0;
}

static long agree(struct notifier *notifier, void __user *argument)
{
    struct regx_notify_agree theirs;
    const struct regx_notify_agree ours = {.version = REGX_NOTIFY_VERSION,
                                           .size = sizeof(struct regx_notify_page),
                                           .watches = READ_ONCE(watches_max),
                                           .file = notifier->page->file};

    if (copy_from_user(&theirs, argument, sizeof(theirs)) ||
        copy_to_user(argument, &ours, sizeof(ours)))
        return -EFAULT;
    if (theirs.version != ours.version || theirs.size != ours.size)
        return -EPROTO;
    WRITE_ONCE(notifier->agreed, true);
    return 0;
}

static long notify_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
    struct notifier *notifier = file->private_data;
    struct regx_notify_range range;

    if (command == REGX_NOTIFY_AGREE)
        return agree(notifier, (void __user *)argument);
    if (command != REGX_NOTIFY_WATCH && command != REGX_NOTIFY_UNWATCH)
        return -ENOTTY;
    if (current->mm != notifier->mm)
        return -EPERM;
    if (!READ_ONCE(notifier->agreed))
        return -EPROTO;
    if (copy_from_user(&range, (void __user *)argument, sizeof(range)))
        return -EFAULT;
    if (range.start >= range.end || ((range.start | range.end) & ~PAGE_MASK) != 0 ||
        range.end > notifier->mm->task_size)
        return -EINVAL;
    return command == REGX_NOTIFY_WATCH ? watch(notifier, range.start, range.end - 1)
                                        : unwatch(notifier, range.start, range.end - 1);
}

/* Called with the lock of the address space, so it takes none under which that may be waited for.
 * VM_MAYSHARE, since a descriptor that cannot be written clears VM_SHARED. */
static int notify_mmap(struct file *file, struct vm_area_struct *vma)
{
    struct notifier *notifier = file->private_data;

    if (!(vma->vm_flags & VM_MAYSHARE) || vma->vm_pgoff != 0 || vma_pages(vma) != PAGES)
        return -EINVAL;
    if (vma->vm_flags & (VM_WRITE | VM_EXEC))
        return -EPERM;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
    vm_flags_clear(vma, VM_MAYWRITE | VM_MAYEXEC);
#else
    vma->vm_flags &= ~(VM_MAYWRITE | VM_MAYEXEC);
#endif
    return vm_map_pages(vma, notifier->pages, PAGES);
}

/* ---- a file ---- */

static void free_notifier(struct notifier *notifier)
{
    for (struct rb_node *at = rb_first_postorder(&notifier->tree.rb_root), *next; at; at = next) {
        next = rb_next_postorder(at);
        kmem_cache_free(watch_cache, rb_entry(at, struct watch, node));
    }
    if (notifier->page)
        vunmap(notifier->page);
    for (unsigned int i = 0; i < PAGES && notifier->pages[i]; i++)
        put_page(notifier->pages[i]);
    if (notifier->mm)
        mmdrop(notifier->mm);
    kfree(notifier);
}

static bool make_page(struct notifier *notifier)
{
    for (unsigned int i = 0; i < PAGES; i++) {
        notifier->pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
        if (!notifier->pages[i])
            return false;
    }
    notifier->page = vmap(notifier->pages, PAGES, VM_MAP, PAGE_KERNEL);
    return notifier->page && (notifier->page->file = (u32)atomic_inc_return(&files));
}

static int notify_open(struct inode *inode, struct file *file)
{
    struct notifier *notifier;
    int error = -ENOMEM;

    if (!current->mm)
        return -EINVAL;
    notifier = kzalloc(sizeof(*notifier), GFP_KERNEL_ACCOUNT);
    if (!notifier)
        return -ENOMEM;
    spin_lock_init(&notifier->lock);
    init_waitqueue_head(&notifier->ended);
    notifier->tree = RB_ROOT_CACHED;
    notifier->mn.ops = &notifier_ops;
    notifier->mm = current->mm; /* also when nothing lives there any more */
    mmgrab(notifier->mm);
    if (make_page(notifier))
        error = mmu_notifier_register(&notifier->mn, notifier->mm);
    if (error)
        free_notifier(notifier);
    file->private_data = notifier;
    return error;
}

static int notify_release(struct inode *inode, struct file *file)
{
    struct notifier *notifier = file->private_data;

    mmu_notifier_unregister(&notifier->mn, notifier->mm); /* waits for callbacks */
    free_notifier(notifier);
    return 0;
}

static const struct file_operations notify_fops = {
    .owner = THIS_MODULE, /* not unloaded while a file is open or mapped */
    .open = notify_open,
    .release = notify_release,
    .unlocked_ioctl = notify_ioctl,
    .compat_ioctl = compat_ptr_ioctl,
    .mmap = notify_mmap,
};

static struct miscdevice notify_device = {
    .minor = MISC_DYNAMIC_MINOR,
    .name = "regx_notify",
    .fops = &notify_fops,
    .mode = 0666, /* regx_notify.h says why that is safe */
};

static int __init notify_init(void)
{
    int error;

    BUILD_BUG_ON(sizeof(struct regx_notify_page) % PAGE_SIZE != 0);
    watch_cache = kmem_cache_create("regx_notify", sizeof(struct watch), 0, SLAB_NO_MERGE, NULL);
    if (!watch_cache)
        return -ENOMEM;
    error = misc_register(&notify_device);
    if (error)
        kmem_cache_destroy(watch_cache);
    return error;
}

static void __exit notify_exit(void)
{
    misc_deregister(&notify_device);
    kmem_cache_destroy(watch_cache);
}

module_init(notify_init);
module_exit(notify_exit);
MODULE_DESCRIPTION("Tells a process of changes of its own memory (regx)");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("1");
