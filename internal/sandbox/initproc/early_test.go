//go:build linux && (amd64 || arm64)

package initproc

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestEarlyRecords: on a busy machine PID 1 can send its sockets and volumes before its maker has reported its
// number. Each record keeps its own descriptors.
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
		b := make([]byte, RecordSize)
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
	send(RecFiles, 0, 5)
	send(RecPlaces, 0, 4)
	send(RecPID, uint64(os.Getpid()), 0)
	send(RecReady, 0, 0)

	s := &Stage{Ctl: os.NewFile(uintptr(pair[0]), "ctl")}
	defer s.Ctl.Close()
	if err := s.begin(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	got := map[uint64]int{}
	err = s.Ready(&List{}, func(kind uint64, files []*os.File) error {
		got[kind] = len(files)
		for _, f := range files {
			f.Close()
		}
		return nil
	}, func(lost error) { t.Error(lost) })
	if err != nil || got[RecFiles] != 5 || got[RecPlaces] != 4 {
		t.Errorf("the egress got %d descriptors and the places %d, wanted 5 and 4: %v", got[RecFiles], got[RecPlaces], err)
	}
}
