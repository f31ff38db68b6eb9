package profile

import "testing"

func TestLocation(t *testing.T) {
	kernel := Frame{Func: "futex_wait", Kernel: true}
	libc := Frame{Func: "pthread_mutex_lock", Module: "libc.so.6"}
	for name, c := range map[string]struct {
		stack Stack
		want  string
	}{
		"nothing":      {nil, ""},
		"kernel alone": {Stack{kernel}, ""},
		"the owner's line, not the library's": {Stack{kernel, {Func: "sync.(*Mutex).Lock", File: "/go/sync/mutex.go", Line: 7},
			{Func: "example.org/store.Put", File: "/src/store/store.go", Line: 88}, {Func: "main.main", File: "/src/main.go", Line: 3}}, "store.go:88"},
		"a function without a line": {Stack{kernel, libc, {Func: "orders::Store::Put"}, {Func: "main"}}, "orders::Store::Put"},
		"a static executable": {Stack{kernel, {Func: "__lll_lock_wait"}, {Func: "pthread_mutex_lock"}, {Func: "std::mutex::lock"},
			{Func: "orders::Store::Put"}}, "orders::Store::Put"},
		"a line is better than a function": {Stack{{Func: "c_put"}, {Func: "example.org/store.Put", File: "/src/store/store.go", Line: 88}}, "store.go:88"},
		"no name at all":                   {Stack{{Func: "[unknown]"}, {Func: "[libc.so.6]", Module: "libc.so.6"}}, ""},
	} {
		if got := Location(c.stack); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
