//go:build linux && (amd64 || arm64)

package pool_test

import (
	"context"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkPrice is the processor time of a warm run with all that makes and removes its sandbox, beside that of
// /bin/true in seven fresh namespaces, in turns. Kernel threads count for neither.
func BenchmarkPrice(b *testing.B) {
	const runs, ready = 32, 8
	p := python(b)
	d := newServed(b, ready, 2)
	filled(b, d, p, ready)
	var run, floor []float64
	for range b.N {
		run = append(run, spent(b, runs, func() {
			filled(b, d, p, ready)
			for range runs {
				sb, err := d.Start(context.Background(), p)
				if err != nil {
					b.Fatal(err)
				}
				f, err := sb.Run(context.Background(), job(b, p.Prestart, "print(1)"))
				if err != nil || f.Stdout != "1\n" || sb.Close() != nil {
					b.Fatalf("%v %+v", err, f)
				}
			}
			filled(b, d, p, ready)
		}))
		floor = append(floor, spent(b, runs, func() {
			for range runs {
				if err := namespaces(); err != nil {
					b.Fatal(err)
				}
			}
		}))
	}
	slices.Sort(run)
	slices.Sort(floor)
	b.ReportMetric(run[len(run)/2], "run-cpu-ms")
	b.ReportMetric(floor[len(floor)/2], "floor-cpu-ms")
	b.ReportMetric(floor[len(floor)/2]/run[len(run)/2], "of-floor")
	b.ReportMetric(0, "ns/op")
}

// spent returns the milliseconds of processor time that one of n takes, of this process and those that it has reaped.
func spent(b *testing.B, n int, f func()) float64 {
	now := func() (total time.Duration) {
		for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
			var u unix.Rusage
			if err := unix.Getrusage(who, &u); err != nil {
				b.Fatal(err)
			}
			total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
		return total
	}
	before := now()
	f()
	return float64((now() - before).Microseconds()) / 1000 / float64(n)
}

// namespaces runs /bin/true in seven fresh namespaces.
func namespaces() error {
	c := exec.Command("/bin/true")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
		unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP}
	return c.Run()
}
