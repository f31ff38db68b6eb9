/* rpcprof.h shows the calls of a service in C11 or C++17 to rpcprof: it writes the
 * segment that rpcprof/segment/layout.go defines, version 2, and needs libc,
 * pthreads and Linux on a 64-bit little-endian machine, no more.
 *
 *   struct rpcprof *p = rpcprof_open("store", NULL);          once, after any fork
 *   uint32_t get = rpcprof_method(p, "store.Store/Get");      once a method
 *   uint32_t conn = rpcprof_conn(p, fd);                      once a connection
 *   reader:  c = rpcprof_begin(p, get, conn, recv_ns); rpcprof_request(c, ...);
 *   worker:  rpcprof_start(c, role, 0);          binds the call to this thread
 *            rpcprof_stamp(c, RPCPROF_HANDLER, 0); reply = handle(request);
 *            rpcprof_stamp(c, RPCPROF_HANDLED, 0);
 *            rpcprof_release(c, 0);              before the reply is handed on
 *   writer:  rpcprof_stamp(c, RPCPROF_WRITE, 0); send(...);
 *            rpcprof_stamp(c, RPCPROF_SENT, 0); rpcprof_end(c, RPCPROF_OK);
 *
 * Units. Times are nanoseconds of CLOCK_MONOTONIC, as rpcprof_now gives; 0 or less
 * means now. Sizes and offsets are bytes.
 *
 * Failure. Nothing here ends the program or reports an error: what cannot be had is
 * NULL (or method 0, connection 0), every function takes that, and the service runs
 * on unrecorded. What was lost is counted in the header.
 *
 * Threads. Any function may be called from any thread, at the same time as any
 * other, but: a call belongs to one thread at a time, and who hands it on does so
 * through something that orders memory (a mutex, a queue); it is released on the
 * thread that started it, and not touched after rpcprof_end. A role belongs to the
 * thread that made it and is closed there, before the thread ends: the kernel gives
 * thread ids again. None is for signal handlers.
 *
 * Bounds. rpcprof_open takes all memory there will be (some 1.5 MB used at once, the
 * rest as it is touched). From begin to end nothing is allocated and nothing waits:
 * a thread that finds its shard taken takes another, and gives up after a hundred
 * rounds, the last ones with sched_yield; the call counts as lost then. Calls beyond
 * the call slots, up to as many again, are recorded but cannot be seen in flight.
 * rpcprof_method, _conn, _conn_close and roles take a mutex.
 *
 * Processes. A child of fork records nothing and may open a segment of its own.
 */
#ifndef RPCPROF_H
#define RPCPROF_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#if defined(__GLIBC__) && !defined(__USE_GNU)
#error "strict C: include rpcprof.h before any other header, or compile with -D_GNU_SOURCE"
#endif
#if !defined(__linux__) || !defined(__LP64__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "rpcprof.h is for Linux on 64-bit little-endian machines"
#endif
#ifdef __cplusplus
#define RPCPROF_ASSERT_(what) static_assert(what, #what)
#else
#define RPCPROF_ASSERT_(what) _Static_assert(what, #what)
#endif

/* ---- The layout. Every name is that of layout.go, record.go and stages.go. ---- */

#define RPCPROF_MAGIC UINT64_C(0x31464f5250435052) /* "RPCPROF1" */
#define RPCPROF_NO_OFFSET UINT64_MAX
enum {
	RPCPROF_VERSION = 2,
	RPCPROF_REVISION = 0,
	RPCPROF_HEADER_SIZE = 4096,
	RPCPROF_BUCKET_ENTRIES = 4,
	RPCPROF_HISTOGRAM_WORDS = 512,
	RPCPROF_HISTS_PER_METHOD = 9,
	RPCPROF_HIST_TOTAL = 8, /* stage k is in place k-1 */
	RPCPROF_SLOW_KEPT = 8,
	RPCPROF_SLOW_MINUTES = 4,
	RPCPROF_MAX_SECTIONS = 24,
	RPCPROF_MAX_METHODS = 4096,
	RPCPROF_MAX_CONNS = 1 << 16,
	RPCPROF_MAX_SLOTS = 1 << 18,
	RPCPROF_MAX_SHARDS = 1024,
	RPCPROF_MAX_RING = 1 << 20, /* of all shards together */
	RPCPROF_CLOCK_MONOTONIC = 1
};
#define RPCPROF_MAX_FILE_SIZE (UINT64_C(2) << 30)

/* Flags of the header. */
enum { RPCPROF_FLAG_GOROUTINES = 1, RPCPROF_FLAG_CLOSED = 2, RPCPROF_FLAG_THREADS = 4 };

enum rpcprof_side { RPCPROF_SERVER, RPCPROF_CLIENT, RPCPROF_REGION, RPCPROF_TASK };

/* The stamps of the server side. */
enum rpcprof_stamp {
	RPCPROF_RECV,    /* the request's frame is complete in user memory */
	RPCPROF_DEQUEUE, /* a worker takes the request */
	RPCPROF_HANDLER, /* user code starts */
	RPCPROF_HANDLED, /* user code returned */
	RPCPROF_WRITE,   /* the reply's bytes enter the write to the socket */
	RPCPROF_SENT,    /* that write returned */
	RPCPROF_SERVER_STAMPS,
	RPCPROF_STAMPS = 8 /* a record's room, whatever its side */
};

/* Stage k of the server side lies between its stamps k-1 and k. */
enum rpcprof_stage {
	RPCPROF_STAGE_RECV,
	RPCPROF_STAGE_QUEUE,
	RPCPROF_STAGE_DECODE,
	RPCPROF_STAGE_HANDLER,
	RPCPROF_STAGE_ENCODE,
	RPCPROF_STAGE_WRITE
};

enum rpcprof_outcome {
	RPCPROF_UNFINISHED,
	RPCPROF_OK,
	RPCPROF_ERROR,
	RPCPROF_CANCELLED,
	RPCPROF_EXPIRED, /* its deadline passed */
	RPCPROF_SHED,    /* refused at a limit */
	RPCPROF_OUTCOMES
};

enum rpcprof_kind { RPCPROF_KIND_FREE, RPCPROF_KIND_CALL, RPCPROF_KIND_READER, RPCPROF_KIND_WRITER, RPCPROF_KIND_WORKER };

struct rpcprof_section {
	char name[16];
	uint64_t off, size;
};

struct rpcprof_header {
	uint64_t magic;
	uint32_t version, size;
	uint64_t file_size;
	uint32_t pid, flags;
	int64_t start_ns;
	uint32_t clock, seq;
	uint64_t base; /* where the file is mapped here */
	uint32_t methods_off, method_cap, method_count, pad0_;
	uint32_t conns_off, conn_cap, conn_high, pad1_;
	uint32_t slots_off, slot_cap; /* call slots first, then role slots */
	uint32_t call_slots, pad2_, call_high, role_high;
	uint32_t index_off, index_bits;
	uint64_t shards_off, shard_size;
	uint32_t shard_cap, ring_cap, ring_off, hist_off; /* the offsets: within a shard */
	uint32_t hists_per_method, pad3_;
	int32_t tls_off; /* this and the next ten are of the Go runtime and 0 here */
	uint32_t gm, g_goid, g_status, g_wait_reason, g_sched_pc, g_sched_bp, mg0, m_cur_g, m_proc_id, g_stack_lo, pad4_;
	char go_version[32], service[64], degraded[160];
	uint64_t lost_calls, no_slot, no_idx, methods_refused, no_role, pad5_;
	uint32_t revision, section_count, slow_off, failed_off, failed_cap, cpu_every, runtime_off, runtime_cap;
	struct rpcprof_section sections[RPCPROF_MAX_SECTIONS];
};

struct rpcprof_method {
	uint32_t side, len;
	char name[120];
};

struct rpcprof_conn {
	uint32_t id, open; /* id: generation << 16 | entry */
	uint64_t cookie;
	int64_t opened_ns;
	uint32_t reader, writer; /* slots of the roles, 0 none */
	char local[48], remote[48];
};

struct rpcprof_slot {
	uint64_t call; /* id; 0 for a role or a free slot */
	uint64_t g;    /* the thread that runs it, 0 none */
	uint64_t goid; /* the same: a thread has no second name to check the first by */
	uint32_t method;
	uint8_t stage, kind;
	uint16_t flags;
	uint64_t parent;
	uint32_t conn, worker, queue, tid, region, pad_;
	int64_t stamps[RPCPROF_STAMPS];
};

struct rpcprof_index_entry {
	uint64_t g;
	uint32_t slot, pad_;
};

struct rpcprof_bucket {
	struct rpcprof_index_entry entries[RPCPROF_BUCKET_ENTRIES];
};

struct rpcprof_shard_head {
	uint64_t head, seq, failed, pad_[13];
};

struct rpcprof_record {
	uint64_t seq, call, parent;
	uint32_t method;
	uint8_t outcome, flags;
	uint16_t workers;
	int64_t stamps[RPCPROF_STAMPS];
	int64_t release;
	uint64_t offset;
	uint32_t queue, worker, conn, recv_tid, handler_tid, write_tid, bytes_in, bytes_out, batch;
	uint16_t batch_size, batch_pos;
	uint64_t goid;
	uint8_t trace_id[16], span_id[8];
	int64_t thread_cpu;
};

struct rpcprof_slow_set {
	int64_t minute; /* of the clock, counted from 1: 0 is a set that was never used */
	uint64_t pad_[7];
	struct rpcprof_record records[RPCPROF_SLOW_KEPT];
};

/* Word 0 is the sum in nanoseconds, then the buckets. */
struct rpcprof_histogram {
	uint64_t words[RPCPROF_HISTOGRAM_WORDS];
};

RPCPROF_ASSERT_(sizeof(struct rpcprof_section) == 32);
RPCPROF_ASSERT_(sizeof(struct rpcprof_header) <= RPCPROF_HEADER_SIZE);
RPCPROF_ASSERT_(offsetof(struct rpcprof_header, methods_off) == 56);
RPCPROF_ASSERT_(offsetof(struct rpcprof_header, shards_off) == 120);
RPCPROF_ASSERT_(offsetof(struct rpcprof_header, tls_off) == 160);
RPCPROF_ASSERT_(offsetof(struct rpcprof_header, lost_calls) == 464);
RPCPROF_ASSERT_(offsetof(struct rpcprof_header, sections) == 544);
RPCPROF_ASSERT_(sizeof(struct rpcprof_method) == 128);
RPCPROF_ASSERT_(sizeof(struct rpcprof_conn) == 128);
RPCPROF_ASSERT_(sizeof(struct rpcprof_slot) == 128);
RPCPROF_ASSERT_(offsetof(struct rpcprof_slot, stage) == 28);
RPCPROF_ASSERT_(offsetof(struct rpcprof_slot, conn) == 40);
RPCPROF_ASSERT_(offsetof(struct rpcprof_slot, stamps) == 64); /* a cache line, all that BPF reads */
RPCPROF_ASSERT_(sizeof(struct rpcprof_bucket) == 64);
RPCPROF_ASSERT_(sizeof(struct rpcprof_shard_head) == 128);
RPCPROF_ASSERT_(sizeof(struct rpcprof_record) == 192);
RPCPROF_ASSERT_(offsetof(struct rpcprof_record, stamps) == 32);
RPCPROF_ASSERT_(offsetof(struct rpcprof_record, queue) == 112);
RPCPROF_ASSERT_(offsetof(struct rpcprof_record, trace_id) == 160);
RPCPROF_ASSERT_(sizeof(struct rpcprof_slow_set) == 64 + RPCPROF_SLOW_KEPT * sizeof(struct rpcprof_record));
RPCPROF_ASSERT_(sizeof(struct rpcprof_histogram) == 4096);

/* The histogram bucket of a duration: sixteen to a power of two, in units of 16 ns. */
static inline uint32_t rpcprof_bucket_for(int64_t ns)
{
	uint64_t v = ns < 0 ? 0 : (uint64_t)ns >> 4;
	if (v < 16)
		return (uint32_t)v;
	uint32_t e = 59 - (uint32_t)__builtin_clzll(v);
	uint32_t i = ((e + 1) << 4) + (uint32_t)(v >> e & 15);
	return i < RPCPROF_HISTOGRAM_WORDS - 2 ? i : RPCPROF_HISTOGRAM_WORDS - 2;
}

/* The index bucket of a thread. */
static inline uint64_t rpcprof_bucket_of(uint64_t g, uint32_t bits)
{
	return (g * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - bits);
}

/* ---- The writer. What ends in an underscore is not for callers. ---- */

/* Sizes; 0 takes the default. What is too large is cut to what a reader accepts. */
struct rpcprof_options {
	uint32_t methods;    /* told apart, default 256; those beyond are "_other" */
	uint32_t call_slots; /* calls in flight that can be seen, default 4096 */
	uint32_t role_slots; /* readers, writers and workers, default 4096 */
	uint32_t conns;      /* connections at once, default 4096 */
	uint32_t shards;     /* threads that end calls without meeting another, default twice the CPUs */
	uint32_t ring;       /* finished calls kept a shard, rounded up to a power of two */
};

enum { RPCPROF_QUEUES_ = 64, RPCPROF_LOCK_ROUNDS_ = 100 };
#define RPCPROF_NONE_ UINT32_MAX

struct rpcprof;

struct rpcprof_role {
	struct rpcprof *p;
	struct rpcprof_slot *slot; /* NULL: closed */
	struct rpcprof_index_entry *entry;
	uint32_t index, prev, tid, queue;
	uint32_t next; /* free role under this one, its number plus one */
};

struct rpcprof_call {
	struct rpcprof *p;
	struct rpcprof_slot *slot;         /* in the segment, or private beyond the call slots */
	struct rpcprof_index_entry *entry; /* where the thread is bound, NULL when it is not */
	uint32_t number, below;            /* below: the free call under this one, its number plus one */
	uint32_t tid, prev;                /* the thread that runs it, 0 none; the slot bound there before */
	uint32_t live;
	struct rpcprof_record rec;
};

/* The slowest calls' durations, so that a call need not look through their records. */
struct rpcprof_slow_ {
	int64_t minute;
	int64_t took[RPCPROF_SLOW_KEPT];
	uint32_t used;
};

struct rpcprof_shard_ {
	struct rpcprof_shard_head *head;
	struct rpcprof_record *ring, *failed;
	struct rpcprof_slow_set *sets;
	struct rpcprof_histogram *hists;
	struct rpcprof_slow_ *slow;
	uint32_t lock;
	char pad_[76]; /* locks of two shards are on two lines */
};

struct rpcprof {
	struct rpcprof_header *header;
	struct rpcprof_method *methods;
	struct rpcprof_conn *conns;
	struct rpcprof_slot *slots, *beyond;
	struct rpcprof_bucket *index;
	struct rpcprof_shard_ *shards;
	uint32_t closed, queues;
	int fd;
	struct rpcprof *next; /* in the list of all */

	pthread_mutex_t lock;         /* of what follows up to the calls */
	uint32_t *conn_ring;          /* free entries, reused first in, first out */
	uint32_t conn_first, conn_free;
	uint16_t *conn_gen;
	struct rpcprof_role *roles;
	uint32_t role_free, role_fresh;

	struct rpcprof_call *calls; /* those with a slot, then as many without */
	uint32_t fresh[2];          /* of either: how many have ever been used */
	uint32_t workers[RPCPROF_QUEUES_];
	char pad_[64];
	uint64_t pool[2]; /* free calls of either: a count << 32 | number + 1; the count tells two equal heads apart */
};

/* What all translation units share: weak, as a C header knows no inline variables. */
struct rpcprof_thread_ {
	uint32_t tid, number;
};
struct rpcprof_process_ {
	struct rpcprof *all;
	uint32_t seq, threads, hooked;
};
__attribute__((weak)) __thread struct rpcprof_thread_ rpcprof_this_thread_;
__attribute__((weak)) struct rpcprof_process_ rpcprof_this_process_;

static inline int64_t rpcprof_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The kernel's id of this thread, asked for once. */
static inline uint32_t rpcprof_tid_(void)
{
	struct rpcprof_thread_ *t = &rpcprof_this_thread_;
	if (!t->tid) {
		t->tid = (uint32_t)syscall(SYS_gettid);
		t->number = __atomic_fetch_add(&rpcprof_this_process_.threads, 1, __ATOMIC_RELAXED);
	}
	return t->tid;
}

static inline void rpcprof_count_(uint64_t *n) { __atomic_fetch_add(n, 1, __ATOMIC_RELAXED); }

static inline void rpcprof_raise_(uint32_t *v, uint32_t n)
{
	uint32_t old = __atomic_load_n(v, __ATOMIC_RELAXED);
	while (old < n && !__atomic_compare_exchange_n(v, &old, n, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

static inline int rpcprof_off_(const struct rpcprof *p) { return !p || __atomic_load_n(&p->closed, __ATOMIC_RELAXED); }

/* The child shares the mapping, and would write into its parent's segment. */
static inline void rpcprof_forked_(void)
{
	struct rpcprof *p = __atomic_load_n(&rpcprof_this_process_.all, __ATOMIC_ACQUIRE);
	for (; p; p = p->next) {
		__atomic_store_n(&p->closed, 1, __ATOMIC_RELAXED);
		int fd = __atomic_exchange_n(&p->fd, -1, __ATOMIC_RELAXED);
		if (fd >= 0)
			close(fd);
	}
	rpcprof_this_thread_.tid = 0;
}

static inline uint32_t rpcprof_section_(struct rpcprof_header *h, const char *name, uint64_t *off, uint64_t size)
{
	struct rpcprof_section *s = &h->sections[h->section_count++];
	memcpy(s->name, name, strlen(name));
	s->off = *off;
	s->size = size;
	*off = (*off + size + 4095) & ~UINT64_C(4095);
	return (uint32_t)s->off;
}

/* Lays the file out as segment.NewWriter does, without the runtime's section. */
static inline void rpcprof_layout_(struct rpcprof_header *h, const struct rpcprof_options *o)
{
	uint64_t off = RPCPROF_HEADER_SIZE;
	uint32_t slots = o->call_slots + o->role_slots, failed = o->ring < 256 ? o->ring : 256;
	memset(h, 0, sizeof(*h));
	h->version = RPCPROF_VERSION;
	h->revision = RPCPROF_REVISION;
	h->size = RPCPROF_HEADER_SIZE;
	h->clock = RPCPROF_CLOCK_MONOTONIC;
	h->flags = RPCPROF_FLAG_THREADS;
	h->method_cap = o->methods;
	h->methods_off = rpcprof_section_(h, "methods", &off, (uint64_t)o->methods * sizeof(struct rpcprof_method));
	h->conn_cap = o->conns;
	h->conns_off = rpcprof_section_(h, "connections", &off, (uint64_t)o->conns * sizeof(struct rpcprof_conn));
	h->slot_cap = slots;
	h->call_slots = o->call_slots;
	h->slots_off = rpcprof_section_(h, "slots", &off, (uint64_t)slots * sizeof(struct rpcprof_slot));
	/* At least as many entries as slots, for most sizes twice as many. */
	for (h->index_bits = 1; (UINT32_C(1) << h->index_bits) < slots / RPCPROF_BUCKET_ENTRIES * 2;)
		h->index_bits++;
	h->index_off = rpcprof_section_(h, "index", &off, (uint64_t)sizeof(struct rpcprof_bucket) << h->index_bits);
	h->ring_cap = o->ring;
	h->ring_off = sizeof(struct rpcprof_shard_head);
	h->failed_cap = o->ring / 4 > failed ? o->ring / 4 : failed;
	h->failed_off = (uint32_t)((h->ring_off + o->ring * sizeof(struct rpcprof_record) + 4095) & ~UINT64_C(4095));
	h->slow_off = (uint32_t)((h->failed_off + h->failed_cap * sizeof(struct rpcprof_record) + 4095) & ~UINT64_C(4095));
	h->hist_off = (uint32_t)((h->slow_off + (uint64_t)o->methods * RPCPROF_SLOW_MINUTES * sizeof(struct rpcprof_slow_set) + 4095) & ~UINT64_C(4095));
	h->hists_per_method = RPCPROF_HISTS_PER_METHOD;
	h->shard_size = h->hist_off + (uint64_t)o->methods * RPCPROF_HISTS_PER_METHOD * sizeof(struct rpcprof_histogram);
	h->shards_off = off;
	h->shard_cap = o->shards;
	rpcprof_section_(h, "shards", &off, h->shard_size * o->shards);
	h->file_size = h->shards_off + h->shard_size * o->shards;
}

static inline uint32_t rpcprof_size_(uint32_t v, uint32_t otherwise, uint32_t limit)
{
	v = v ? v : otherwise;
	return v < limit ? v : limit;
}

static inline void rpcprof_sizes_(struct rpcprof_header *h, const struct rpcprof_options *given)
{
	struct rpcprof_options o;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t ring = 1, def;
	memset(&o, 0, sizeof(o));
	if (given)
		o = *given;
	o.methods = rpcprof_size_(o.methods, 256, RPCPROF_MAX_METHODS);
	o.call_slots = rpcprof_size_(o.call_slots, 4096, RPCPROF_MAX_SLOTS / 2);
	o.role_slots = rpcprof_size_(o.role_slots, 4096, RPCPROF_MAX_SLOTS / 2);
	o.conns = rpcprof_size_(o.conns, 4096, RPCPROF_MAX_CONNS - 1);
	o.shards = rpcprof_size_(o.shards, cpus > 1 && cpus < 32 ? (uint32_t)cpus * 2 : cpus < 2 ? 2 : 64, RPCPROF_MAX_SHARDS);
	/* A reader empties the rings every 40 ms. */
	def = 40960 / o.shards > 4096 ? 4096 : 40960 / o.shards < 1024 ? 1024 : 40960 / o.shards;
	o.ring = rpcprof_size_(o.ring, def, RPCPROF_MAX_RING);
	while (ring < o.ring)
		ring *= 2;
	while (ring > RPCPROF_MAX_RING / o.shards)
		ring /= 2;
	o.ring = ring;
	/* What is over the largest file goes: finished calls, then methods. */
	for (rpcprof_layout_(h, &o); h->file_size > RPCPROF_MAX_FILE_SIZE && o.methods > 1; rpcprof_layout_(h, &o)) {
		if (o.ring > 1024)
			o.ring /= 2;
		else
			o.methods /= 2;
	}
}

/* Makes the file, whose size is final, and maps it. */
static inline unsigned char *rpcprof_map_(uint64_t size, int *fd)
{
	void *mem;
	*fd = (int)syscall(SYS_memfd_create, "rpcprof", 3 /* MFD_CLOEXEC | MFD_ALLOW_SEALING */);
	if (*fd < 0)
		return NULL;
	if (ftruncate(*fd, (off_t)size) || fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ||
	    (mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0)) == MAP_FAILED) {
		close(*fd);
		return NULL;
	}
	return (unsigned char *)mem;
}

static inline uint32_t rpcprof_method(struct rpcprof *p, const char *name);

/* Takes the private memory; a reader of the segment sees none of it. */
static inline int rpcprof_private_(struct rpcprof *p, const struct rpcprof_header *h)
{
	uint32_t i;
	p->calls = (struct rpcprof_call *)calloc(2 * (size_t)h->call_slots, sizeof(struct rpcprof_call));
	p->beyond = (struct rpcprof_slot *)calloc(h->call_slots, sizeof(struct rpcprof_slot));
	p->roles = (struct rpcprof_role *)calloc(h->slot_cap - h->call_slots, sizeof(struct rpcprof_role));
	p->conn_ring = (uint32_t *)calloc(h->conn_cap, sizeof(uint32_t));
	p->conn_gen = (uint16_t *)calloc(h->conn_cap, sizeof(uint16_t));
	p->shards = (struct rpcprof_shard_ *)calloc(h->shard_cap, sizeof(struct rpcprof_shard_));
	struct rpcprof_slow_ *slow = (struct rpcprof_slow_ *)calloc((size_t)h->shard_cap * h->method_cap, sizeof(struct rpcprof_slow_));
	if (!p->calls || !p->beyond || !p->roles || !p->conn_ring || !p->conn_gen || !p->shards || !slow) {
		free(slow);
		return 0;
	}
	for (i = 0; i < h->shard_cap; i++)
		p->shards[i].slow = slow + (size_t)i * h->method_cap;
	for (i = 0; i < h->conn_cap; i++)
		p->conn_ring[i] = i;
	p->conn_free = h->conn_cap;
	return 1;
}

static inline void rpcprof_tables_(struct rpcprof *p, unsigned char *mem, const struct rpcprof_header *h)
{
	uint32_t i;
	p->header = (struct rpcprof_header *)(void *)mem;
	p->methods = (struct rpcprof_method *)(void *)(mem + h->methods_off);
	p->conns = (struct rpcprof_conn *)(void *)(mem + h->conns_off);
	p->slots = (struct rpcprof_slot *)(void *)(mem + h->slots_off);
	p->index = (struct rpcprof_bucket *)(void *)(mem + h->index_off);
	for (i = 0; i < h->shard_cap; i++) {
		unsigned char *at = mem + h->shards_off + i * h->shard_size;
		struct rpcprof_shard_ *s = &p->shards[i];
		s->head = (struct rpcprof_shard_head *)(void *)at;
		s->ring = (struct rpcprof_record *)(void *)(at + h->ring_off);
		s->failed = (struct rpcprof_record *)(void *)(at + h->failed_off);
		s->sets = (struct rpcprof_slow_set *)(void *)(at + h->slow_off);
		s->hists = (struct rpcprof_histogram *)(void *)(at + h->hist_off);
	}
	/* A BPF program reads these and cannot fault them in. */
	for (i = 0; i < h->slot_cap; i++)
		__atomic_store_n(&p->slots[i].call, 0, __ATOMIC_RELAXED);
	for (i = 0; i < UINT32_C(1) << h->index_bits; i++)
		__atomic_store_n(&p->index[i].entries[0].g, 0, __ATOMIC_RELAXED);
}

/* Makes the segment of a service, NULL when that cannot be. At most 63 bytes of the
 * name are kept; options may be NULL. Its memory is never given back, as threads may
 * be using it: it is for once a process. */
static inline struct rpcprof *rpcprof_open(const char *service, const struct rpcprof_options *options)
{
	struct rpcprof_process_ *all = &rpcprof_this_process_;
	struct rpcprof_header h;
	unsigned char *mem = NULL;
	struct rpcprof *p = (struct rpcprof *)calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	rpcprof_sizes_(&h, options);
	h.seq = __atomic_add_fetch(&all->seq, 1, __ATOMIC_RELAXED);
	h.pid = (uint32_t)getpid();
	if (service)
		memcpy(h.service, service, strnlen(service, sizeof(h.service) - 1));
	if (h.file_size > RPCPROF_MAX_FILE_SIZE || !rpcprof_private_(p, &h) || !(mem = rpcprof_map_(h.file_size, &p->fd))) {
		if (p->shards)
			free(p->shards[0].slow);
		free(p->shards), free(p->conn_gen), free(p->conn_ring), free(p->roles), free(p->beyond), free(p->calls), free(p);
		return NULL;
	}
	rpcprof_tables_(p, mem, &h);
	pthread_mutex_init(&p->lock, NULL);
	if (!__atomic_exchange_n(&all->hooked, 1, __ATOMIC_RELAXED))
		pthread_atfork(NULL, NULL, rpcprof_forked_);
	p->next = __atomic_load_n(&all->all, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&all->all, &p->next, p, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	h.base = (uint64_t)(uintptr_t)mem;
	*p->header = h;
	rpcprof_method(p, "_other");
	/* Who sees the magic sees the rest; attach takes what has a start time. */
	__atomic_store_n(&p->header->magic, RPCPROF_MAGIC, __ATOMIC_RELEASE);
	__atomic_store_n(&p->header->start_ns, rpcprof_now(), __ATOMIC_RELEASE);
	return p;
}

/* Ends recording, and takes the segment out of /proc/PID/fd. What is called later, also
 * for calls under way, does nothing. */
static inline void rpcprof_close(struct rpcprof *p)
{
	if (!p || __atomic_exchange_n(&p->closed, 1, __ATOMIC_RELAXED))
		return;
	__atomic_fetch_or(&p->header->flags, RPCPROF_FLAG_CLOSED, __ATOMIC_RELEASE);
	int fd = __atomic_exchange_n(&p->fd, -1, __ATOMIC_RELAXED);
	if (fd >= 0)
		close(fd);
}

/* Gives the id of a method by its full name, such as "store.Store/Get", new or known;
 * 0 is "_other", and what is beyond the table. A name over 120 bytes is cut and ends
 * in "~". Ask once and keep it. */
static inline uint32_t rpcprof_method(struct rpcprof *p, const char *name)
{
	struct rpcprof_method m;
	uint32_t i, n;
	if (rpcprof_off_(p) || !name)
		return 0;
	memset(&m, 0, sizeof(m));
	m.side = RPCPROF_SERVER;
	m.len = (uint32_t)strnlen(name, sizeof(m.name));
	memcpy(m.name, name, m.len);
	if (m.len == sizeof(m.name) && name[m.len])
		m.name[m.len - 1] = '~';
	pthread_mutex_lock(&p->lock);
	n = p->header->method_count;
	for (i = 0; i < n && memcmp(&p->methods[i], &m, sizeof(m)); i++)
		;
	if (i == n && n < p->header->method_cap) {
		p->methods[n] = m;
		__atomic_store_n(&p->header->method_count, n + 1, __ATOMIC_RELEASE);
	} else if (i == n) {
		rpcprof_count_(&p->header->methods_refused);
		i = 0;
	}
	pthread_mutex_unlock(&p->lock);
	return i;
}

static inline void rpcprof_address_(char *text, size_t size, const struct sockaddr_storage *a, socklen_t len)
{
	char ip[INET6_ADDRSTRLEN];
	if (a->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;
		if (inet_ntop(AF_INET, &in->sin_addr, ip, sizeof(ip)))
			snprintf(text, size, "%.15s:%u", ip, (unsigned)ntohs(in->sin_port));
	} else if (a->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)a;
		if (inet_ntop(AF_INET6, &in->sin6_addr, ip, sizeof(ip)))
			snprintf(text, size, "[%.38s]:%u", ip, (unsigned)ntohs(in->sin6_port));
	} else if (a->ss_family == AF_UNIX && len > offsetof(struct sockaddr_un, sun_path)) {
		const struct sockaddr_un *un = (const struct sockaddr_un *)(const void *)a;
		size_t n = len - offsetof(struct sockaddr_un, sun_path);
		memcpy(text, un->sun_path, n < size ? n : size - 1);
		if (!text[0]) /* an abstract name */
			text[0] = '@';
	}
}

/* Enters a connection and gives its id, 0 when the table is full. The socket is only
 * asked for its addresses and its cookie, by which the kernel's events name it. */
static inline uint32_t rpcprof_conn(struct rpcprof *p, int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	struct rpcprof_conn c, *e;
	uint32_t i, id;
	if (rpcprof_off_(p))
		return 0;
	memset(&c, 0, sizeof(c));
	memset(&a, 0, sizeof(a));
	c.open = 1;
	c.opened_ns = rpcprof_now();
	if (getsockname(fd, (struct sockaddr *)&a, &len) == 0)
		rpcprof_address_(c.local, sizeof(c.local), &a, len);
	len = sizeof(a);
	memset(&a, 0, sizeof(a));
	if (getpeername(fd, (struct sockaddr *)&a, &len) == 0)
		rpcprof_address_(c.remote, sizeof(c.remote), &a, len);
	len = sizeof(c.cookie);
	if (getsockopt(fd, SOL_SOCKET, 57 /* SO_COOKIE, Linux 4.12 */, &c.cookie, &len))
		c.cookie = 0;
	pthread_mutex_lock(&p->lock);
	if (!p->conn_free) {
		pthread_mutex_unlock(&p->lock);
		return 0;
	}
	i = p->conn_ring[p->conn_first];
	p->conn_first = (p->conn_first + 1) % p->header->conn_cap;
	p->conn_free--;
	if (++p->conn_gen[i] == 0)
		p->conn_gen[i] = 1;
	id = (uint32_t)p->conn_gen[i] << 16 | i;
	e = &p->conns[i];
	__atomic_store_n(&e->id, 0, __ATOMIC_RELAXED); /* no reader takes it for a connection meanwhile */
	__atomic_thread_fence(__ATOMIC_RELEASE);
	*e = c;
	__atomic_store_n(&e->id, id, __ATOMIC_RELEASE);
	rpcprof_raise_(&p->header->conn_high, i + 1);
	pthread_mutex_unlock(&p->lock);
	return id;
}

/* Marks a connection closed; its entry is reused late, under another id. */
static inline void rpcprof_conn_close(struct rpcprof *p, uint32_t conn)
{
	uint32_t i = conn & 0xffff;
	if (rpcprof_off_(p) || !conn || i >= p->header->conn_cap)
		return;
	pthread_mutex_lock(&p->lock);
	if (p->conns[i].id == conn && p->conns[i].open) {
		__atomic_store_n(&p->conns[i].open, 0, __ATOMIC_RELEASE);
		p->conn_ring[(p->conn_first + p->conn_free++) % p->header->conn_cap] = i;
	}
	pthread_mutex_unlock(&p->lock);
}

/* Says whether a slot is another one of the same thread. */
static inline int rpcprof_runs_(struct rpcprof *p, uint32_t slot, uint32_t tid, uint32_t than)
{
	return slot < p->header->slot_cap && slot != than && __atomic_load_n(&p->slots[slot].g, __ATOMIC_RELAXED) == tid;
}

/* Makes the index lead from a thread to a slot. Gives the entry, NULL when the bucket
 * is full, and the slot it led to before. */
static inline struct rpcprof_index_entry *rpcprof_bind_(struct rpcprof *p, uint32_t tid, uint32_t slot, uint32_t *prev)
{
	struct rpcprof_index_entry *e = p->index[rpcprof_bucket_of(tid, p->header->index_bits)].entries;
	int i;
	for (i = 0; i < RPCPROF_BUCKET_ENTRIES; i++)
		if (__atomic_load_n(&e[i].g, __ATOMIC_RELAXED) == tid) {
			*prev = __atomic_exchange_n(&e[i].slot, slot, __ATOMIC_RELEASE);
			return &e[i];
		}
	*prev = RPCPROF_NONE_;
	for (i = 0; i < RPCPROF_BUCKET_ENTRIES; i++) {
		uint64_t none = 0;
		if (__atomic_compare_exchange_n(&e[i].g, &none, (uint64_t)tid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			__atomic_store_n(&e[i].slot, slot, __ATOMIC_RELEASE);
			return &e[i];
		}
	}
	rpcprof_count_(&p->header->no_idx);
	return NULL;
}

/* Takes a binding back and restores the one before it, where that still holds, else
 * the worker's; otherwise the thread leaves the index. What was bound over it stays. */
static inline void rpcprof_unbind_(struct rpcprof *p, struct rpcprof_index_entry *e, uint32_t tid, uint32_t slot, uint32_t prev, uint32_t worker)
{
	if (__atomic_load_n(&e->g, __ATOMIC_RELAXED) != tid || __atomic_load_n(&e->slot, __ATOMIC_RELAXED) != slot)
		return;
	if (!rpcprof_runs_(p, prev, tid, slot))
		prev = worker;
	if (rpcprof_runs_(p, prev, tid, slot))
		__atomic_store_n(&e->slot, prev, __ATOMIC_RELEASE);
	else
		__atomic_store_n(&e->g, 0, __ATOMIC_RELEASE);
}

static inline struct rpcprof_role *rpcprof_role_(struct rpcprof *p, enum rpcprof_kind kind, uint32_t conn, uint32_t queue)
{
	struct rpcprof_role *r = NULL;
	struct rpcprof_conn *e;
	struct rpcprof_slot *s;
	if (rpcprof_off_(p))
		return NULL;
	pthread_mutex_lock(&p->lock);
	if (p->role_free) {
		r = &p->roles[p->role_free - 1];
		p->role_free = r->next;
	} else if (p->role_fresh < p->header->slot_cap - p->header->call_slots) {
		r = &p->roles[p->role_fresh];
		r->p = p;
		r->index = p->header->call_slots + p->role_fresh++;
	}
	e = &p->conns[conn & 0xffff];
	if (r && conn && (conn & 0xffff) < p->header->conn_cap && e->id == conn)
		__atomic_store_n(kind == RPCPROF_KIND_READER ? &e->reader : &e->writer, r->index, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&p->lock);
	if (!r) {
		rpcprof_count_(&p->header->no_role);
		return NULL;
	}
	s = r->slot = &p->slots[r->index];
	r->tid = rpcprof_tid_();
	r->queue = queue;
	s->tid = r->tid;
	s->conn = conn;
	s->queue = queue;
	s->worker = r->index;
	s->stamps[0] = rpcprof_now();
	__atomic_store_n(&s->kind, (uint8_t)kind, __ATOMIC_RELEASE);
	__atomic_store_n(&s->goid, r->tid, __ATOMIC_RELEASE);
	__atomic_store_n(&s->g, r->tid, __ATOMIC_RELEASE);
	rpcprof_raise_(&p->header->role_high, r->index + 1);
	r->entry = rpcprof_bind_(p, r->tid, r->index, &r->prev);
	if (queue && queue <= RPCPROF_QUEUES_)
		__atomic_fetch_add(&p->workers[queue - 1], 1, __ATOMIC_RELAXED);
	return r;
}

/* Make the calling thread the one that reads or writes a connection, which serves many
 * calls: what delays it is charged to those that wait for it. NULL when no slot is left. */
static inline struct rpcprof_role *rpcprof_reader(struct rpcprof *p, uint32_t conn) { return rpcprof_role_(p, RPCPROF_KIND_READER, conn, 0); }
static inline struct rpcprof_role *rpcprof_writer(struct rpcprof *p, uint32_t conn) { return rpcprof_role_(p, RPCPROF_KIND_WRITER, conn, 0); }

/* Gives the id of a queue that calls wait in for a worker; the first 64 count theirs. */
static inline uint32_t rpcprof_queue(struct rpcprof *p) { return rpcprof_off_(p) ? 0 : __atomic_add_fetch(&p->queues, 1, __ATOMIC_RELAXED); }

/* Makes the calling thread a worker of a queue. */
static inline struct rpcprof_role *rpcprof_worker(struct rpcprof *p, uint32_t queue) { return rpcprof_role_(p, RPCPROF_KIND_WORKER, 0, queue); }

/* Ends a role, on the thread that made it. */
static inline void rpcprof_role_close(struct rpcprof_role *r)
{
	struct rpcprof *p;
	if (!r || !r->slot || rpcprof_off_(r->p))
		return;
	p = r->p;
	__atomic_store_n(&r->slot->g, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&r->slot->kind, RPCPROF_KIND_FREE, __ATOMIC_RELEASE);
	if (r->entry)
		rpcprof_unbind_(p, r->entry, r->tid, r->index, r->prev, RPCPROF_NONE_);
	r->entry = NULL;
	if (r->queue && r->queue <= RPCPROF_QUEUES_)
		__atomic_fetch_sub(&p->workers[r->queue - 1], 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&p->lock);
	r->slot = NULL;
	r->next = p->role_free;
	p->role_free = r->index - p->header->call_slots + 1;
	pthread_mutex_unlock(&p->lock);
}

/* Takes a free call of those with a slot (0) or without (1), a used one first, so that
 * no more memory is touched than calls were in flight at once. */
static inline struct rpcprof_call *rpcprof_take_(struct rpcprof *p, int which)
{
	uint32_t cap = p->header->call_slots, n;
	uint64_t old = __atomic_load_n(&p->pool[which], __ATOMIC_ACQUIRE);
	while ((uint32_t)old) {
		struct rpcprof_call *c = &p->calls[(uint32_t)old - 1];
		uint64_t below = __atomic_load_n(&c->below, __ATOMIC_RELAXED);
		if (__atomic_compare_exchange_n(&p->pool[which], &old, ((old >> 32) + 1) << 32 | below, 0, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
			return c;
	}
	n = __atomic_load_n(&p->fresh[which], __ATOMIC_RELAXED);
	while (n < cap)
		if (__atomic_compare_exchange_n(&p->fresh[which], &n, n + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
			struct rpcprof_call *c = &p->calls[which ? cap + n : n];
			c->p = p;
			c->number = which ? cap + n : n;
			c->slot = which ? &p->beyond[n] : &p->slots[n];
			if (!which)
				rpcprof_raise_(&p->header->call_high, n + 1);
			return c;
		}
	return NULL;
}

/* Not after rpcprof_close, nor in a forked child, where the slot is the parent's. */
static inline int rpcprof_live_(const struct rpcprof_call *c) { return c && c->live && !rpcprof_off_(c->p); }

static inline void rpcprof_give_(struct rpcprof *p, struct rpcprof_call *c)
{
	uint64_t *pool = &p->pool[c->number >= p->header->call_slots];
	uint64_t old = __atomic_load_n(pool, __ATOMIC_RELAXED);
	do
		__atomic_store_n(&c->below, (uint32_t)old, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(pool, &old, ((old >> 32) + 1) << 32 | (c->number + 1), 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/* Begins a call whose request was complete at a time; requests cut from one read share
 * it. NULL when the call cannot be recorded, which is counted. */
static inline struct rpcprof_call *rpcprof_begin(struct rpcprof *p, uint32_t method, uint32_t conn, int64_t recv_ns)
{
	struct rpcprof_call *c;
	struct rpcprof_slot *s;
	uint32_t tid, shard;
	if (rpcprof_off_(p))
		return NULL;
	c = rpcprof_take_(p, 0);
	if (!c && (c = rpcprof_take_(p, 1)))
		rpcprof_count_(&p->header->no_slot);
	if (!c) {
		rpcprof_count_(&p->header->lost_calls);
		return NULL;
	}
	tid = rpcprof_tid_();
	shard = rpcprof_this_thread_.number % p->header->shard_cap;
	if (recv_ns <= 0)
		recv_ns = rpcprof_now();
	memset(&c->rec, 0, sizeof(c->rec));
	c->rec.call = (uint64_t)p->header->seq << 56 | (uint64_t)(shard + 1) << 44 |
		(__atomic_add_fetch(&p->shards[shard].head->seq, 1, __ATOMIC_RELAXED) & ((UINT64_C(1) << 44) - 1));
	c->rec.method = method < p->header->method_count ? method : 0;
	c->rec.offset = RPCPROF_NO_OFFSET;
	c->rec.recv_tid = tid;
	c->rec.conn = conn;
	c->rec.stamps[RPCPROF_RECV] = recv_ns;
	c->live = 1;
	s = c->slot;
	s->method = c->rec.method;
	s->conn = conn;
	s->worker = s->queue = s->tid = 0;
	memset(s->stamps, 0, sizeof(s->stamps));
	s->stamps[RPCPROF_RECV] = recv_ns;
	s->stage = RPCPROF_STAGE_QUEUE;
	__atomic_store_n(&s->kind, RPCPROF_KIND_CALL, __ATOMIC_RELEASE);
	__atomic_store_n(&s->call, c->rec.call, __ATOMIC_RELEASE);
	return c;
}

/* Describes the request: its size, where its first byte stands in all that the
 * connection has received (below TLS; negative when unknown), the number of the read it
 * was cut from, its position there from 0, and how many were cut from that read. */
static inline void rpcprof_request(struct rpcprof_call *c, size_t size, int64_t offset, uint32_t read, uint32_t pos, uint32_t of)
{
	if (!rpcprof_live_(c))
		return;
	of = of < UINT16_MAX ? of : UINT16_MAX;
	c->rec.bytes_in = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
	c->rec.offset = offset < 0 ? RPCPROF_NO_OFFSET : (uint64_t)offset;
	c->rec.batch = read;
	c->rec.batch_size = (uint16_t)of;
	c->rec.batch_pos = (uint16_t)(pos < of ? pos : of);
}

/* Says which queue the call waits in. */
static inline void rpcprof_enqueue(struct rpcprof_call *c, uint32_t queue)
{
	if (rpcprof_live_(c))
		c->rec.queue = c->slot->queue = queue;
}

/* Sets the ids of the trace that the call belongs to. */
static inline void rpcprof_trace(struct rpcprof_call *c, const uint8_t trace[16], const uint8_t span[8])
{
	if (rpcprof_live_(c)) {
		memcpy(c->rec.trace_id, trace, 16);
		memcpy(c->rec.span_id, span, 8);
	}
}

/* Takes a stamp. The stage that begins with it is what the slot shows next. */
static inline void rpcprof_stamp(struct rpcprof_call *c, enum rpcprof_stamp stamp, int64_t at)
{
	if (!rpcprof_live_(c) || (unsigned)stamp >= RPCPROF_SERVER_STAMPS)
		return;
	c->rec.stamps[stamp] = at > 0 ? at : rpcprof_now();
	__atomic_store_n(&c->slot->stamps[stamp], c->rec.stamps[stamp], __ATOMIC_RELAXED);
	if (stamp == RPCPROF_WRITE)
		c->rec.write_tid = rpcprof_tid_();
	if (stamp < RPCPROF_SENT)
		__atomic_store_n(&c->slot->stage, (uint8_t)(stamp + 1), __ATOMIC_RELEASE);
}

static inline void rpcprof_unbind_call_(struct rpcprof_call *c)
{
	__atomic_store_n(&c->slot->g, 0, __ATOMIC_RELEASE);
	if (c->entry)
		rpcprof_unbind_(c->p, c->entry, c->tid, c->number, c->prev, c->slot->worker);
	c->entry = NULL;
	c->tid = 0;
}

/* Takes the dequeue stamp and binds the call to the calling thread, whose role is given
 * where it has one. A call that the thread was serving is taken up again at release. A
 * handler that is suspended and goes on later, perhaps on another thread, releases its
 * call and starts it again: that binds it and leaves the stamps as they are. */
static inline void rpcprof_start(struct rpcprof_call *c, const struct rpcprof_role *role, int64_t at)
{
	struct rpcprof_slot *s;
	uint32_t n;
	if (!rpcprof_live_(c))
		return;
	if (c->tid) /* started before, and handed on */
		rpcprof_unbind_call_(c);
	if (!c->rec.stamps[RPCPROF_DEQUEUE])
		rpcprof_stamp(c, RPCPROF_DEQUEUE, at);
	s = c->slot;
	if (role && role->slot && role->p == c->p) {
		s->worker = c->rec.worker = role->index;
		if (role->queue)
			s->queue = c->rec.queue = role->queue;
		if (role->queue && role->queue <= RPCPROF_QUEUES_) {
			n = __atomic_load_n(&c->p->workers[role->queue - 1], __ATOMIC_RELAXED);
			c->rec.workers = (uint16_t)(n < UINT16_MAX ? n : UINT16_MAX);
		}
	}
	c->tid = s->tid = c->rec.handler_tid = rpcprof_tid_();
	c->rec.goid = c->tid;
	__atomic_store_n(&s->goid, c->tid, __ATOMIC_RELEASE);
	__atomic_store_n(&s->g, c->tid, __ATOMIC_RELEASE);
	if (c->number < c->p->header->call_slots)
		c->entry = rpcprof_bind_(c->p, c->tid, c->number, &c->prev);
}

/* Says that the worker is free again: the thread is its role's, or the call's that it
 * served before. rpcprof_end does it where it was not done. */
static inline void rpcprof_release(struct rpcprof_call *c, int64_t at)
{
	if (!rpcprof_live_(c) || !c->tid)
		return;
	c->rec.release = at > 0 ? at : rpcprof_now();
	rpcprof_unbind_call_(c);
}

/* Gives the reply's size. */
static inline void rpcprof_reply(struct rpcprof_call *c, size_t size)
{
	if (rpcprof_live_(c))
		c->rec.bytes_out = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
}

/* Puts a record in a kept place: a reader that sees the number change drops its copy. */
static inline void rpcprof_keep_(struct rpcprof_record *place, const struct rpcprof_record *rec)
{
	__atomic_store_n(&place->seq, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(&place->call, &rec->call, sizeof(*rec) - offsetof(struct rpcprof_record, call));
	__atomic_store_n(&place->seq, rec->seq, __ATOMIC_RELEASE);
}

/* Keeps a call if it is among its minute's slowest. */
static inline void rpcprof_keep_slow_(struct rpcprof_shard_ *s, const struct rpcprof_record *rec, int64_t took, int64_t ended)
{
	struct rpcprof_slow_ *slow = &s->slow[rec->method];
	int64_t minute = ended / INT64_C(60000000000) + 1;
	uint32_t i, least = 0;
	struct rpcprof_slow_set *set;
	if (minute < slow->minute) /* ended late: it counts with those of its end */
		minute = slow->minute;
	set = &s->sets[rec->method * RPCPROF_SLOW_MINUTES + (uint32_t)(minute % RPCPROF_SLOW_MINUTES)];
	if (minute != slow->minute) {
		for (i = 0; i < RPCPROF_SLOW_KEPT; i++)
			__atomic_store_n(&set->records[i].seq, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&set->minute, minute, __ATOMIC_RELEASE);
		slow->minute = minute;
		slow->used = 0;
	}
	if (slow->used < RPCPROF_SLOW_KEPT) {
		least = slow->used++;
	} else {
		for (i = 1; i < RPCPROF_SLOW_KEPT; i++)
			if (slow->took[i] < slow->took[least])
				least = i;
		if (took <= slow->took[least])
			return;
	}
	slow->took[least] = took;
	rpcprof_keep_(&set->records[least], rec);
}

/* Takes a shard, the thread's own where that is free. Its holder may have been
 * preempted, so nothing waits for one; NULL when all were busy again and again. */
static inline struct rpcprof_shard_ *rpcprof_lock_(struct rpcprof *p)
{
	uint32_t round, i, n = p->header->shard_cap, own;
	rpcprof_tid_(); /* which gives the thread its number */
	own = rpcprof_this_thread_.number;
	for (round = 0; round < RPCPROF_LOCK_ROUNDS_; round++) {
		for (i = 0; i < n; i++) {
			struct rpcprof_shard_ *s = &p->shards[(own + i) % n];
			if (!__atomic_load_n(&s->lock, __ATOMIC_RELAXED) && !__atomic_exchange_n(&s->lock, 1, __ATOMIC_ACQUIRE))
				return s;
		}
		if (round > RPCPROF_LOCK_ROUNDS_ / 2)
			sched_yield();
	}
	return NULL;
}

static inline void rpcprof_add_(struct rpcprof_histogram *h, int64_t ns)
{
	uint64_t *n = &h->words[1 + rpcprof_bucket_for(ns)];
	__atomic_store_n(&h->words[0], h->words[0] + (uint64_t)ns, __ATOMIC_RELAXED);
	__atomic_store_n(n, *n + 1, __ATOMIC_RELAXED);
}

/* Appends a finished call to a ring and the histograms. The head is stored last: a
 * record at or beyond it is never read, and one that the writer may have come round to
 * is discarded by the reader. */
static inline void rpcprof_record_(struct rpcprof *p, struct rpcprof_record *rec)
{
	struct rpcprof_shard_ *s = rpcprof_lock_(p);
	struct rpcprof_histogram *h;
	int64_t *t = rec->stamps, last = t[RPCPROF_RECV];
	uint64_t head;
	int i;
	if (!s) {
		rpcprof_count_(&p->header->lost_calls);
		return;
	}
	h = &s->hists[rec->method * RPCPROF_HISTS_PER_METHOD];
	for (i = RPCPROF_DEQUEUE; i < RPCPROF_SERVER_STAMPS; i++) {
		if (!t[i])
			continue;
		if (t[i] < last) /* a shared stamp may be a little older than the one before */
			t[i] = last;
		last = t[i];
		if (t[i - 1]) /* a stage counts only where both its stamps were taken */
			rpcprof_add_(&h[i - 1], t[i] - t[i - 1]);
	}
	rpcprof_add_(&h[RPCPROF_HIST_TOTAL], last - t[RPCPROF_RECV]);
	head = s->head->head;
	rec->seq = head + 1;
	/* The head before must be seen before the place it freed changes. */
	__atomic_thread_fence(__ATOMIC_RELEASE);
	s->ring[head & (p->header->ring_cap - 1)] = *rec;
	__atomic_store_n(&s->head->head, head + 1, __ATOMIC_RELEASE);
	rpcprof_keep_slow_(s, rec, last - t[RPCPROF_RECV], last);
	if (rec->outcome != RPCPROF_OK) {
		rpcprof_keep_(&s->failed[s->head->failed & (p->header->failed_cap - 1)], rec);
		__atomic_store_n(&s->head->failed, s->head->failed + 1, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&s->lock, 0, __ATOMIC_RELEASE);
}

/* Finishes a call: it is recorded and its slot is free. */
static inline void rpcprof_end(struct rpcprof_call *c, enum rpcprof_outcome outcome)
{
	struct rpcprof *p;
	int i;
	if (!rpcprof_live_(c))
		return;
	p = c->p;
	if (c->tid) {
		for (i = RPCPROF_SENT; i > 0 && !c->rec.stamps[i]; i--)
			;
		rpcprof_release(c, c->rec.stamps[i]);
	}
	c->live = 0;
	c->rec.outcome = (unsigned)outcome < RPCPROF_OUTCOMES ? (uint8_t)outcome : (uint8_t)RPCPROF_ERROR;
	__atomic_store_n(&c->slot->kind, RPCPROF_KIND_FREE, __ATOMIC_RELEASE);
	__atomic_store_n(&c->slot->call, 0, __ATOMIC_RELEASE);
	rpcprof_record_(p, &c->rec);
	rpcprof_give_(p, c);
}

#endif
