//go:build ignore

// The server's side of package pipeline: a thread reads each connection, a pool of
// workers runs the handlers, and a thread writes each connection, all replies that have
// gathered in one system call. Here is every call to rpcprof but those of main.
#pragma once

#include "rpcprof.h"

#include "frame.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <netinet/tcp.h>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

constexpr size_t max_waiting = 1024; // requests in the queue: a full one stops the readers
constexpr size_t max_replies = 4096; // replies that wait for a writer: more hold the workers
constexpr int max_connections = 1024;

inline rpcprof *prof;

// A connection's socket, and the replies on their way to its writer.
struct connection {
	struct owed {
		rpcprof_call *call;
		rpcprof_outcome outcome;
	};

	explicit connection(int fd) : fd(fd), id(rpcprof_conn(prof, fd)) {}
	~connection()
	{
		close(fd);
		rpcprof_conn_close(prof, id);
	}
	connection(const connection &) = delete;
	connection &operator=(const connection &) = delete;

	// Hands a reply to the writer, and waits for room before: the worker is not free
	// meanwhile, so its call is released in here, and before the writer can have it.
	void push(const std::string &bytes, rpcprof_call *call, rpcprof_outcome outcome)
	{
		std::unique_lock<std::mutex> hold(mu);
		room.wait(hold, [&] { return closed || replies < max_replies; });
		rpcprof_reply(call, bytes.size());
		rpcprof_release(call, 0);
		if (closed) {
			rpcprof_end(call, RPCPROF_CANCELLED);
			return;
		}
		out += bytes;
		replies++;
		if (call)
			calls.push_back({call, outcome});
		wake.notify_one();
	}

	void fail()
	{
		std::lock_guard<std::mutex> hold(mu);
		closed = true;
		shutdown(fd, SHUT_RDWR);
		room.notify_all();
		wake.notify_all();
	}

	const int fd;
	const uint32_t id;
	std::mutex mu;
	std::condition_variable room, wake;
	std::string out;
	std::vector<owed> calls;
	size_t replies = 0;
	bool closed = false;
};

struct method {
	uint32_t id;
	std::function<std::string(std::string_view)> handler;
};

struct job {
	std::shared_ptr<connection> conn;
	const method *m;
	uint64_t seq;
	int64_t expires; // by rpcprof_now, 0 never
	std::string payload;
	rpcprof_call *call;
};

// The bounded queue between readers and workers.
struct queue {
	void push(job j)
	{
		std::unique_lock<std::mutex> hold(mu);
		room.wait(hold, [&] { return jobs.size() < max_waiting; });
		jobs.push_back(std::move(j));
		wake.notify_one();
	}
	job pop()
	{
		std::unique_lock<std::mutex> hold(mu);
		wake.wait(hold, [&] { return !jobs.empty(); });
		job j = std::move(jobs.front());
		jobs.pop_front();
		room.notify_one();
		return j;
	}

	std::mutex mu;
	std::condition_variable room, wake;
	std::deque<job> jobs;
	uint32_t id = 0;
};

inline queue waiting;
inline std::map<std::string, method, std::less<>> methods;
inline std::atomic<int> connections{0};

inline void name_thread(const char *name) { pthread_setname_np(pthread_self(), name); }

inline void serve(job &j, const rpcprof_role *role)
{
	int64_t now = rpcprof_now();
	rpcprof_start(j.call, role, now);
	if (j.expires && now >= j.expires) {
		j.conn->push(frame::error(j.seq, frame::expired, "deadline passed before the handler ran"), j.call, RPCPROF_EXPIRED);
		return;
	}
	std::string reply;
	rpcprof_outcome outcome = RPCPROF_OK;
	rpcprof_stamp(j.call, RPCPROF_HANDLER, now); // nothing is decoded in between
	try {
		std::string value = j.m->handler(j.payload);
		rpcprof_stamp(j.call, RPCPROF_HANDLED, 0);
		reply = frame::reply(j.seq, value);
	} catch (const std::logic_error &e) {
		rpcprof_stamp(j.call, RPCPROF_HANDLED, 0);
		reply = frame::error(j.seq, frame::handler_error, e.what());
		outcome = RPCPROF_ERROR;
	} catch (const std::exception &e) {
		rpcprof_stamp(j.call, RPCPROF_HANDLED, 0);
		reply = frame::error(j.seq, frame::handler_threw, e.what());
		outcome = RPCPROF_ERROR;
	}
	j.conn->push(reply, j.call, outcome);
}

inline void work()
{
	name_thread("worker");
	rpcprof_role *role = rpcprof_worker(prof, waiting.id);
	for (;;) {
		job j = waiting.pop();
		serve(j, role);
	}
}

// Begins all requests of a read before the first is handed on, so that one which waits
// behind the others can be seen waiting. Gives the bytes that were cut, -1 on a
// malformed frame.
inline ssize_t dispatch(const std::shared_ptr<connection> &conn, std::string_view bytes, int64_t offset, uint32_t read)
{
	int64_t now = rpcprof_now();
	std::vector<frame::request> requests;
	size_t at = 0;
	for (frame::request r;; at += r.size) {
		frame::cut_result got = frame::cut(bytes.substr(at), r);
		if (got == frame::cut_result::malformed)
			return -1;
		if (got == frame::cut_result::partial)
			break;
		requests.push_back(r);
	}
	std::vector<job> jobs;
	uint32_t pos = 0;
	for (const frame::request &r : requests) {
		auto m = methods.find(r.name);
		if (m == methods.end()) { // not recorded: a peer could fill the method table
			conn->push(frame::error(r.seq, frame::unknown_method, "unknown method"), nullptr, RPCPROF_ERROR);
		} else {
			rpcprof_call *call = rpcprof_begin(prof, m->second.id, conn->id, now);
			rpcprof_request(call, r.size, offset, read, pos, uint32_t(requests.size()));
			rpcprof_enqueue(call, waiting.id);
			int64_t expires = r.deadline && r.deadline < INT64_MAX - now ? now + r.deadline : 0;
			jobs.push_back({conn, &m->second, r.seq, expires, std::string(r.payload), call});
		}
		offset += int64_t(r.size);
		pos++;
	}
	for (job &j : jobs)
		waiting.push(std::move(j));
	return ssize_t(at);
}

inline void read_requests(const std::shared_ptr<connection> &conn)
{
	name_thread("reader");
	rpcprof_role *role = rpcprof_reader(prof, conn->id);
	std::string buf(64 << 10, 0);
	size_t have = 0;
	int64_t offset = 0; // of buf's first byte in all that was received
	for (uint32_t read = 1;; read++) {
		if (have == buf.size())
			buf.resize(frame::length_size + frame::max_size); // which holds any frame
		ssize_t n = recv(conn->fd, &buf[have], buf.size() - have, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		have += size_t(n);
		n = dispatch(conn, std::string_view(buf.data(), have), offset, read);
		if (n < 0)
			break;
		memmove(&buf[0], &buf[size_t(n)], have - size_t(n));
		have -= size_t(n);
		offset += n;
	}
	rpcprof_role_close(role);
}

inline bool send_all(int fd, std::string_view b)
{
	while (!b.empty()) {
		ssize_t n = send(fd, b.data(), b.size(), MSG_NOSIGNAL);
		if (n < 0 && errno != EINTR)
			return false;
		b.remove_prefix(n < 0 ? 0 : size_t(n));
	}
	return true;
}

inline void write_replies(const std::shared_ptr<connection> &conn)
{
	name_thread("writer");
	rpcprof_role *role = rpcprof_writer(prof, conn->id);
	std::string out;
	std::vector<connection::owed> calls;
	for (bool ok = true; ok;) {
		{
			std::unique_lock<std::mutex> hold(conn->mu);
			conn->wake.wait(hold, [&] { return conn->closed || conn->replies; });
			out.swap(conn->out);
			calls.swap(conn->calls);
			conn->replies = 0;
			ok = !conn->closed;
			conn->room.notify_all();
		}
		if (ok) {
			int64_t begin = rpcprof_now();
			for (auto &o : calls)
				rpcprof_stamp(o.call, RPCPROF_WRITE, begin);
			if ((ok = send_all(conn->fd, out))) {
				int64_t sent = rpcprof_now();
				for (auto &o : calls)
					rpcprof_stamp(o.call, RPCPROF_SENT, sent);
			} else {
				conn->fail();
			}
		}
		for (auto &o : calls)
			rpcprof_end(o.call, ok ? o.outcome : RPCPROF_CANCELLED);
		out.clear();
		calls.clear();
	}
	rpcprof_role_close(role);
}

inline void serve_connection(int fd)
{
	auto conn = std::make_shared<connection>(fd);
	try {
		std::thread writer(write_replies, conn);
		read_requests(conn);
		conn->fail();
		writer.join();
	} catch (const std::system_error &) { // no thread could be had
	}
	connections--;
}

inline void start(int fd)
{
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connections++ < max_connections) {
		try {
			std::thread(serve_connection, fd).detach();
			return;
		} catch (const std::system_error &) {
		}
	}
	connections--;
	close(fd);
}
