/* Many threads share few shards and few slots. The expected is said on standard
 * output; the segment is there to be read until standard input ends. */
#include "../rpcprof.h"

#include <sys/wait.h>

enum { THREADS = 8, ROUNDS = 2000, AT_ONCE = 3 };

void *unit_process(void); /* unit.cpp */

static struct rpcprof *p;
static uint32_t method, queue;
static uint64_t begun, refused;

/* Passes a call from the thread that begins it to the next one, as a queue does. */
static struct {
	pthread_mutex_t lock;
	struct rpcprof_call *call;
} handed = {PTHREAD_MUTEX_INITIALIZER, NULL};

static struct rpcprof_call *swap(struct rpcprof_call *c)
{
	pthread_mutex_lock(&handed.lock);
	struct rpcprof_call *other = handed.call;
	handed.call = c;
	pthread_mutex_unlock(&handed.lock);
	return other;
}

static void *run(void *unused)
{
	struct rpcprof_role *role = rpcprof_worker(p, queue);
	for (int i = 0; i < ROUNDS; i++) {
		struct rpcprof_call *calls[AT_ONCE];
		for (int k = 0; k < AT_ONCE; k++) {
			calls[k] = rpcprof_begin(p, method, 0, 0);
			__atomic_fetch_add(calls[k] ? &begun : &refused, 1, __ATOMIC_RELAXED);
		}
		calls[0] = swap(calls[0]);
		for (int k = 0; k < AT_ONCE; k++) {
			rpcprof_start(calls[k], role, 0);
			rpcprof_stamp(calls[k], RPCPROF_HANDLER, 0);
		}
		for (int k = AT_ONCE - 1; k >= 0; k--) {
			rpcprof_stamp(calls[k], RPCPROF_HANDLED, 0);
			rpcprof_release(calls[k], 0);
			rpcprof_end(calls[k], i % 100 ? RPCPROF_OK : RPCPROF_ERROR);
		}
	}
	rpcprof_role_close(role);
	return unused;
}

/* A child of fork touches nothing of its parent's, and can have its own. */
static int child(struct rpcprof_call *call)
{
	rpcprof_stamp(call, RPCPROF_HANDLER, 1);
	rpcprof_end(call, RPCPROF_OK);
	if (rpcprof_begin(p, method, 0, 0) || rpcprof_conn(p, 0) || rpcprof_reader(p, 0))
		return 1;
	struct rpcprof *own = rpcprof_open("child", NULL);
	struct rpcprof_call *c = rpcprof_begin(own, 0, 0, 0);
	if (!c || c->rec.recv_tid != (uint32_t)getpid() || own->header->pid != (uint32_t)getpid())
		return 2;
	rpcprof_end(c, RPCPROF_OK);
	return 0;
}

static uint32_t leads_to(uint32_t tid)
{
	struct rpcprof_bucket *b = &p->index[rpcprof_bucket_of(tid, p->header->index_bits)];
	for (int i = 0; i < RPCPROF_BUCKET_ENTRIES; i++)
		if (b->entries[i].g == tid)
			return b->entries[i].slot;
	return UINT32_MAX;
}

/* A handler that calls its own server, and is suspended and resumed. */
static int nested(void)
{
	uint32_t tid = (uint32_t)getpid();
	struct rpcprof_role *role = rpcprof_worker(p, queue);
	struct rpcprof_call *a = rpcprof_begin(p, method, 0, 0), *b = rpcprof_begin(p, method, 0, 0);
	rpcprof_start(a, role, 0);
	rpcprof_stamp(a, RPCPROF_HANDLER, 0);
	int64_t dequeued = a->rec.stamps[RPCPROF_DEQUEUE];
	rpcprof_start(b, NULL, 0);
	int ok = leads_to(tid) == b->number;
	rpcprof_end(b, RPCPROF_OK);
	ok = ok && leads_to(tid) == a->number;
	rpcprof_release(a, 0);
	ok = ok && leads_to(tid) == role->index;
	rpcprof_start(a, role, 0);
	ok = ok && leads_to(tid) == a->number && a->slot->stage == RPCPROF_STAGE_HANDLER && a->rec.stamps[RPCPROF_DEQUEUE] == dequeued;
	rpcprof_end(a, RPCPROF_OK);
	rpcprof_role_close(role);
	return ok && leads_to(tid) == UINT32_MAX;
}

int main(void)
{
	/* Nothing of this may do anything. */
	rpcprof_close(NULL);
	rpcprof_conn_close(NULL, rpcprof_conn(NULL, 0));
	rpcprof_role_close(rpcprof_worker(NULL, rpcprof_queue(NULL)));
	rpcprof_role_close(rpcprof_reader(NULL, 0));
	rpcprof_role_close(rpcprof_writer(NULL, 0));
	struct rpcprof_call *none = rpcprof_begin(NULL, rpcprof_method(NULL, "a"), 0, 0);
	rpcprof_request(none, 1, 1, 1, 0, 1);
	rpcprof_enqueue(none, 1);
	rpcprof_trace(none, NULL, NULL);
	rpcprof_start(none, NULL, 0);
	rpcprof_stamp(none, RPCPROF_SENT, 0);
	rpcprof_reply(none, 1);
	rpcprof_release(none, 0);
	rpcprof_end(none, RPCPROF_OK);

	struct rpcprof_options o = {2, 4, 32, 2, 2, 64};
	if (!(p = rpcprof_open("threads", &o)) || unit_process() != &rpcprof_this_process_)
		return 1;
	method = rpcprof_method(p, "t.T/M");
	if (rpcprof_method(p, "t.T/Beyond") != 0) /* the table has room for two */
		return 2;
	queue = rpcprof_queue(p);
	if (!nested())
		return 6;
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, run, NULL))
			return 3;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	rpcprof_end(swap(NULL), RPCPROF_OK);

	struct rpcprof_call *call = rpcprof_begin(p, method, 0, 0);
	int status = -1;
	pid_t pid = fork();
	if (pid == 0)
		_exit(child(call));
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return 4;
	rpcprof_end(call, RPCPROF_CANCELLED);
	printf("begun %llu refused %llu\n", (unsigned long long)begun + 3, (unsigned long long)refused);
	fflush(stdout);
	return getchar() == EOF ? 0 : 5;
}
