package runner

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

// Sentence describes in one line how a run ended and its denials, as in "Terminated by timeout after 8s, denied:
// evil.example.org:443, side effect: none."
func Sentence(f facts.Facts) string {
	var s string
	switch {
	case f.TimedOut || f.Status == facts.Timeout:
		s = "Terminated by timeout after " + seconds(f.Usage.WallMS)
		if f.Limit != nil && *f.Limit == facts.LimitCPU {
			s = "Terminated for using " + seconds(f.Usage.CPUMS) + " of CPU"
		}
	case f.OOMKilled || f.Status == facts.OOM:
		s = "Killed for using more than " + megabytes(f.Limits.MemoryBytes) + " of memory"
	case f.Limit != nil:
		s = "Terminated for reaching its limit of " + string(*f.Limit)
	case f.Status == facts.Cancelled:
		s = "Cancelled"
	case f.Signal != nil:
		s = "Killed by " + *f.Signal
	case f.ExitCode != nil:
		s = fmt.Sprintf("Exit status %d", *f.ExitCode)
	default:
		s = "Ended as " + string(f.Status)
	}
	if l := denied(f); len(l) > 0 {
		s += ", denied: " + few(l)
	}
	return s + ", side effect: " + f.SideEffect.String() + "."
}

// Report lists a run's resource usage, in lines, escaped for a person.
func Report(f facts.Facts) string {
	var b strings.Builder
	cut := ""
	if f.Truncated.Stdout || f.Truncated.Stderr {
		cut = " (cut)"
	}
	display.Fprintf(&b, "CPU time used: %s / %s\n", seconds(f.Usage.CPUMS), seconds(float64(f.Limits.CPUMS)))
	display.Fprintf(&b, "Wall time: %s / %s\n", seconds(f.Usage.WallMS), seconds(float64(f.Limits.WallMS)))
	display.Fprintf(&b, "Memory peak: %s / %s\n", megabytes(f.Usage.MemoryPeak), megabytes(f.Limits.MemoryBytes))
	if f.Limits.Output > 0 {
		cut = " / " + kilobytes(f.Limits.Output) + cut
	}
	display.Fprintf(&b, "Output: %s%s\n", kilobytes(f.Usage.OutputBytes), cut)
	display.Fprintf(&b, "Status: %s\n", status(f))
	for _, line := range Refused(f) {
		b.WriteString(line + "\n")
	}
	warnings := "None"
	if len(f.Warnings) > 0 {
		warnings = strings.Join(f.Warnings, "; ")
	}
	display.Fprintf(&b, "Warnings: %s\n", warnings)
	return b.String()
}

// Refused returns the lines of a report about what the run tried in vain, escaped for a terminal.
func Refused(f facts.Facts) (lines []string) {
	if l := denied(f); len(l) > 0 {
		lines = append(lines, string(display.Sprintf("Denied: %s", few(l))))
	}
	if l := unreached(f); len(l) > 0 {
		lines = append(lines, string(display.Sprintf("Not reached: %s", few(l))))
	}
	return lines
}

func status(f facts.Facts) string {
	if f.Status == facts.OK {
		return "Success"
	}
	f.Network.Denied, f.Denials = nil, nil // the report has a line for them
	return Sentence(f)
}

// denied lists what the run tried and was denied: hosts first, each with the number of attempts where that is
// known, then other actions.
func denied(f facts.Facts) (out []string) {
	times, reason := map[string]int{}, map[string]string{}
	for _, a := range f.Network.Attempts {
		if !a.Allowed {
			times[place(a)] += a.Times
		}
		// its name is allowed: only the reason says what to do
		if a.Why == "egress.address" || a.Why == "egress.own" || a.Why == "egress.limit.bytes" || strings.HasPrefix(a.Why, "egress.secret.") {
			reason[place(a)] = a.Why
		}
	}
	add := func(s string) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for _, host := range f.Network.Denied {
		var more []string
		if n := times[host]; n > 1 {
			more = append(more, fmt.Sprintf("%d attempts", n))
		}
		if why := reason[host]; why != "" {
			more = append(more, why)
		}
		if len(more) > 0 {
			add(fmt.Sprintf("%s (%s)", facts.Name(host), strings.Join(more, ", ")))
		} else {
			add(facts.Name(host))
		}
	}
	for _, d := range f.Denials {
		if d.Kind != "network" {
			add(fmt.Sprintf("%s (%s)", facts.Name(d.What), d.Errno))
		}
	}
	return out
}

// unreached lists the allowed hosts that did not answer, each with the reason.
func unreached(f facts.Facts) (out []string) {
	for _, a := range f.Network.Attempts {
		if a.Allowed && a.Why != "" {
			out = append(out, fmt.Sprintf("%s (%s)", facts.Name(place(a)), a.Why))
		}
	}
	return out
}

// place is the host of an attempt, with its port if there is one.
func place(a facts.Attempt) string {
	if a.Port == 0 {
		return a.Host
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(a.Port))
}

// few joins the first entries of a list and counts the rest.
func few(l []string) string {
	const most = 5
	if len(l) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(l[:most], ", "), len(l)-most)
	}
	return strings.Join(l, ", ")
}

func seconds(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond)).Round(10 * time.Millisecond)
	return strconv.FormatFloat(float64(d/(10*time.Millisecond))/100, 'f', -1, 64) + "s"
}

func megabytes(n int64) string { return fmt.Sprintf("%dMB", (n+1<<19)>>20) }

func kilobytes(n int64) string { return fmt.Sprintf("%dKB", (n+1023)>>10) }
