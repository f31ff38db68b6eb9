package text

import (
	"fmt"
	"strings"
	"unicode"
)

// page is what is written so far. No line of it is wider than o.Width.
type page struct {
	b strings.Builder
	o Options
}

// fit cuts one line at the width. Names come from other processes: what is not
// printable would be obeyed by a terminal, and is replaced.
func (p *page) fit(line string) string {
	s := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, line))
	if len(s) > p.o.Width {
		s = append(s[:p.o.Width-1], '…')
	}
	return strings.TrimRight(string(s), " ")
}

func (p *page) line(format string, args ...any) {
	p.b.WriteString(p.fit(fmt.Sprintf(format, args...)) + "\n")
}

func (p *page) title(s string) {
	s = p.fit(s)
	if p.o.Color {
		s = "\x1b[1m" + s + "\x1b[0m"
	}
	p.b.WriteString("\n" + s + "\n")
}

// wrapped writes text over several lines, each after the first indented. A word
// that no line has room for is broken.
func (p *page) wrapped(first, rest, s string) {
	at := []rune(first)
	empty := true // at holds no word yet
	for _, f := range strings.Fields(s) {
		word := []rune(f)
		for len(word) > 0 {
			room := p.o.Width - len(at)
			if !empty {
				room-- // for the space
			}
			if len(word) > room && !empty {
				p.line("%s", string(at))
				at, empty = []rune(rest), true
				continue
			}
			n := min(len(word), max(1, room))
			if !empty {
				at = append(at, ' ')
			}
			at, word, empty = append(at, word[:n]...), word[n:], false
		}
	}
	p.line("%s", string(at))
}

// thousands writes a count with separators.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// size writes a number of bytes.
func size(n float64) string {
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if n < 1024 {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0") + " " + unit
		}
		n /= 1024
	}
	return fmt.Sprintf("%.1f GiB", n)
}

// shorten keeps the end of a long name, which says more than its beginning.
func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n || n < 2 {
		return s
	}
	return "…" + string(r[len(r)-n+1:])
}
