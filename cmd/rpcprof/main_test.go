package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/rpcprof/toolkit/rpcprof/blame"
)

// The demo starts this program again under its hidden commands.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "demo-") {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// command runs the program and gives its exit code and what it wrote.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	o, e := open("out"), open("err")
	code = run(args, o, e)
	_, _ = o.Close(), e.Close()
	out, _ := os.ReadFile(o.Name())
	errOut, _ := os.ReadFile(e.Name())
	return code, string(out), string(errOut)
}

// Wrong usage is exit code 2, what cannot be done is 1 and one line.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--no-such-flag"}, exitUsage, "unknown flag"},
		{[]string{"attach"}, exitUsage, "pid"},
		{[]string{"attach", "one"}, exitUsage, "pid"},
		{[]string{"attach", "1", "-o", "x.txt"}, exitUsage, ".pb.gz"},
		{[]string{"attach", "1", "--for=-1s"}, exitUsage, "above zero"},
		{[]string{"demo", "--fault", "gremlin"}, exitUsage, "gremlin"},
		{[]string{"attach", "4194305"}, exitFailed, "no process has the id 4194305"},
		{[]string{"top", "4194305"}, exitFailed, "no such process"},
		{[]string{"top", fmt.Sprint(os.Getpid())}, exitFailed, "does not embed rpcprof"},
	} {
		code, out, errOut := command(t, c.args...)
		if code != c.code || !strings.Contains(errOut, c.says) {
			t.Errorf("%v: exit %d, %q; want %d and %q", c.args, code, errOut, c.code, c.says)
		}
		if out != "" && c.code != 0 && !strings.Contains(out, "Usage") {
			t.Errorf("%v: writes %q to standard output", c.args, out)
		}
		if c.code == exitFailed && strings.Count(errOut, "\n") != 1 {
			t.Errorf("%v: more than one line: %q", c.args, errOut)
		}
	}
}

// The demo's first verdict is true, its sums are exact, and it leaves nothing.
func TestDemo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // another demo may run beside this one
	code, out, errOut := command(t, "demo", "--fault", "pool", "--for", "3s", "--json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	var r blame.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Verdicts) == 0 {
		t.Fatalf("no verdict; methods %+v, limits %q", r.Methods, r.Limits)
	}
	if v := r.Verdicts[0]; v.Stage != "queue" || v.Cause != "behind" || v.Culprit != "demo.Store/Report" {
		t.Errorf("first verdict: %s", v.Sentence)
	}
	for _, m := range r.Methods {
		for name, s := range m.Slow.Stages {
			var sum int64
			for _, ns := range s.Causes {
				sum += ns
			}
			if sum != s.WallNS {
				t.Errorf("%s %s: causes are %d of %d ns", m.Method, name, sum, s.WallNS)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "rpcprof-demo-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if ps, err := exec.Command("pgrep", "-f", "demo-(server|load|hog)", "-P", fmt.Sprint(os.Getpid())).Output(); err == nil {
		t.Errorf("still running: %s", ps)
	}
}

// What attach writes opens in go tool pprof; a name that cannot be written is one
// line, and the report is not lost for it.
func TestWriteFile(t *testing.T) {
	code, out, errOut := command(t, "demo", "--fault", "sleep", "--for", "1s", "--json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	var r blame.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "x.pb.gz")
	if err := writeFile(name, r); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := profile.Parse(bytes.NewReader(b)); err != nil {
		t.Error(err)
	}
	if err := writeFile(filepath.Join(t.TempDir(), "no", "x.json"), r); err == nil || !strings.Contains(err.Error(), "cannot write") {
		t.Errorf("error is %v", err)
	}
}

// Doctor says something about each part, and what to do where it is not well.
func TestDoctor(t *testing.T) {
	code, out, _ := command(t, "doctor", "--json", "4194305")
	var d struct {
		Checks []struct {
			Name, Found, Do string
			OK              bool
		}
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	for _, c := range d.Checks {
		if c.Found == "" || !c.OK && c.Do == "" {
			t.Errorf("check %+v says too little", c)
		}
	}
	if n := len(d.Checks); n < 6 || d.Checks[n-1].OK {
		t.Errorf("checks: %+v", d.Checks)
	}
}
