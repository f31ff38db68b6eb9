//go:build ignore

// The frames of package pipeline (rpcprof/pipeline/doc.go), as much as a server needs.
// Nothing that a peer sends is believed before it is checked.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace frame {

constexpr size_t max_size = 1 << 20; // bytes after the length field
constexpr size_t length_size = 4, head_size = 9, max_name = 255;

enum kind : uint8_t { request_kind = 1, reply_kind = 2, error_kind = 3 };

// Codes of an error frame (rpcprof/pipeline/errors.go).
enum code : uint8_t { unknown_method = 1, handler_error = 2, handler_threw = 3, expired = 4 };

// A request; its parts alias the buffer it was cut from.
struct request {
	uint64_t seq = 0;
	std::string_view name, payload;
	int64_t deadline = 0; // nanoseconds left when it was sent, 0 none
	size_t size = 0;      // in bytes, with the length field
};

enum class cut_result { whole, partial, malformed };

template <class T> T get(const char *b)
{
	T v;
	memcpy(&v, b, sizeof(v)); // rpcprof.h refuses machines that are not little-endian
	return v;
}

template <class T> void put(std::string &out, T v) { out.append(reinterpret_cast<const char *>(&v), sizeof(v)); }

// Cuts the first request from b.
inline cut_result cut(std::string_view b, request &r)
{
	if (b.size() < length_size)
		return cut_result::partial;
	size_t n = get<uint32_t>(b.data());
	if (n > max_size || n < head_size + 2)
		return cut_result::malformed;
	if (b.size() < length_size + n)
		return cut_result::partial;
	r.size = length_size + n;
	r.seq = get<uint64_t>(b.data() + 4);
	if (b[12] != request_kind)
		return cut_result::malformed;
	size_t name = get<uint16_t>(b.data() + 13);
	std::string_view rest = b.substr(15, r.size - 15);
	if (name == 0 || name > max_name || rest.size() < name + 8)
		return cut_result::malformed;
	r.name = rest.substr(0, name);
	r.deadline = get<int64_t>(rest.data() + name);
	r.payload = rest.substr(name + 8);
	return r.deadline < 0 ? cut_result::malformed : cut_result::whole;
}

inline std::string reply(uint64_t seq, std::string_view payload)
{
	std::string out;
	put(out, uint32_t(head_size + payload.size()));
	put(out, seq);
	put(out, reply_kind);
	return out.append(payload);
}

inline std::string error(uint64_t seq, code c, std::string_view message)
{
	message = message.substr(0, 1024);
	std::string out;
	put(out, uint32_t(head_size + 1 + message.size()));
	put(out, seq);
	put(out, error_kind);
	put(out, c);
	return out.append(message);
}

} // namespace frame
