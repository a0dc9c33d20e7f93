package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// builds measures two builds of waldo in turns, in the rows whose name holds only. Each turn is short and is compared
// with the turn of the other build beside it: the median of those ratios holds while the load of the machine changes.
func builds(before, after, only string, n int, out io.Writer) error {
	dir, err := os.MkdirTemp("", "mcpbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rows := [2][]*gateway{}
	for i, waldo := range []string{before, after} {
		own := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return err
		}
		all, err := gateways(waldo, "", own)
		if err != nil {
			return err
		}
		for _, g := range all {
			server := g.over == nil && g.daemon != nil // of other rows
			if row := strings.HasPrefix(g.name, "waldo") && strings.Contains(g.name, only); row {
				rows[i] = append(rows[i], g)
			} else if !server {
				continue
			}
			defer g.close()
			if err := g.open(1); err != nil {
				return fmt.Errorf("%s: %w", g.name, err)
			}
		}
	}
	fmt.Fprintln(out,
		"| row | p50 before | after | ratio | CPU before | after | ratio | context switches before | after |")
	fmt.Fprintln(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|")
	const each = 100
	for row := range rows[0] {
		var p50, cpu [2][]float64
		var switches [2]int64
		for turn := range max(n/each, 2) + 1 {
			for step := range 2 {
				i := (turn + step) % 2 // neither is always the first
				g := rows[i][row]
				g.took = nil
				busy, changes := scheduled(g.pid)
				if err := g.turn(each, true); err != nil {
					return fmt.Errorf("%s: %w", g.name, err)
				}
				if turn == 0 { // it warms up
					continue
				}
				b, c := scheduled(g.pid)
				slices.Sort(g.took)
				p50[i] = append(p50[i], micros(g.took, .5))
				cpu[i] = append(cpu[i], float64((b-busy).Microseconds())/each)
				switches[i] += c - changes
			}
		}
		ratio := func(x [2][]float64) float64 {
			var all []float64
			for i := range x[0] {
				all = append(all, x[1][i]/x[0][i])
			}
			return middle(all)
		}
		calls := float64(each * len(p50[0]))
		fmt.Fprintf(out, "| %s | %.0f µs | %.0f µs | %.3f | %.0f µs | %.0f µs | %.3f | %.2f | %.2f |\n", rows[0][row].name,
			middle(p50[0]), middle(p50[1]), ratio(p50), middle(cpu[0]), middle(cpu[1]), ratio(cpu),
			float64(switches[0])/calls, float64(switches[1])/calls)
	}
	return nil
}

func middle(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// scheduled returns how long the threads of a process have run, to the nanosecond, and how often one was given up for
// another.
func scheduled(pid int) (busy time.Duration, switches int64) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		b, _ := os.ReadFile(task + "/schedstat")
		if f := strings.Fields(string(b)); len(f) > 0 {
			ran, _ := strconv.ParseInt(f[0], 10, 64)
			busy += time.Duration(ran)
		}
		b, _ = os.ReadFile(task + "/status")
		for line := range strings.Lines(string(b)) {
			if name, count, _ := strings.Cut(line, ":"); strings.HasSuffix(name, "voluntary_ctxt_switches") {
				c, _ := strconv.ParseInt(strings.TrimSpace(count), 10, 64)
				switches += c
			}
		}
	}
	return busy, switches
}
