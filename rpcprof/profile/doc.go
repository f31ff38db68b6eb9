// Package profile is the joined data: calls × stages × causes.
//
// Evidence is what was seen: finished and unfinished calls from the segment, exact
// intervals and samples from the probes. Join partitions every stage of every call
// into causes and gives a Profile, the one type that verdicts and exporters take.
//
// What lives here: the types, the join, and the sums. What may not come in: where
// evidence comes from, what is to blame, and how anything is shown. Times are
// CLOCK_MONOTONIC nanoseconds.
package profile
