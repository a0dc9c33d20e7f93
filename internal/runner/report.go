package runner

import (
	"fmt"
	"strings"
	"time"

	"waldo/internal/facts"
)

// Sentence says in one line how a run ended, as in "Terminated by timeout after 8 s, network was
// denied, side effect: none."
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
	if f.Network.Policy == "denied" {
		s += ", network was denied"
	}
	return s + ", side effect: " + f.SideEffect.String() + "."
}

// Report is the account of what a run used, in lines, for a person.
func Report(f facts.Facts) string {
	var b strings.Builder
	cut := ""
	if f.Truncated.Stdout || f.Truncated.Stderr {
		cut = " (cut)"
	}
	fmt.Fprintf(&b, "CPU time used: %s / %s\n", seconds(f.Usage.CPUMS), seconds(float64(f.Limits.CPUMS)))
	fmt.Fprintf(&b, "Wall time: %s / %s\n", seconds(f.Usage.WallMS), seconds(float64(f.Limits.WallMS)))
	fmt.Fprintf(&b, "Memory peak: %s / %s\n", megabytes(f.Usage.MemoryPeak), megabytes(f.Limits.MemoryBytes))
	fmt.Fprintf(&b, "Output: %s%s\n", kilobytes(f.Usage.OutputBytes), cut)
	fmt.Fprintf(&b, "Status: %s\n", status(f))
	warnings := "None"
	if len(f.Warnings) > 0 {
		warnings = strings.Join(f.Warnings, "; ")
	}
	fmt.Fprintf(&b, "Warnings: %s\n", warnings)
	return b.String()
}

func status(f facts.Facts) string {
	if f.Status == facts.OK {
		return "Success"
	}
	return Sentence(f)
}

func seconds(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond)).Round(10 * time.Millisecond)
	return fmt.Sprintf("%gs", d.Seconds())
}

func megabytes(n int64) string { return fmt.Sprintf("%dMB", (n+1<<19)>>20) }

func kilobytes(n int64) string { return fmt.Sprintf("%dKB", (n+1023)>>10) }
