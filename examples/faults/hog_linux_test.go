package faults

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHogProcess is the process that TestHog starts.
func TestHogProcess(t *testing.T) {
	if os.Getenv("FAULTS_TEST_HOG") == "" {
		t.Skip("is run by TestHog")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !set.IsSet(cpu) {
		cpu++
	}
	before := cpuTime()
	if err := Hog(ctx, HogOptions{CPU: cpu}); err != nil {
		t.Fatal(err)
	}
	if used := cpuTime() - before; used < HogBurst || used > time.Second {
		t.Errorf("burnt %v in two seconds", used)
	}
}

func TestHog(t *testing.T) {
	if HogProcesses() < 1 {
		t.Error("no hogs are needed")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHogProcess$", "-test.v")
	cmd.Env = append(os.Environ(), "FAULTS_TEST_HOG=1")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	named := false
	for end := time.Now().Add(3 * time.Second); !named && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		comm, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/comm")
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		named = strings.TrimSpace(string(comm)) == HogName
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	if !named {
		t.Errorf("the process is not called %q", HogName)
	}
}
