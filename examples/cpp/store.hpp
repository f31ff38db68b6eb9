//go:build ignore

// What the server serves: a small store, and the faults that can be put into it.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

enum class fault { none, lock, sleep, pool };

class store {
public:
	store(fault f, std::chrono::milliseconds length) : fault_(f), length_(length) { calibrate(); }

	// Gives the value of a key after some 100 µs of work. The handlers are not
	// inlined, so that they stand in stacks by their names.
	__attribute__((noinline)) std::string get(std::string_view key)
	{
		work(rounds_);
		std::lock_guard<std::mutex> hold(mu_);
		auto it = values_.find(std::string(key));
		if (it == values_.end())
			throw std::invalid_argument("no such key");
		return it->second;
	}

	// Takes "key=value" and gives nothing.
	__attribute__((noinline)) std::string put(std::string_view pair)
	{
		size_t at = pair.find('=');
		if (at == 0 || at == std::string_view::npos)
			throw std::invalid_argument("want key=value");
		bool tenth = puts_.fetch_add(1) % 10 == 9;
		if (fault_ == fault::pool || (fault_ == fault::sleep && tenth))
			std::this_thread::sleep_for(length_);
		std::lock_guard<std::mutex> hold(mu_);
		std::string key(pair.substr(0, at));
		if (values_.size() >= max_keys && !values_.count(key))
			throw std::length_error("the store is full");
		values_[key] = pair.substr(at + 1);
		if (fault_ == fault::lock && tenth)
			std::this_thread::sleep_for(length_); // as if it wrote to a disk: all others wait for the mutex
		return {};
	}

private:
	static constexpr size_t max_keys = 10000;

	static void work(unsigned rounds)
	{
		static thread_local volatile uint64_t sink;
		uint64_t x = sink;
		for (unsigned i = 0; i < rounds; i++)
			x = (x ^ i) * 0x9E3779B97F4A7C15;
		sink = x;
	}

	// Measured once, so that a call costs the same CPU time whatever else the machine does.
	void calibrate()
	{
		using clock = std::chrono::steady_clock;
		constexpr unsigned some = 20000;
		auto best = clock::duration::max();
		for (int i = 0; i < 20; i++) {
			auto begin = clock::now();
			work(some);
			best = std::min(best, clock::now() - begin);
		}
		auto ns = std::max<long long>(std::chrono::nanoseconds(best).count(), 1);
		rounds_ = unsigned(some * 100000LL / ns);
	}

	fault fault_;
	std::chrono::milliseconds length_;
	unsigned rounds_ = 0;
	std::atomic<unsigned> puts_{0};
	std::mutex mu_;
	std::unordered_map<std::string, std::string> values_;
};
