//go:build linux && (amd64 || arm64)

package namespace

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEarlyRecords has PID 1 send its sockets and its places before the process that made it has
// said who it is, as happens on a busy machine: each record keeps its own descriptors.
func TestEarlyRecords(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	if err := unix.SetNonblock(pair[0], true); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	send := func(kind, a uint64, files int) {
		b := make([]byte, recordSize)
		binary.LittleEndian.PutUint64(b, kind)
		binary.LittleEndian.PutUint64(b[8:], a)
		var oob []byte
		if files > 0 {
			oob = unix.UnixRights(slices.Repeat([]int{int(null.Fd())}, files)...)
		}
		if err := unix.Sendmsg(pair[1], b, oob, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	send(recWay, 0, 5)
	send(recPlaces, 0, 4)
	send(recPID, uint64(os.Getpid()), 0)
	send(recReady, 0, 0)

	s := &stage{ctl: os.NewFile(uintptr(pair[0]), "ctl")}
	defer s.ctl.Close()
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	got := map[uint64]int{}
	err = s.ready(&list{}, func(kind uint64, files []*os.File) error {
		got[kind] = len(files)
		for _, f := range files {
			f.Close()
		}
		return nil
	}, func(lost error) { t.Error(lost) })
	if err != nil || got[recWay] != 5 || got[recPlaces] != 4 {
		t.Errorf("the way out got %d descriptors and the places %d, wanted 5 and 4: %v", got[recWay], got[recPlaces], err)
	}
}
