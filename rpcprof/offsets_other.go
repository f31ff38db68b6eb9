//go:build !linux || !(amd64 || arm64)

package rpcprof

import "errors"

func findOffsets() (*offsets, error) {
	return nil, errors.New("goroutine offsets are looked for on Linux with amd64 or arm64 only")
}
