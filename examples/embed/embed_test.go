package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const library = "github.com/rpcprof/toolkit/rpcprof"

// A service that embeds the library, in a module of its own, gets it and
// golang.org/x/sys, nothing more. The service is this example.
func TestModules(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("builds a module: ", err)
	}
	checkout, err := filepath.Abs(filepath.Join("..", "..", "rpcprof"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// Nothing is downloaded: x/sys has the version that the library names, with its sums.
	_, require, _ := strings.Cut(read(filepath.Join(checkout, "go.mod")), "require ")
	sys, _, _ := strings.Cut(require, "\n")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": read("main.go"),
		"go.sum":  read(filepath.Join(checkout, "go.sum")),
		"go.mod": "module example.com/service\n\ngo 1.25.0\n\nrequire " + library + " v0.0.0\n\nrequire " + sys +
			" // indirect\n\nreplace " + library + " => " + checkout + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) []string {
		c := exec.Command("go", args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off")
		out, err := c.Output()
		if err != nil {
			if e, ok := err.(*exec.ExitError); ok {
				out = e.Stderr
			}
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
		return strings.Fields(string(out))
	}
	run("build", "-o", filepath.Join(dir, "service"), ".")
	want := []string{"example.com/service", library, "golang.org/x/sys"}
	if got := run("list", "-m", "-f", "{{.Path}}", "all"); !slices.Equal(got, want) {
		t.Errorf("the modules are %v, not %v", got, want)
	}
}

// At most three lines are the library's, and these are the ones that say so.
func TestLines(t *testing.T) {
	src, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, "main.go", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	// Whatever names the package, the Profiler or the field that takes it.
	var lines []int
	ast.Inspect(f, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		if id, ok := n.(*ast.Ident); ok && strings.Contains(strings.ToLower(id.Name), "prof") {
			lines = append(lines, files.Position(id.Pos()).Line)
		}
		return true
	})
	slices.Sort(lines)
	lines = slices.Compact(lines)
	if len(lines) == 0 || len(lines) > 3 {
		t.Errorf("lines %v are the library's", lines)
	}
	var marked []int
	for i, line := range strings.Split(string(src), "\n") {
		if strings.HasSuffix(line, " // rpcprof") {
			marked = append(marked, i+1)
		}
	}
	if !slices.Equal(lines, marked) {
		t.Errorf("lines %v are the library's, lines %v are marked so", lines, marked)
	}
}
