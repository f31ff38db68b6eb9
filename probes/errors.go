package probes

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
)

// ErrPrivilege: the kernel refuses BPF to this user.
var ErrPrivilege = errors.New("kernel evidence needs root, or CAP_BPF and CAP_PERFMON")

// ErrNamespace: process ids here are not those of the kernel's events.
var ErrNamespace = errors.New("rpcprof runs in a PID namespace, whose process ids the kernel's events do not bear; run it in the host's (docker run --pid=host, hostPID: true)")

// KernelError names what this kernel lacks. Match with errors.As.
type KernelError struct {
	Feature string // what is missing
	Since   string // the first kernel that has it, such as "6.3"; empty where it is a build option
	Err     error
}

func (e *KernelError) Error() string {
	if e.Since == "" {
		return "this kernel lacks " + e.Feature
	}
	return fmt.Sprintf("this kernel lacks %s (Linux %s and newer have it)", e.Feature, e.Since)
}

func (e *KernelError) Unwrap() error { return e.Err }

// explain turns what loading a BPF program returned into one line.
func explain(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return ErrPrivilege
	case errors.Is(err, ebpf.ErrNotSupported):
		return &KernelError{Feature: "a BPF feature that the probes need", Since: "5.14", Err: err}
	}
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		return &KernelError{Feature: "what the probes need to pass its BPF verifier", Since: "5.14", Err: err}
	}
	return err
}
