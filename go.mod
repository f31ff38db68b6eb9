module github.com/rpcprof/toolkit

go 1.25.0
