/* Counts the bytes that a program copies by memcpy and memmove, in the file that OUTRIGGER_COPIES
 * names. Loaded into the program by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef void *copy(void *, const void *, size_t);

static uint64_t elsewhere;
static uint64_t *copied = &elsewhere;
static copy *next_memcpy;
static copy *next_memmove;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("OUTRIGGER_COPIES");
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  next_memcpy = (copy *)dlsym(RTLD_NEXT, "memcpy");
  next_memmove = (copy *)dlsym(RTLD_NEXT, "memmove");
  if (file < 0) return;
  void *shared = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared != MAP_FAILED) copied = shared;
}

/* Before the constructor has run. */
static void *slowly(void *to, const void *from, size_t size) {
  volatile char *target = to;
  const volatile char *source = from;
  if (target <= source)
    for (size_t at = 0; at < size; at++) target[at] = source[at];
  else
    while (size-- > 0) target[size] = source[size];
  return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t size) {
  __atomic_fetch_add(copied, size, __ATOMIC_RELAXED);
  return next_memcpy ? next_memcpy(to, from, size) : slowly(to, from, size);
}

void *memmove(void *to, const void *from, size_t size) {
  __atomic_fetch_add(copied, size, __ATOMIC_RELAXED);
  return next_memmove ? next_memmove(to, from, size) : slowly(to, from, size);
}
