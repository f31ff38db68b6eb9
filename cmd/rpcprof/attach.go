package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/rpcprof/toolkit/exporters/pprof"
	"github.com/rpcprof/toolkit/exporters/text"
	"github.com/rpcprof/toolkit/probes"
	"github.com/rpcprof/toolkit/rpcprof/blame"
	"github.com/rpcprof/toolkit/rpcprof/profile"
)

type attachCmd struct {
	PID  int           `arg:"" name:"pid" help:"The process to look at."`
	For  time.Duration `help:"How long to look; until Ctrl-C or its end when not given." placeholder:"10s"`
	SLO  time.Duration `name:"slo" help:"Calls over it are slow; those over their method's p99 when not given." placeholder:"20ms"`
	JSON bool          `name:"json" help:"Write the report as JSON."`
	Out  string        `short:"o" help:"Also write the profile to a file: .pb.gz for go tool pprof, .json." placeholder:"FILE"`
}

func (a *attachCmd) Run(ctx context.Context, con *console) error {
	if err := checkOut(a.Out); err != nil {
		return err
	}
	if a.For < 0 || a.SLO < 0 {
		return usageError{"--for and --slo take a duration above zero, such as 10s"}
	}
	report, err := look(ctx, con, a.PID, a.For, a.SLO)
	if err != nil {
		return err
	}
	err = show(con, report, a.JSON)
	if a.Out != "" { // a full disk must not cost the report
		err = errors.Join(err, writeFile(a.Out, report))
	}
	return err
}

// look captures a process and judges what was seen.
func look(ctx context.Context, con *console, pid int, d, slo time.Duration) (blame.Report, error) {
	o := probes.Options{SLO: slo}
	if con.errTTY {
		o.Progress = func(p probes.Progress) {
			fmt.Fprintf(con.err, "\r\x1b[Klooking at %d for %v: %d calls, %d in flight, %d kernel events (Ctrl-C for the verdict)",
				pid, p.Elapsed.Round(100*time.Millisecond), p.Calls, p.InFlight, p.Events)
		}
	}
	c, err := probes.Attach(pid, o)
	if err != nil {
		return blame.Report{}, err
	}
	defer c.Close()
	if d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	ended := c.Run(ctx)
	if con.errTTY {
		fmt.Fprint(con.err, "\r\x1b[K")
	}
	p := c.Profile()
	if ended {
		p.Limits = append(p.Limits, fmt.Sprintf("the process ended after %v; this is what was seen until then",
			time.Duration(p.Window.EndNS-p.Window.StartNS).Round(time.Millisecond)))
	}
	return judge(p, slo), nil
}

func judge(p *profile.Profile, slo time.Duration) blame.Report {
	return blame.Report{Profile: p, Verdicts: blame.Judge(p, blame.Options{SLO: slo})}
}

func show(con *console, r blame.Report, asJSON bool) error {
	if asJSON {
		return writeJSON(con.out, r)
	}
	return text.Write(con.out, r, text.Options{Width: con.width(), Color: con.color})
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func checkOut(name string) error {
	if name == "" || strings.HasSuffix(name, ".pb.gz") || strings.HasSuffix(name, ".json") {
		return nil
	}
	return usageError{fmt.Sprintf("-o %s: the name must end in .pb.gz or .json", name)}
}

// writeFile makes the whole content first, so that a full disk does not leave half
// of a file under the name.
func writeFile(name string, r blame.Report) error {
	var b bytes.Buffer
	var err error
	if strings.HasSuffix(name, ".json") {
		err = writeJSON(&b, r)
	} else {
		err = pprof.Write(&b, r.Profile)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	tmp := name + ".part"
	if err := os.WriteFile(tmp, b.Bytes(), 0o644); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	if err := os.Rename(tmp, name); err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return nil
}
