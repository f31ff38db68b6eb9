package symbols

import (
	"bufio"
	"errors"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// ErrKernelHidden is returned when the kernel shows no addresses of its
// symbols: it takes CAP_SYSLOG or a lower kernel.kptr_restrict.
var ErrKernelHidden = errors.New("symbols: the kernel hides its addresses (kernel.kptr_restrict)")

// Limits on the kernel's symbols: there are about 200 000, none reaches over
// maxKernelSize.
const (
	maxKernelSyms  = 2 << 20
	maxKernelBytes = 512 << 20
	maxKernelSize  = 16 << 20
)

// Kernel resolves addresses of the kernel and its modules. It is safe for
// concurrent use.
type Kernel struct {
	syms []kernelSym
	text string // all names
}

type kernelSym struct {
	addr uint64
	name uint32 // in text
	size uint16
	rank uint8 // among names of one address, lower is better
}

// OpenKernel reads the kernel's symbols as they are now; modules loaded later
// are not in it.
func OpenKernel() (*Kernel, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readKernel(f)
}

func readKernel(r io.Reader) (*Kernel, error) {
	k := &Kernel{}
	var text strings.Builder
	some := false
	sc := bufio.NewScanner(io.LimitReader(r, maxKernelBytes))
	for sc.Scan() && len(k.syms) < maxKernelSyms {
		// address type name, and for a module's symbol a tab and [module]
		hex, rest, _ := strings.Cut(sc.Text(), " ")
		typ, name, _ := strings.Cut(rest, " ")
		name, _, _ = strings.Cut(name, "\t")
		addr, err := strconv.ParseUint(hex, 16, 64)
		if err != nil || len(name) == 0 || len(name) > 1024 || !strings.Contains("tTwW", typ) || typ == "" {
			continue
		}
		some = true
		if addr == 0 {
			continue
		}
		rank := min(uint8(len(name)-len(strings.TrimLeft(name, "_"))), 15)
		if typ != "T" {
			rank += 16 // the global name is the one people know
		}
		k.syms = append(k.syms, kernelSym{addr, uint32(text.Len()), uint16(len(name)), rank})
		text.WriteString(name)
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	if len(k.syms) == 0 {
		if some {
			return nil, ErrKernelHidden
		}
		return nil, errors.New("symbols: no kernel symbols")
	}
	k.text = text.String()
	sort.SliceStable(k.syms, func(i, j int) bool {
		a, b := k.syms[i], k.syms[j]
		return a.addr < b.addr || a.addr == b.addr && a.rank < b.rank
	})
	// One name for each address.
	kept := k.syms[:1]
	for _, s := range k.syms[1:] {
		if s.addr != kept[len(kept)-1].addr {
			kept = append(kept, s)
		}
	}
	k.syms = kept
	return k, nil
}

// Frame names the kernel function at an address.
func (k *Kernel) Frame(pc uint64) profile.Frame {
	i := sort.Search(len(k.syms), func(i int) bool { return k.syms[i].addr > pc })
	if i == 0 || pc-k.syms[i-1].addr >= maxKernelSize {
		return profile.Frame{Func: unknown, Kernel: true}
	}
	s := k.syms[i-1]
	return profile.Frame{Func: plainName(k.text[s.name : s.name+uint32(s.size)]), Kernel: true}
}

// plainName strips what compilers add to the name of a function they have
// split, cloned or specialised.
func plainName(name string) string {
	for {
		i := strings.LastIndexByte(name, '.')
		if i <= 0 {
			return name
		}
		last := name[i+1:]
		if last == "cold" {
			name = name[:i]
			continue
		}
		if _, err := strconv.ParseUint(last, 10, 64); err != nil {
			return name
		}
		j := strings.LastIndexByte(name[:i], '.')
		if j <= 0 {
			return name
		}
		switch name[j+1 : i] {
		case "isra", "constprop", "part", "llvm", "lto_priv", "cold":
			name = name[:j]
		default:
			return name
		}
	}
}
