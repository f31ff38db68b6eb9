//go:build ignore

// A pipelined RPC server that shows its calls to rpcprof. It speaks the protocol of
// package pipeline; README.md says how to build, call and look at it.
#include "pipeline.hpp"
#include "store.hpp"

#include <csignal>
#include <cstdio>
#include <poll.h>
#include <sys/signalfd.h>

namespace {

// Listens on an address such as 127.0.0.1:0 and says on standard output where.
int listen_on(const std::string &addr)
{
	size_t colon = addr.rfind(':');
	sockaddr_in in{};
	in.sin_family = AF_INET;
	if (colon == std::string::npos || inet_pton(AF_INET, addr.substr(0, colon).c_str(), &in.sin_addr) != 1) {
		fprintf(stderr, "server: --addr wants an IPv4 address and a port, not %s\n", addr.c_str());
		return -1;
	}
	in.sin_port = htons(uint16_t(atoi(addr.c_str() + colon + 1)));
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	socklen_t len = sizeof(in);
	if (fd < 0 || bind(fd, reinterpret_cast<sockaddr *>(&in), len) || listen(fd, 128) ||
	    getsockname(fd, reinterpret_cast<sockaddr *>(&in), &len)) {
		perror("server: listen");
		return -1;
	}
	char ip[INET_ADDRSTRLEN];
	printf("ready %s:%u\n", inet_ntop(AF_INET, &in.sin_addr, ip, sizeof(ip)), unsigned(ntohs(in.sin_port)));
	fflush(stdout);
	return fd;
}

// Accepts connections until SIGINT or SIGTERM comes.
void accept_until(int listener, int signals)
{
	for (;;) {
		pollfd on[2] = {{listener, POLLIN, 0}, {signals, POLLIN, 0}};
		if (poll(on, 2, -1) < 0)
			continue;
		if (on[1].revents)
			return;
		int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
		if (fd >= 0)
			start(fd);
		else
			std::this_thread::sleep_for(std::chrono::milliseconds(5)); // descriptors are used up, perhaps
	}
}

int usage()
{
	fprintf(stderr, "usage: server [--addr IP:PORT] [--workers N] [--fault lock|sleep|pool] [--fault-ms N]\n");
	return 2;
}

} // namespace

int main(int argc, char **argv)
{
	std::string addr = "127.0.0.1:7070", name;
	int workers = 4, ms = 10;
	for (int i = 1; i < argc; i += 2) {
		std::string_view option = argv[i];
		if (i + 1 == argc)
			return usage();
		if (option == "--addr")
			addr = argv[i + 1];
		else if (option == "--workers")
			workers = atoi(argv[i + 1]);
		else if (option == "--fault")
			name = argv[i + 1];
		else if (option == "--fault-ms")
			ms = atoi(argv[i + 1]);
		else
			return usage();
	}
	std::map<std::string, fault> faults = {{"", fault::none}, {"lock", fault::lock}, {"sleep", fault::sleep}, {"pool", fault::pool}};
	if (workers < 1 || workers > 1024 || ms < 0 || !faults.count(name))
		return usage();

	sigset_t stop; // blocked before any thread is made, so that all have it blocked
	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &stop, nullptr);
	int signals = signalfd(-1, &stop, SFD_CLOEXEC);

	store values(faults[name], std::chrono::milliseconds(ms));
	prof = rpcprof_open("cpp-store", nullptr);
	if (!prof)
		fprintf(stderr, "server: no segment could be made; calls are not recorded\n");
	waiting.id = rpcprof_queue(prof);
	auto add = [](const char *method_name, auto handler) { methods[method_name] = {rpcprof_method(prof, method_name), handler}; };
	add("cpp.Store/Get", [&](std::string_view key) { return values.get(key); });
	add("cpp.Store/Put", [&](std::string_view pair) { return values.put(pair); });
	for (int i = 0; i < workers; i++)
		std::thread(work).detach();
	int listener = listen_on(addr);
	if (listener < 0)
		_exit(1);
	accept_until(listener, signals);
	rpcprof_close(prof);
	_exit(0); // no destructors: threads are using what they would take down
}
