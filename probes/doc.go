// Package probes looks at a process from outside: it reads the segment the
// process publishes, the kernel's events about it, the state of its goroutines and
// /proc, and gives all of it as profile.Evidence and, joined, as a profile.Profile.
//
// Each source is optional. What cannot be had is named in the profile's Limits,
// with what would bring it, and the rest goes on.
//
// What may not come in: RPC frameworks, verdicts, output. Everything read from
// another process is bounded and checked.
package probes
