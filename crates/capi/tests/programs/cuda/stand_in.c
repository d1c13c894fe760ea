/* A stand-in for libcuda: the functions that a device in user space calls. The memory of its GPU is mapped without any right, so
 * that the process dies if the processor touches it. Copies are made when their stream is waited for and not before, so that
 * one who does not wait finds nothing there. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "stand_in.h"

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, LAUNCH_FAILED = 719 };

enum attribute { MEMORY_TYPE = 2, IS_MANAGED = 8, DEVICE_ORDINAL = 9, RANGE_START = 11, RANGE_SIZE = 12 };

#define MAX_ALLOCATIONS 64
#define MAX_COPIES 4096

struct allocation {
	unsigned char *address, *window;
	size_t length, mapped;
	int is_managed;
};

struct copy {
	unsigned char *to;
	const unsigned char *from;
	size_t length;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation allocations[MAX_ALLOCATIONS];
static struct { unsigned char *start; size_t length; } pinned[MAX_ALLOCATIONS];
static struct copy pending[MAX_COPIES];
static int pending_count;
static struct stand_in_counts counts;
static const char *failing;
static int the_context, the_stream;
static __thread int depth;

static int fails(const char *function)
{
	return failing != NULL && strcmp(failing, function) == 0;
}

/* The allocation with a whole range of bytes, or NULL. */
static struct allocation *holder_of(uint64_t address, size_t length)
{
	for (int i = 0; i < MAX_ALLOCATIONS; i++) {
		struct allocation *it = &allocations[i];
		uint64_t start = (uintptr_t)it->address;
		if (it->address && address >= start && address - start < it->length &&
		    length <= it->length - (address - start))
			return it;
	}
	return NULL;
}

static int is_pinned(const void *address, size_t length)
{
	for (int i = 0; i < MAX_ALLOCATIONS; i++) {
		size_t offset = (uintptr_t)address - (uintptr_t)pinned[i].start;
		if (pinned[i].start && offset <= pinned[i].length && length <= pinned[i].length - offset)
			return 1;
	}
	return 0;
}

static uint64_t allocate(size_t length, int is_managed)
{
	size_t mapped = (length + 4095) / 4096 * 4096;
	int file = memfd_create("gpu", 0);
	if (file < 0 || ftruncate(file, mapped) != 0)
		abort();
	int rights = is_managed ? PROT_READ | PROT_WRITE : PROT_NONE;
	void *address = mmap(NULL, mapped, rights, MAP_SHARED, file, 0);
	void *window = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (address == MAP_FAILED || window == MAP_FAILED)
		abort();
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_ALLOCATIONS; i++) {
		if (allocations[i].address)
			continue;
		allocations[i] = (struct allocation){ address, window, length, mapped, is_managed };
		pthread_mutex_unlock(&lock);
		return (uintptr_t)address;
	}
	abort();
}

static uint64_t allocate_device(size_t length)
{
	return allocate(length, 0);
}

static uint64_t allocate_managed(size_t length)
{
	return allocate(length, 1);
}

static void release(uint64_t address)
{
	pthread_mutex_lock(&lock);
	struct allocation *it = holder_of(address, 1);
	if (it == NULL)
		abort();
	munmap(it->address, it->mapped);
	munmap(it->window, it->mapped);
	it->address = NULL;
	pthread_mutex_unlock(&lock);
}

static unsigned char *window(uint64_t address)
{
	pthread_mutex_lock(&lock);
	struct allocation *it = holder_of(address, 1);
	if (it == NULL)
		abort();
	pthread_mutex_unlock(&lock);
	return it->window + (address - (uintptr_t)it->address);
}

static void fail(const char *function)
{
	pthread_mutex_lock(&lock);
	failing = function;
	pthread_mutex_unlock(&lock);
}

static struct stand_in_counts now(void)
{
	pthread_mutex_lock(&lock);
	struct stand_in_counts known = counts;
	pthread_mutex_unlock(&lock);
	return known;
}

EXPORT const struct stand_in stand_in = { allocate_device, allocate_managed, release, window, fail, now };

EXPORT int cuPointerGetAttribute(void *value, enum attribute attribute, uint64_t address)
{
	pthread_mutex_lock(&lock);
	struct allocation *it = holder_of(address, 1);
	int error = it == NULL ? INVALID_VALUE : SUCCESS;
	if (it && attribute == MEMORY_TYPE)
		*(unsigned *)value = 2;
	else if (it && attribute == IS_MANAGED)
		*(unsigned *)value = it->is_managed;
	else if (it && attribute == DEVICE_ORDINAL)
		*(int *)value = 0;
	else if (it && attribute == RANGE_START)
		*(uint64_t *)value = (uintptr_t)it->address;
	else if (it && attribute == RANGE_SIZE)
		*(size_t *)value = it->length;
	else
		error = INVALID_VALUE;
	pthread_mutex_unlock(&lock);
	return error;
}

EXPORT int cuCtxPushCurrent_v2(void *context)
{
	if (context != &the_context || fails("cuCtxPushCurrent"))
		return INVALID_CONTEXT;
	depth++;
	return SUCCESS;
}

EXPORT int cuCtxPopCurrent_v2(void **context)
{
	if (depth == 0)
		return INVALID_CONTEXT;
	depth--;
	*context = &the_context;
	return SUCCESS;
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
	static __thread int current;
	int former = current;
	current = *mode;
	*mode = former;
	return SUCCESS;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal == 0 ? SUCCESS : INVALID_VALUE;
}

EXPORT int cuCtxCreate_v2(void **context, unsigned flags, int device)
{
	if (flags || device || fails("cuCtxCreate"))
		return INVALID_VALUE;
	*context = &the_context;
	depth++;
	return SUCCESS;
}

EXPORT int cuStreamCreate(void **stream, unsigned flags)
{
	*stream = &the_stream;
	/* A stream that waits for the default stream may wait for a kernel that waits for the network. */
	return depth > 0 && flags == 1 ? SUCCESS : INVALID_CONTEXT;
}

EXPORT int cuMemHostRegister_v2(void *memory, size_t length, unsigned flags)
{
	(void)flags;
	if (depth == 0 || fails("cuMemHostRegister"))
		return OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_ALLOCATIONS; i++) {
		if (pinned[i].start)
			continue;
		pinned[i].start = memory;
		pinned[i].length = length;
		break;
	}
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

/* Notes a copy; the lock is held. */
static int note(unsigned char *to, const unsigned char *from, size_t length)
{
	if (pending_count == MAX_COPIES)
		abort();
	pending[pending_count++] = (struct copy){ to, from, length };
	return SUCCESS;
}

static unsigned char *in_window(struct allocation *it, uint64_t address)
{
	return it->window + (address - (uintptr_t)it->address);
}

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t length, void *stream)
{
	int error = INVALID_VALUE;
	pthread_mutex_lock(&lock);
	struct allocation *it = holder_of(to, length);
	if (depth > 0 && it && stream == &the_stream && is_pinned(from, length) && !fails("cuMemcpyHtoDAsync"))
		error = note(in_window(it, to), from, length);
	counts.to_device++;
	pthread_mutex_unlock(&lock);
	return error;
}

EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t length, void *stream)
{
	int error = INVALID_VALUE;
	pthread_mutex_lock(&lock);
	struct allocation *it = holder_of(from, length);
	if (depth > 0 && it && stream == &the_stream && is_pinned(to, length) && !fails("cuMemcpyDtoHAsync"))
		error = note(to, in_window(it, from), length);
	counts.to_host++;
	pthread_mutex_unlock(&lock);
	return error;
}

EXPORT int cuStreamSynchronize(void *stream)
{
	int error = depth > 0 && stream == &the_stream ? SUCCESS : INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (fails("cuStreamSynchronize")) {
		error = LAUNCH_FAILED;
		pending_count = 0;
	}
	for (int i = 0; i < pending_count; i++)
		memcpy(pending[i].to, pending[i].from, pending[i].length);
	if (pending_count > counts.deepest_wait)
		counts.deepest_wait = pending_count;
	pending_count = 0;
	counts.waits++;
	pthread_mutex_unlock(&lock);
	return error;
}

EXPORT int cuGetErrorName(int error, const char **name)
{
	*name = error == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" :
		error == OUT_OF_MEMORY	 ? "CUDA_ERROR_OUT_OF_MEMORY" :
		error == LAUNCH_FAILED	 ? "CUDA_ERROR_LAUNCH_FAILED" :
					   "CUDA_ERROR_INVALID_VALUE";
	return SUCCESS;
}
