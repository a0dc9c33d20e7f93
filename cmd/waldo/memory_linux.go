package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// letGo releases the mapped pages of waldo's own program to the kernel. Most are needed at start only; a page used
// again is reloaded from the page cache.
func letGo() {
	self, err := os.Executable()
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) != 6 || fields[5] != self || !strings.HasPrefix(fields[1], "r-") {
			continue
		}
		low, high, _ := strings.Cut(fields[0], "-")
		from, err := strconv.ParseUint(low, 16, 64)
		to, also := strconv.ParseUint(high, 16, 64)
		if err == nil && also == nil {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
		}
	}
}
