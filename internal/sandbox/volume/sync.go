//go:build linux

package volume

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Syncer synchronises a volume of a sandbox and a folder of the host while commands run. Each side gets the
// files that changed on the other since the last time. If both sides changed a file, the folder's version wins.
// A deletion is not carried over. The zero Syncer has no baseline.
type Syncer struct {
	mu            sync.Mutex
	host, sandbox map[string]stamp // as they were the last time
}

// errRoom is the reason to leave out a file when the folder already holds as much as the volume may.
var errRoom = errors.New("the folder holds as much as it may")

// errName and errTemporary are reasons to leave out a file because of its name.
var (
	errName      = errors.New("its name is not UTF-8, or holds a backslash")
	errTemporary = errors.New("names that begin with " + temporary + " are of waldo's own temporary files")
)

// Sync synchronises once. Together with its present contents the folder never holds more than the volume
// could. Sync returns the paths of the files that the folder got; the error names those that could not be
// copied. create runs the creation of files in the sandbox; nil calls it directly.
func (s *Syncer) Sync(p Volume, dir string, create func(f func() error) error) (given []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to, err := os.Open(dir) // it is not made: a folder that is gone was deleted
	if err != nil {
		return nil, err
	}
	defer to.Close()
	room, errHost := roomOf(to, p)
	host := room.have
	inside, _, errInside := seen(p.Dir)
	in, out := map[string]bool{}, map[string]bool{}
	for name := range host {
		in[name] = host[name] != s.host[name]
	}
	for name := range inside {
		out[name] = inside[name] != s.sandbox[name] && host[name] == s.host[name]
	}
	given, errOut := copyTree(p.Owner, p.Dir, to, p.Bytes, nil, func(e Entry) bool {
		return (e.Directory() || out[e.Path]) && room.takes(e)
	})
	taken, errIn := copyTree(p.Owner, to, p.Dir, p.Bytes, create, func(e Entry) bool { return e.Directory() || in[e.Path] })
	s.host = reconciled(host, s.host, to, given, in, taken)
	s.sandbox = reconciled(inside, s.sandbox, p.Dir, taken, out, given)
	if err := errors.Join(errHost, errInside, errOut, room.err(), errIn); err != nil {
		return given, fmt.Errorf("sharing %s: %w", p.Target, err)
	}
	return given, nil
}

// reconciled returns the baseline for the next exchange: the scan before the copy, with received files scanned
// again. Files that failed to copy get their old version, so that they are tried again.
func reconciled(now, before map[string]stamp, dir *os.File, got []string, changed map[string]bool,
	gave []string) map[string]stamp {
	for name := range now {
		if changed[name] && !slices.Contains(gave, name) {
			now[name] = before[name]
		}
	}
	if len(got) > 0 {
		after, _, _ := seen(dir)
		for _, name := range got {
			now[name] = after[name]
		}
	}
	return now
}

// room counts the space that is left for a volume's files in a folder of the host.
type room struct {
	faults // entries that did not fit
	place  Volume
	have   map[string]stamp
	used   sum
}

// sum is how much a tree takes in a place, where files are of whole pages and the root counts.
type sum struct{ bytes, inodes int64 }

func pages(n int64) int64 { return (n + 4095) &^ 4095 }

// roomOf measures the present contents of the folder.
func roomOf(dir *os.File, p Volume) (*room, error) {
	have, used, err := seen(dir)
	return &room{place: p, have: have, used: used}, err
}

// takes reports whether a file or folder fits, and counts it. It refuses a name that a file list in JSON could
// not represent: tools that list the folder would fail on it.
func (r *room) takes(e Entry) bool {
	if !utf8.ValidString(e.name()) || strings.Contains(e.name(), `\`) {
		r.add("copy", e.Path, errName)
		return false
	}
	if e.temporary() {
		r.add("copy", e.Path, errTemporary)
		return false
	}
	old, there := r.have[e.Path]
	after := r.used
	if !there {
		after.inodes++
	}
	if !e.Directory() {
		after.bytes += pages(e.Stat.Size) - pages(old.size)
	}
	if after.inodes > r.place.Inodes || after.bytes > pages(r.place.Bytes) && after.bytes > r.used.bytes {
		r.add("copy", e.Path, errRoom)
		return false
	}
	r.used = after
	return true
}

// seen returns the files and folders below a folder, without temporary files, and the total size with them.
func seen(dir *os.File) (all map[string]stamp, used sum, err error) {
	all, used.inodes = map[string]stamp{}, 1
	err = walk(dir, maxNames, func(e Entry) bool {
		used.inodes++
		if e.Regular() {
			used.bytes += pages(e.Stat.Size)
		}
		switch {
		case e.temporary():
		case e.Regular():
			all[e.Path] = stamp{e.Stat.Ino, e.Stat.Size, e.Stat.Ctim}
		case e.Directory():
			all[e.Path] = stamp{}
		}
		return true
	})
	return all, used, err
}
