//go:build !race

package segment

func copyShared(to, from []byte) int { return copy(to, from) }
