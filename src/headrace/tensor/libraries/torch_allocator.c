/* The allocator that PyTorch calls: see torch_allocator.py. */
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

static int (*allocate_from_pool)(unsigned long long *, size_t, void *, void *);
static int (*synchronize)(void);
static int (*release)(unsigned long long);
static void *pool;
static long long limit;
static _Atomic long long used;

void headrace_bind(void *allocate_function, void *synchronize_function, void *free_function, void *handle,
                   long long most)
{
    allocate_from_pool = (int (*)(unsigned long long *, size_t, void *, void *))allocate_function;
    synchronize = (int (*)(void))synchronize_function;
    release = (int (*)(unsigned long long))free_function;
    pool = handle;
    limit = most;
}

long long headrace_used(void) { return used; }

void *headrace_allocate(ssize_t size, int device, void *stream)
{
    unsigned long long address = 0;
    if (atomic_fetch_add(&used, size) + size > limit || allocate_from_pool(&address, size, pool, stream) != 0) {
        atomic_fetch_sub(&used, size);
        return NULL;
    }
    return (void *)address;
}

void headrace_free(void *address, ssize_t size, int device, void *stream)
{
    synchronize();
    release((unsigned long long)address);
    atomic_fetch_sub(&used, size);
}
