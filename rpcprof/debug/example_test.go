package debug_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/debug"
)

func Example() {
	prof := rpcprof.New(rpcprof.Config{Service: "orders"})
	defer prof.Close()

	mux := http.NewServeMux()
	mux.Handle("/debug/rpcprof/", http.StripPrefix("/debug/rpcprof", debug.Handler(prof, debug.Options{})))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/rpcprof/json", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 application/json
}
