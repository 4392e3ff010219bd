/*
 * A clock that can be set. Preloaded into a program, it shows the machine's time and as many nanoseconds more as a file says that
 * CHAOS_CLOCK names: eight bytes, in the machine's order. It takes no locks. So a signal handler may read it, and a process that is killed
 * as it reads it keeps no other one waiting. Monotonic clocks stay as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
	const char *name = getenv("CHAOS_CLOCK");
	int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;

	real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
	if (file >= 0) {
		void *at = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);

		close(file);
		if (at != MAP_FAILED)
			ahead = at;
	}
}

int clock_gettime(clockid_t id, struct timespec *now)
{
	int failed = real ? real(id, now) : (int) syscall(SYS_clock_gettime, id, now);

	if (!failed && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t by = *ahead, nanoseconds = now->tv_nsec + by % 1000000000;

		now->tv_sec += by / 1000000000 + (nanoseconds >= 1000000000) - (nanoseconds < 0);
		now->tv_nsec = nanoseconds + (nanoseconds < 0) * 1000000000 - (nanoseconds >= 1000000000) * 1000000000;
	}
	return failed;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec now;
	int failed = clock_gettime(CLOCK_REALTIME, &now);

	(void) zone;
	if (!failed) {
		tv->tv_sec = now.tv_sec;
		tv->tv_usec = now.tv_nsec / 1000;
	}
	return failed;
}

time_t time(time_t *out)
{
	struct timespec now;

	if (clock_gettime(CLOCK_REALTIME, &now))
		return -1;
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}
