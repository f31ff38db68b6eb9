package probes

import (
	"strings"

	"github.com/rpcprof/toolkit/probes/bpf"
	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// System calls of amd64 (arch/x86/entry/syscalls/syscall_64.tbl) that say by
// themselves what a thread blocked in them waits for, and names for the others
// that are common.
var blockedIn = map[int32]struct {
	name  string
	cause profile.Cause
}{
	0: {"read", ""}, 1: {"write", ""}, 7: {"poll", profile.BlockOther}, 17: {"pread64", ""}, 18: {"pwrite64", ""},
	19: {"readv", ""}, 20: {"writev", ""}, 23: {"select", profile.BlockOther}, 35: {"nanosleep", profile.BlockSleep},
	42: {"connect", profile.BlockNet}, 43: {"accept", profile.BlockNet}, 44: {"sendto", profile.BlockNet},
	45: {"recvfrom", profile.BlockNet}, 46: {"sendmsg", profile.BlockNet}, 47: {"recvmsg", profile.BlockNet},
	61: {"wait4", profile.BlockOther}, 72: {"fcntl", profile.BlockLock}, 73: {"flock", profile.BlockLock},
	74: {"fsync", ""}, 75: {"fdatasync", ""}, 202: {"futex", profile.BlockLock}, 230: {"clock_nanosleep", profile.BlockSleep},
	232: {"epoll_wait", profile.BlockOther}, 257: {"openat", ""}, 277: {"sync_file_range", ""}, 281: {"epoll_pwait", profile.BlockOther},
	288: {"accept4", profile.BlockNet}, 306: {"syncfs", ""},
}

// Kernel functions that say what a blocked thread waits for; the innermost that
// is known decides. Disk needs one of them or in_iowait: D state alone is also a lock.
var kernelWaits = []struct {
	part  string
	cause profile.Cause
}{
	{"io_schedule", profile.BlockDisk}, {"folio_wait", profile.BlockDisk}, {"wait_on_page", profile.BlockDisk},
	{"jbd2_log_wait", profile.BlockDisk}, {"jbd2_", profile.BlockDisk}, {"submit_bio_wait", profile.BlockDisk}, {"blk_", profile.BlockDisk},
	{"xfs_log", profile.BlockDisk}, {"btrfs_wait", profile.BlockDisk}, {"ext4_sync_file", profile.BlockDisk},
	{"rwsem_down", profile.BlockLock}, {"__mutex_lock", profile.BlockLock}, {"futex_wait", profile.BlockLock},
	{"hrtimer_nanosleep", profile.BlockSleep}, {"do_nanosleep", profile.BlockSleep},
	{"sk_wait_data", profile.BlockNet}, {"sk_stream_wait", profile.BlockNet}, {"inet_csk_accept", profile.BlockNet}, {"unix_stream_", profile.BlockNet},
	{"exc_page_fault", profile.BlockFault}, {"handle_mm_fault", profile.BlockFault},
}

// waitKey is what blocked intervals without a stack are told apart by.
type waitKey struct {
	syscall int32
	state   uint32
}

// classify says what a blocked thread waits for, from its kernel stack; "" when
// that says nothing.
func classify(e *bpf.ProgramsEvent, kernel profile.Stack) profile.Cause {
	if e.Flags&flagIOWait != 0 {
		return profile.BlockDisk
	}
	for _, f := range kernel {
		for _, w := range kernelWaits {
			if strings.HasPrefix(f.Func, w.part) {
				return w.cause
			}
		}
	}
	return ""
}

// bySyscall is what is left to go by where there is no stack. It gives the
// system call's name where that is all that is known.
func bySyscall(e *bpf.ProgramsEvent) (profile.Cause, string) {
	if e.Syscall < 0 {
		return profile.BlockOther, ""
	}
	s, ok := blockedIn[e.Syscall]
	switch {
	case !ok:
		return profile.BlockOther, ""
	case s.cause == "":
		return profile.BlockOther, s.name
	case s.cause == profile.BlockOther:
		return s.cause, s.name
	}
	return s.cause, ""
}
