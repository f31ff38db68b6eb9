// Package bpf holds the BPF programs, their compiled objects and the bindings
// generated from them. The objects are committed, so that building the toolkit
// needs no C compiler; CI compiles them again and compares.
//
// The programs are dual licensed, BSD and GPL. What may not come in: logic. What
// an event means is decided by package probes.
package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror" -target amd64 -type event -type total -type pending Programs rpcprof.bpf.c -- -I/usr/include/x86_64-linux-gnu
