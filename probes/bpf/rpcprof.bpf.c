//go:build ignore

// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/* What the kernel knows about the calls of one process: when its threads were
 * off the CPU and why, which interrupts ran on top of them, and when data came
 * in on its sockets. Each event is tagged here, as it happens, with the call of
 * the goroutine that the thread was running, or of the thread itself. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set by the loader. Offsets come from a segment's header, where the target's
 * library has found and verified them; they are the process's, while each
 * profiler in it has an index and slots of its own. With as many profilers as the
 * loader says, the verifier takes the rest of each loop out. */
#define PROFILERS 4
const volatile __u32 target = 0;
const volatile __u32 profilers = 0;
const volatile __u64 index_addr[PROFILERS] = {}, slots_addr[PROFILERS] = {};
const volatile __u32 index_bits[PROFILERS] = {}, slot_cap[PROFILERS] = {};
const volatile __u32 by_thread[PROFILERS] = {}; /* its calls run on threads, by id */
const volatile __u32 goroutines = 0, threads_too = 0; /* what any of them runs calls on */
const volatile __s32 tls_off = 0;
const volatile __u32 g_m = 0, g_goid = 0, m_curg = 0;
const volatile __u32 stack_budget = 100; /* pairs of stacks per CPU in 100 ms */

enum kind { OFF_CPU = 1, HARD_IRQ, SOFT_IRQ, DATA_READY, THREAD_EXIT };
enum flag { PREEMPTED = 1, IOWAIT = 2 };

struct event {
	__u8 kind, stage, slot_kind, flags;
	__u32 tid;
	__u64 start; /* off the CPU; of the interrupt; of the data */
	__u64 wake;  /* made runnable, 0 when it was all along; for interrupts: time of others nested in it */
	__u64 end;
	__u64 call; /* call id; for data: the socket's cookie */
	__u64 received; /* for data: bytes received on the socket so far */
	__u32 slot, conn;
	__u32 state;
	__s32 syscall; /* -1: not in one */
	__s32 user_stack, kernel_stack; /* < 0: none */
	__u32 cpu;
	__u16 vector;
	__u8 profiler; /* whose call it is, by place */
	__u32 who_tgid, who_tid; /* who ran instead */
	char who[16];
};
const struct event *unused_event __attribute__((unused));

struct tag {
	__u64 call;
	__u32 slot, conn;
	__u8 stage, kind, found, profiler;
};

/* What is remembered of a thread that is off the CPU: with the thread, so that
 * it neither depends on the CPU nor outlives the thread. */
struct pending {
	__u64 start, wake;
	struct tag tag;
	__u32 state;
	__s32 syscall, user_stack, kernel_stack;
	__u8 flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pending);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 64 * sizeof(__u64));
} stacks SEC(".maps");

/* The target's sockets, by cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u32);
} sockets SEC(".maps");

enum counter { LOST_EVENTS, LOST_STACKS, OVER_BUDGET, UNTAGGED, COUNTERS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* Interrupt totals of all tasks: vectors 0..255 are interrupt lines, then those
 * of enum vector, then softirqs. */
enum vector { LOCAL_TIMER = 256, RESCHEDULE, CALL_FUNCTION, CALL_FUNCTION_SINGLE, IRQ_WORK, SOFTIRQ = 288, VECTORS = 304 };

struct total {
	__u64 count, ns;
};
const struct total *unused_total __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VECTORS);
	__type(key, __u32);
	__type(value, struct total);
} totals SEC(".maps");

/* The last tasks that ran on a CPU, so that a thread that waited for it can be
 * told who had it for most of the time. */
#define RUNS 8

struct run {
	__u64 start;
	__u32 tgid, tid;
	char comm[16];
};

#define DEPTH 4

struct frame {
	__u64 start, nested;
	__u32 vector;
	__u32 own; /* work that the task's own system call raised */
};

struct cpu {
	__u32 depth, hard;
	__u32 own_raised; /* softirqs raised from task context, by bit */
	__u32 stacks;
	__u64 stacks_since;
	struct frame frames[DEPTH];
	struct run runs[RUNS];
	__u64 last_run; /* how many runs there were */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &which);
	if (n)
		(*n)++;
}

static __always_inline struct cpu *this_cpu(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&cpus, &zero);
}

struct entry {
	__u64 g;
	__u32 slot, pad;
};

/* The first half of a slot (rpcprof/segment/layout.go). */
struct slot {
	__u64 call, g, goid; /* where calls run on threads both are the thread's id */
	__u32 method;
	__u8 stage, kind;
	__u16 flags;
	__u64 parent;
	__u32 conn, worker, queue, tid;
};

static __always_inline void follow(__u32 i, __u64 g, __u64 goid, struct tag *t)
{
	struct entry bucket[4];
	struct slot s;
	__u32 slot = ~0U;

	__u64 b = (g * 0x9E3779B97F4A7C15ULL) >> (64 - index_bits[i]);
	if (bpf_probe_read_user(bucket, sizeof(bucket), (void *)(index_addr[i] + b * sizeof(bucket))))
		return;
	if (bucket[0].g == g)
		slot = bucket[0].slot;
	else if (bucket[1].g == g)
		slot = bucket[1].slot;
	else if (bucket[2].g == g)
		slot = bucket[2].slot;
	else if (bucket[3].g == g)
		slot = bucket[3].slot;
	if (slot >= slot_cap[i])
		return;
	if (bpf_probe_read_user(&s, sizeof(s), (void *)(slots_addr[i] + (__u64)slot * 128)))
		return;
	/* A goroutine's address is used again after it has died. */
	if (s.g != g || s.goid != goid || s.kind == 0)
		return;
	t->call = s.call;
	t->slot = slot;
	t->conn = s.conn;
	t->stage = s.stage;
	t->kind = s.kind;
	t->found = 1;
	t->profiler = i;
}

/* Finds the goroutine that the current thread runs, through the thread's fs base:
 * goroutines migrate, so thread ids would not do. */
static __always_inline bool goroutine(struct task_struct *task, __u64 *out, __u64 *id)
{
	__u64 g = 0, goid = 0, m = 0;

	__u64 fs = task->thread.fsbase;
	if (bpf_probe_read_user(&g, sizeof(g), (void *)(fs + tls_off)) || !g)
		return 0;
	if (bpf_probe_read_user(&goid, sizeof(goid), (void *)(g + g_goid)))
		return 0;
	if (!goid) {
		/* The scheduler's stack or a signal's, which have no id: the goroutine it
		 * works for is m.curg. */
		if (bpf_probe_read_user(&m, sizeof(m), (void *)(g + g_m)) || !m)
			return 0;
		if (bpf_probe_read_user(&g, sizeof(g), (void *)(m + m_curg)) || !g)
			return 0;
		if (bpf_probe_read_user(&goid, sizeof(goid), (void *)(g + g_goid)) || !goid)
			return 0;
	}
	*out = g;
	*id = goid;
	return 1;
}

/* The thread's id as the process itself sees it, in its own namespace. */
static __always_inline __u64 thread_id(struct task_struct *task)
{
	struct pid *p = task->thread_pid;
	__u32 level = BPF_CORE_READ(p, level);
	int nr = 0;

	bpf_probe_read_kernel(&nr, sizeof(nr), &p->numbers[level].nr);
	return nr;
}

/* Finds the call that the current thread serves: the first profiler whose index
 * leads to a slot that holds it. */
static __always_inline void find(struct task_struct *task, struct tag *t)
{
	__u64 g = 0, goid = 0, tid = 0;

	__builtin_memset(t, 0, sizeof(*t));
	if (goroutines && !goroutine(task, &g, &goid))
		g = 0;
	if (threads_too)
		tid = thread_id(task);
	for (__u32 i = 0; i < PROFILERS; i++) {
		if (i >= profilers)
			break;
		__u64 k = by_thread[i] ? tid : g;
		if (!k)
			continue;
		follow(i, k, by_thread[i] ? tid : goid, t);
		if (t->found)
			break;
	}
}

static __always_inline struct event *reserve(void)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(LOST_EVENTS);
		return 0;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->cpu = bpf_get_smp_processor_id();
	return e;
}

static __always_inline void set_tag(struct event *e, const struct tag *t)
{
	e->call = t->call;
	e->slot = t->slot;
	e->conn = t->conn;
	e->stage = t->stage;
	e->slot_kind = t->kind;
	e->profiler = t->profiler;
}

static __always_inline void take_stacks(void *ctx, struct pending *p, __u64 now)
{
	struct cpu *c = this_cpu();
	if (!c)
		return;
	if (now - c->stacks_since > 100000000) {
		c->stacks_since = now;
		c->stacks = 0;
	}
	if (c->stacks >= stack_budget) {
		count(OVER_BUDGET);
		return;
	}
	c->stacks++;
	p->kernel_stack = bpf_get_stackid(ctx, &stacks, 0);
	p->user_stack = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	if (p->kernel_stack < 0 || p->user_stack < 0)
		count(LOST_STACKS);
}

/* Waits shorter than this that hit no call are not worth an event. */
#define SHORT_WAIT 5000

static __always_inline struct run *run_at(struct cpu *c, __u64 i)
{
	__u32 k = i;
	asm volatile("%0 &= 7" : "+r"(k));
	return &c->runs[k];
}

/* Names the task that had this CPU longest since a time. */
static __always_inline void name_runner(struct event *e, struct cpu *c, __u64 since, __u64 now)
{
	__u64 end = now, most = 0;
	struct run *best = 0;

	for (int i = 0; i < RUNS; i++) {
		struct run *r = run_at(c, c->last_run - i);
		__u64 from = r->start > since ? r->start : since;
		if (end > from && r->tid && r->tid != e->tid && end - from > most) {
			most = end - from;
			best = r;
		}
		end = r->start;
		if (end <= since)
			break;
	}
	if (!best)
		return;
	e->who_tgid = best->tgid;
	e->who_tid = best->tid;
	__builtin_memcpy(e->who, best->comm, sizeof(e->who));
}

static __always_inline void switched_out(void *ctx, bool preempt, struct task_struct *prev, __u64 now)
{
	struct tag t;
	find(prev, &t);
	struct pending *p = bpf_task_storage_get(&threads, prev, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!p) {
		count(LOST_EVENTS);
		return;
	}
	__u32 state = prev->__state;
	p->tag = t;
	p->wake = 0;
	p->flags = 0;
	p->state = state;
	p->syscall = -1;
	p->user_stack = p->kernel_stack = -1;
	if (preempt || state == 0) {
		p->flags |= PREEMPTED;
	} else if (t.found) {
		if (BPF_CORE_READ_BITFIELD(prev, in_iowait))
			p->flags |= IOWAIT;
		struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(prev);
		p->syscall = (int)BPF_CORE_READ(r, orig_ax);
		take_stacks(ctx, p, now);
	}
	if (!t.found)
		count(UNTAGGED);
	p->start = now;
}

static __always_inline void switched_in(struct cpu *c, struct task_struct *next, __u64 now)
{
	struct pending *p = bpf_task_storage_get(&threads, next, 0, 0);
	if (!p || !p->start)
		return;
	__u64 start = p->start, runnable = p->flags & PREEMPTED ? start : p->wake;
	p->start = 0;
	/* A thread that runs no call may still be what calls wait for: the one that
	 * would have found the goroutine runnable. Its wait for a CPU counts then. Where
	 * calls run on threads every wait does: that it was off the CPU is what tells
	 * that a call did not run, though its slot could not be read. */
	if (!p->tag.found && !threads_too && (!runnable || now - runnable < SHORT_WAIT))
		return;
	struct event *e = reserve();
	if (!e)
		return;
	e->kind = OFF_CPU;
	e->tid = next->pid;
	e->start = start;
	e->wake = p->wake;
	e->end = now;
	set_tag(e, &p->tag);
	e->flags = p->flags;
	e->state = p->state;
	e->syscall = p->syscall;
	e->user_stack = p->user_stack;
	e->kernel_stack = p->kernel_stack;
	if (runnable)
		name_runner(e, c, runnable, now);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 now = bpf_ktime_get_ns();
	struct cpu *c = this_cpu();

	if (!c)
		return 0;
	if (prev->tgid == target)
		switched_out(ctx, preempt, prev, now);
	if (next->tgid == target)
		switched_in(c, next, now);
	struct run *r = run_at(c, ++c->last_run);
	r->start = now;
	r->tgid = next->tgid;
	r->tid = next->pid;
	BPF_CORE_READ_STR_INTO(&r->comm, next, comm);
	return 0;
}

static __always_inline void woken(struct task_struct *p)
{
	if (p->tgid != target)
		return;
	struct pending *s = bpf_task_storage_get(&threads, p, 0, 0);
	if (s && s->start && !s->wake)
		s->wake = bpf_ktime_get_ns();
}

/* sched_waking runs on the waker's CPU and is earlier than sched_wakeup, which
 * runs where the thread will; whichever comes first counts. */
SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	woken(p);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	woken(p);
	return 0;
}

/* A new thread has run nothing, so no call waits for it yet; but storage made
 * for a task of this name before must not speak for it. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *p)
{
	if (p->tgid != target)
		return 0;
	struct pending *s = bpf_task_storage_get(&threads, p, 0, 0);
	if (s)
		s->start = 0;
	return 0;
}

/* What a thread that ends has used in all: one that came and went between two
 * looks at /proc is seen nowhere else. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *p)
{
	if (p->tgid != target)
		return 0;
	struct event *e = reserve();
	if (!e)
		return 0;
	e->kind = THREAD_EXIT;
	e->tid = p->pid;
	e->start = p->start_boottime;
	e->wake = p->utime;
	e->end = p->stime;
	e->call = p->se.sum_exec_runtime;
	if (bpf_core_field_exists(p->sched_info.run_delay))
		e->received = p->sched_info.run_delay;
	e->slot = p->nvcsw;
	e->conn = p->nivcsw;
	e->state = thread_id(p);
	BPF_CORE_READ_STR_INTO(&e->who, p, comm);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The mask is for the verifier, which does not follow the comparisons; hidden
 * from the compiler, which does and would leave it out. */
static __always_inline struct frame *frame_at(struct cpu *c, __u32 i)
{
	asm volatile("%0 &= 3" : "+r"(i));
	return &c->frames[i];
}

/* Interrupts nest: a frame a level, and the time of the inner ones is taken out
 * of the outer one's. */
static __always_inline void enter(__u32 vector, int hard, __u32 own)
{
	struct cpu *c = this_cpu();
	if (!c)
		return;
	__u32 d = c->depth;
	if (d < DEPTH) {
		struct frame *f = frame_at(c, d);
		f->start = bpf_ktime_get_ns();
		f->nested = 0;
		f->vector = vector;
		f->own = own;
	}
	c->depth = d + 1;
	c->hard += hard;
}

static __always_inline void leave(__u32 vector, int hard)
{
	struct cpu *c = this_cpu();
	if (!c || c->depth == 0)
		return;
	__u32 d = c->depth - 1;
	struct frame *at = frame_at(c, d);
	struct frame f = *at;
	/* An exit whose entry came before attaching is not this frame's. */
	if (d < DEPTH && f.vector != vector)
		return;
	c->depth = d;
	if (hard && c->hard)
		c->hard--;
	if (d >= DEPTH)
		return;
	__u64 now = bpf_ktime_get_ns();
	__u64 whole = now - f.start;
	if (d > 0)
		frame_at(c, d - 1)->nested += whole;
	__u64 net = whole > f.nested ? whole - f.nested : 0;
	struct total *sum = bpf_map_lookup_elem(&totals, &vector);
	if (sum) {
		sum->count++;
		sum->ns += net;
	}
	struct task_struct *task = bpf_get_current_task_btf();
	if (f.own || task->tgid != target)
		return;
	struct tag t;
	find(task, &t);
	if (!t.found)
		return;
	struct event *e = reserve();
	if (!e)
		return;
	e->kind = vector >= SOFTIRQ ? SOFT_IRQ : HARD_IRQ;
	e->tid = task->pid;
	e->start = f.start;
	e->wake = f.nested;
	e->end = now;
	e->vector = vector >= SOFTIRQ ? vector - SOFTIRQ : vector;
	set_tag(e, &t);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

#define VECTOR(name, number)                              \
	SEC("tp_btf/" #name "_entry")                     \
	int BPF_PROG(on_##name##_entry) { enter(number, 1, 0); return 0; } \
	SEC("tp_btf/" #name "_exit")                      \
	int BPF_PROG(on_##name##_exit) { leave(number, 1); return 0; }

VECTOR(local_timer, LOCAL_TIMER)
VECTOR(reschedule, RESCHEDULE)
VECTOR(call_function, CALL_FUNCTION)
VECTOR(call_function_single, CALL_FUNCTION_SINGLE)
VECTOR(irq_work, IRQ_WORK)

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq_entry, int irq)
{
	enter(irq & 255, 1, 0);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_exit, int irq)
{
	leave(irq & 255, 1);
	return 0;
}

/* A softirq that is raised outside any interrupt is the running task's own work:
 * on loopback a send runs the receiver's side inline. */
SEC("tp_btf/softirq_raise")
int BPF_PROG(on_softirq_raise, unsigned int vector)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	__u32 bit = 1U << (vector & 15);
	__u32 own = c->depth == 0;
	if (!c->hard && c->depth)
		own = frame_at(c, c->depth - 1)->own;
	if (own)
		c->own_raised |= bit;
	else
		c->own_raised &= ~bit;
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry, unsigned int vector)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	__u32 v = vector & 15;
	__u32 own = c->own_raised >> v & 1;
	c->own_raised &= ~(1U << v);
	enter(SOFTIRQ + v, 0, own);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit, unsigned int vector)
{
	leave(SOFTIRQ + (vector & 15), 0);
	return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(on_data_ready, struct sock *sk)
{
	__u64 cookie = sk->__sk_common.skc_cookie.counter;
	if (!cookie || !bpf_map_lookup_elem(&sockets, &cookie))
		return 0;
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	struct event *e = reserve();
	if (!e)
		return 0;
	e->kind = DATA_READY;
	e->start = bpf_ktime_get_ns();
	e->call = cookie;
	e->received = tp->bytes_received;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}
