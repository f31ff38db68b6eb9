//go:build race

package rpcprof

// The race detector cannot know that a pinned P orders accesses, so shards are
// also locked when it watches.
const raceEnabled = true
