/* Preloaded into a server: while the file /tmp/stall is there, what would force data to the disk waits, as it does on a disk
 * that has stalled. It is linked with no libc, and needs only
 * functions that each of them has, so one build runs in the images of all releases. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_out(void)
{
	const struct timespec pause = {0, 5 * 1000 * 1000};
	int before = errno;

	while (syscall(SYS_faccessat, AT_FDCWD, "/tmp/stall", 0) == 0)
		nanosleep(&pause, 0);
	errno = before;
}

int fsync(int fd)
{
	wait_out();
	return syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	wait_out();
	return syscall(SYS_fdatasync, fd);
}
