/* Preloaded into a server: while the file /tmp/skew is there, the server's clock is off by the seconds that it holds, a decimal
 * number that may be negative. It steps when the file is written. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long skew(void)
{
	char text[24];
	long seconds = 0, n, i = 0;
	int negative, before = errno;
	int file = (int)syscall(SYS_openat, AT_FDCWD, "/tmp/skew", O_RDONLY | O_CLOEXEC);

	if (file < 0) {
		errno = before;
		return 0;
	}
	n = syscall(SYS_read, file, text, sizeof text);
	syscall(SYS_close, file);
	errno = before;
	negative = n > 0 && text[0] == '-';
	for (i = negative; i < n && text[i] >= '0' && text[i] <= '9'; i++)
		seconds = 10 * seconds + (text[i] - '0');
	return negative ? -seconds : seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int failed = (int)syscall(SYS_clock_gettime, clock, now);

	if (!failed && clock == CLOCK_REALTIME)
		now->tv_sec += skew();
	return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec exact;
	int failed = (int)syscall(SYS_clock_gettime, CLOCK_REALTIME, &exact);

	(void)zone;
	if (!failed && now) {
		now->tv_sec = exact.tv_sec + skew();
		now->tv_usec = exact.tv_nsec / 1000;
	}
	return failed;
}

time_t time(time_t *at)
{
	struct timespec exact;
	time_t now = -1;

	if (!syscall(SYS_clock_gettime, CLOCK_REALTIME, &exact))
		now = exact.tv_sec + skew();
	if (at)
		*at = now;
	return now;
}
