/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* The few kernel types the programs look into. Offsets are relocated at load
 * time by BTF (CO-RE), so only the fields that are used stand here. */
#ifndef RPCPROF_KERNEL_H
#define RPCPROF_KERNEL_H

#include <linux/types.h>
#include <linux/bpf.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef _Bool bool;

struct thread_struct {
	unsigned long fsbase;
};

/* The size counts: an index into an array of them is not relocated. */
struct upid {
	int nr;
	void *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct sched_entity {
	__u64 sum_exec_runtime;
};

struct sched_info {
	unsigned long long run_delay;
};

struct task_struct {
	unsigned int __state;
	struct sched_entity se;
	struct sched_info sched_info;
	unsigned int in_iowait : 1;
	int pid;
	int tgid;
	struct pid *thread_pid;
	__u64 utime, stime;
	unsigned long nvcsw, nivcsw;
	__u64 start_boottime;
	char comm[16];
	struct thread_struct thread;
};

struct pt_regs {
	unsigned long orig_ax;
	unsigned long cs;
};

typedef struct {
	__s64 counter;
} atomic64_t;

struct sock_common {
	atomic64_t skc_cookie;
};

struct sock {
	struct sock_common __sk_common;
};

struct tcp_sock {
	__u64 bytes_received;
};

struct irqaction;

#pragma clang attribute pop

#endif
