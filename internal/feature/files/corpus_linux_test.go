package files

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/testing/corpus"
)

// row is a case of the corpus of paths.
type row struct {
	ID, Class, Expect, Licence string
	InputText                  string `json:"input_json_text"`
	Input                      struct {
		Op           string
		Path         any
		Fs           []string
		CreateTarget string `json:"create_target"`
		Extra        map[string]any
		StateA       string `json:"state_a"`
		StateB       string `json:"state_b"`
		Entries      []entry
	}
}

type entry struct {
	Name, Type, Link, Content, Mode string
	Repeat, Files, Size             int
	Declared                        int `json:"declared_size"`
}

// rows are the cases. A lone surrogate cannot come in an argument: the gateway refuses the message.
func rows(t *testing.T) []row {
	return slices.DeleteFunc(corpus.Rows[row](t, "paths.jsonl"), func(r row) bool { return r.InputText != "" })
}

const canary = "OUTSIDE-THE-JAIL"

// build makes the folder of a row, with a file and a folder outside.
func (r row) build(t *testing.T) (root string, skipped bool) {
	root = folder(t, nil)
	put(t, filepath.Join(root, "..", "outside.txt"), canary)
	put(t, filepath.Join(root, "..", "outside_dir", "f"), canary)
	for _, e := range r.Input.Fs {
		kind, rest, special := strings.Cut(e, ":")
		at := filepath.Join(root, rest)
		var err error
		link, target, isLink := strings.Cut(e, " => ")
		switch {
		case isLink:
			put(t, filepath.Join(root, link), "=> "+strings.ReplaceAll(target, "$ABS", root))
			continue
		case special && (kind == "fifo" || kind == "socket"):
			err = os.MkdirAll(filepath.Dir(at), 0o755)
			if kind == "fifo" {
				err = errors.Join(err, unix.Mkfifo(at, 0o666))
			} else if l, lerr := net.Listen("unix", at); lerr == nil {
				t.Cleanup(func() { _ = l.Close() })
			} else {
				err = lerr
			}
		case special && kind == "hardlink":
			name, to, _ := strings.Cut(rest, "=>")
			err = os.Link(filepath.Join(root, to), filepath.Join(root, name))
		case special && (kind == "char" || kind == "block"):
			p := strings.SplitN(rest, ":", 3)
			major, _ := strconv.Atoi(p[0])
			minor, _ := strconv.Atoi(p[1])
			mode := map[string]uint32{"char": unix.S_IFCHR, "block": unix.S_IFBLK}[kind]
			if err = unix.Mknod(filepath.Join(root, p[2]), mode|0o666, int(unix.Mkdev(uint32(major), uint32(minor)))); err != nil {
				return root, true // root alone makes devices
			}
		case strings.HasSuffix(e, "/"):
			err = os.MkdirAll(filepath.Join(root, e), 0o755)
		default:
			put(t, filepath.Join(root, e), "inside")
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", r.ID, e, err)
		}
	}
	if name := r.Input.CreateTarget; name != "" {
		put(t, filepath.Join(root, name), "inside")
	}
	return root, false
}

// calls are the tool calls that do what an operation of the corpus does; none: no tool of waldo's does it.
func (r row) calls(t *testing.T, root string) (name string, args m) {
	p := r.Input.Path
	text, _ := p.(string)
	src := func() string { put(t, filepath.Join(root, "src.txt"), "source"); return "src.txt" }
	switch r.Input.Op {
	case "read":
		name, args = "files.read", m{"path": p}
	case "write":
		name, args = "files.write", m{"path": p, "content": "new"}
	case "append":
		name, args = "files.write", m{"path": p, "content": "new", "append": true}
	case "list":
		name, args = "files.list", m{"path": p}
	case "stat", "open", "exists", "size":
		name, args = "files.stat", m{"path": p}
	case "search", "glob":
		name, args = "files.search", m{"path": p, "query": "E"}
	case "mkdir", "mkdir_below":
		name, args = "files.write", m{"path": text + "/made", "content": "new"}
	case "delete", "delete_through":
		name, args = "files.delete", m{"path": p}
	case "delete_recursive":
		name, args = "files.delete", m{"path": p, "recursive": true}
	case "rename_to", "rename_over":
		name, args = "files.move", m{"from": src(), "to": p}
	case "move_into":
		name, args = "files.move", m{"from": src(), "to": text + "/src.txt"}
	default: // copy, chmod, hard links, watch
		return "files." + r.Input.Op, m{"path": p}
	}
	for k, v := range r.Input.Extra {
		args[k] = v
	}
	return name, args
}

// excused are rows whose expectation waldo does not meet, and why.
var excused = map[string]string{
	"paths/special-file/0012": "files.stat describes folders; other rows of the corpus expect that",
}

// TestCorpusOfPaths: every path of the corpus, through the tools that agents call.
func TestCorpusOfPaths(t *testing.T) {
	judged := map[string]int{}
	for _, r := range rows(t) {
		if r.Class == "archive" || r.Class == "race-swap" {
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			root, skipped := r.build(t)
			if skipped {
				t.Skip("needs root")
			}
			name, args := r.calls(t, root)
			begun := time.Now()
			out, got := use(t, root, name, args)
			if d := time.Since(begun); d > 20*time.Second {
				t.Errorf("it hung for %v", d)
			}
			r.outside(t, root, got)
			judged[r.Expect]++
			if excused[r.ID] != "" || out.Refused != nil && out.Refused.Code == "tool.absent" {
				return // a tool that is not there reaches nothing
			}
			ok, refused := out.Facts.Status == facts.OK, out.Facts.Status == facts.Denied
			switch r.Expect {
			case "allow":
				if !ok && r.Input.Op != "mkdir" { // no tool makes a folder alone
					t.Errorf("refused: %s", got)
				}
			case "deny", "error":
				if ok && !(r.Input.Op == "mkdir" && r.Expect == "error") { // files.write makes missing folders, inside
					t.Errorf("%s %.300v was allowed: %.200s", name, args, got)
				}
			case "policy_deny_write", "policy_deny_read":
				if ok || !refused && !strings.Contains(got, "no such file") {
					t.Errorf("%s %v: %s %.200s", name, args, out.Facts.Status, got)
				}
			case "inside", "no_effect_outside", "no_hang", "allow_dir", "deny_or_ignore", "policy_nlink":
			default:
				t.Errorf("unknown expectation %q", r.Expect)
			}
		})
	}
	t.Log(judged)
}

// outside fails where a call changed, or told, anything outside of the jail.
func (r row) outside(t *testing.T, root, got string) {
	t.Helper()
	top := filepath.Dir(root)
	if content(t, top, "outside.txt") != canary || content(t, top, "outside_dir", "f") != canary {
		t.Error("a file outside was changed")
	}
	names := func(dir string) (all []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	if l := names(top); !slices.Equal(l, []string{"ROOT", "outside.txt", "outside_dir"}) || len(names(filepath.Join(top, "outside_dir"))) != 1 {
		t.Errorf("names outside: %v", l)
	}
	if strings.Contains(got, canary) || strings.Contains(got, "root:x:0") || strings.Contains(got, "outside_dir") {
		t.Errorf("it tells what is outside: %.200s", got)
	}
}

// pack makes the archive of a row.
func (r row) pack(t *testing.T, format string) []byte {
	var b bytes.Buffer
	fail := func(err error) {
		if err != nil {
			t.Fatalf("%s: %v", r.ID, err)
		}
	}
	tw, zw := tar.NewWriter(&b), zip.NewWriter(&b)
	for _, e := range r.Input.Entries {
		mode, _ := strconv.ParseInt(e.Mode, 0, 64)
		text := []byte(e.Content)
		if e.Size > 0 || e.Type == "zip-overlap" {
			text = make([]byte, min(e.Size, 400<<20/max(e.Files, 1))) // bombs of a size that a test can make
		}
		for i := range min(max(e.Repeat, e.Files, 1), maxEntries+10) {
			name := strings.ReplaceAll(e.Name, "%d", strconv.Itoa(i))
			if e.Files > 0 {
				name += strconv.Itoa(i)
			}
			if format == "zip" {
				h := &zip.FileHeader{Name: name, Method: zip.Deflate}
				h.SetMode(map[string]fs.FileMode{"symlink": fs.ModeSymlink | 0o777, "hardlink": fs.ModeSymlink | 0o777,
					"dir": fs.ModeDir | 0o755, "fifo": fs.ModeNamedPipe, "char": fs.ModeDevice, "block": fs.ModeDevice}[e.Type] |
					fs.FileMode(mode)&0o777)
				if e.Type == "symlink" || e.Type == "hardlink" {
					text = []byte(e.Link)
				}
				w, err := zw.CreateHeader(h)
				fail(err)
				_, err = w.Write(text)
				if err != nil && !strings.HasSuffix(name, "/") {
					fail(err)
				}
				continue
			}
			h := &tar.Header{Name: name, Mode: mode & 0o7777, Linkname: e.Link, Size: int64(len(text)), Format: tar.FormatPAX,
				Typeflag: map[string]byte{"file": tar.TypeReg, "symlink": tar.TypeSymlink, "hardlink": tar.TypeLink,
					"dir": tar.TypeDir, "fifo": tar.TypeFifo, "char": tar.TypeChar, "block": tar.TypeBlock,
					"zip-overlap": tar.TypeReg}[e.Type]}
			if h.Typeflag != tar.TypeReg {
				h.Size, text = 0, nil
			}
			if err := tw.WriteHeader(h); err != nil {
				return nil // a name with NUL, say: the format does not have it
			}
			_, err := tw.Write(text)
			fail(err)
			if b.Len() > 300<<20 {
				return b.Bytes()
			}
		}
	}
	if format == "zip" {
		fail(zw.Close())
	} else {
		fail(tw.Close())
	}
	return b.Bytes()
}

// TestCorpusOfArchives: no archive of the corpus has an effect outside, and none leaves more than its bounds.
func TestCorpusOfArchives(t *testing.T) {
	for _, r := range rows(t) {
		if r.Class != "archive" {
			continue
		}
		for _, format := range []string{"tar", "zip"} {
			t.Run(r.ID+"/"+format, func(t *testing.T) {
				b := r.pack(t, format)
				if b == nil {
					t.Skip("the format does not have it")
				}
				root, _ := r.build(t)
				put(t, filepath.Join(root, "a.bin"), string(b))
				out, got := use(t, root, "files.extract", m{"path": "a.bin", "into": "dest"})
				r.outside(t, root, got)
				if _, err := os.Stat("/tmp/moo"); err == nil {
					t.Error("/tmp/moo is there")
				}
				n, size := 0, int64(0)
				_ = filepath.WalkDir(filepath.Join(root, "dest"), func(p string, e fs.DirEntry, err error) error {
					if err != nil {
						return nil
					}
					i, _ := e.Info()
					if n++; i != nil && i.Mode().IsRegular() {
						size += i.Size()
					}
					if t := e.Type(); !t.IsRegular() && !t.IsDir() || i.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 {
						return fmt.Errorf("%s is %v", p, i.Mode())
					}
					return nil
				})
				if n > 2*maxEntries || size > maxUnpacked || out.IsError && n > 0 {
					t.Errorf("%d entries, %d bytes, %s", n, size, out.Facts.Status)
				}
				if left, _ := os.ReadDir(filepath.Join(root, trashDir)); len(left) > 1 { // .gitignore
					t.Errorf("left in the trash: %v", left)
				}
			})
		}
	}
}

// swap exchanges two names as fast as it can, until the test ends.
func swap(t *testing.T, a, b string) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

// TestRaces exchanges names under the tools, with links that lead outside, pipes and folders. The control resolves
// a path and then checks it. It loses the race.
func TestRaces(t *testing.T) {
	const while = 700 * time.Millisecond
	set := func(t *testing.T, a, b string) (root string) {
		root = folder(t, map[string]string{"sub/x": "x"})
		top := filepath.Dir(root)
		put(t, filepath.Join(top, "outside.txt"), canary)
		put(t, filepath.Join(top, "outside_dir", "f"), canary)
		victim, other := filepath.Join(root, "sub/target"), filepath.Join(root, "sub/other")
		make := func(at, state string) {
			to, link := strings.CutPrefix(state, "symlink:")
			switch {
			case link:
				put(t, at, "=> "+to)
			case state == "dir", state == "dir-moved-out-of-root":
				put(t, filepath.Join(at, "f"), "inside")
			case state == "fifo":
				if err := unix.Mkfifo(at, 0o666); err != nil {
					t.Fatal(err)
				}
			case state == "missing":
			default:
				put(t, at, strings.Repeat("inside\n", 1000))
			}
		}
		if b == "dir-moved-out-of-root" {
			other = filepath.Join(top, "moved")
		}
		make(victim, a)
		make(other, b)
		if a == "missing" {
			return root
		}
		swap(t, victim, other)
		return root
	}
	t.Run("control", func(t *testing.T) {
		root := set(t, "file", "symlink:../../outside.txt")
		for begun := time.Now(); time.Since(begun) < 20*time.Second; {
			at := filepath.Join(root, "sub/target")
			real, err := filepath.EvalSymlinks(at)
			if err != nil || !strings.HasPrefix(real, root) {
				continue
			}
			if b, err := os.ReadFile(at); err == nil && string(b) == canary {
				return
			}
		}
		t.Error("resolve and check never lost the race: the attack does not work")
	})
	seen := map[string]bool{}
	for _, r := range rows(t) {
		in := r.Input
		key := in.StateA + in.StateB + in.Op
		if r.Class != "race-swap" || seen[key] || in.Op == "copy" || in.Op == "list" {
			continue
		}
		seen[key] = true
		t.Run(in.Op+"/"+in.StateA+"/"+in.StateB, func(t *testing.T) {
			root := set(t, in.StateA, strings.Replace(in.StateB, ":../", ":../../", 1))
			n := 0
			for begun := time.Now(); time.Since(begun) < while || n < 20; n++ {
				var got string
				switch in.Op {
				case "read":
					_, got = use(t, root, "files.read", m{"path": "sub/target"})
					if _, more := use(t, root, "files.read", m{"path": "sub/target/outside.txt"}); strings.Contains(more, canary) {
						t.Fatal("read outside")
					}
				case "write":
					_, got = use(t, root, "files.write", m{"path": "sub/target", "content": "written"})
					use(t, root, "files.write", m{"path": "sub/target/outside.txt", "content": "written"})
				case "mkdir":
					_, got = use(t, root, "files.write", m{"path": "sub/target/new/f", "content": "x"})
				case "delete":
					use(t, root, "files.delete", m{"path": "sub/target/outside.txt"})
					use(t, root, "files.delete", m{"path": "sub/target/hostname"})
					_, got = use(t, root, "files.delete", m{"path": "sub/target", "recursive": true})
					use(t, root, "files.restore", m{"id": strings.TrimSpace(got[strings.LastIndex(got, "=")+1:])})
				}
				if strings.Contains(got, canary) {
					t.Fatalf("round %d tells what is outside: %q", n, got)
				}
				top := filepath.Dir(root)
				if content(t, top, "outside.txt") != canary || content(t, top, "outside_dir/f") != canary {
					t.Fatalf("round %d changed a file outside", n)
				}
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(root), "new")); err == nil {
				t.Error("a folder was made outside")
			}
			if _, err := os.Stat("/etc/new"); err == nil {
				t.Error("a folder was made in /etc")
			}
		})
	}
}

// FuzzPath: no path leads to a file outside, and a place is always below the root.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"a", "../outside.txt", "l/../x", "out", "d/out/f", "./a//b/", "loop", "d/..", "\x00", ".git/x"} {
		f.Add(s)
	}
	root := folder(f, map[string]string{"a": "inside", "d/e/f": "inside", "l": "=> d/e", "out": "=> ../outside.txt",
		"d/out": "=> ../..", "loop": "=> loop", "abs": "=> /etc"})
	put(f, filepath.Join(root, "..", "outside.txt"), canary)
	f.Fuzz(func(t *testing.T, p string) {
		j, err := openJail(root)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		place, err := j.walk(p, follow)
		if err != nil {
			return
		}
		defer place.Close()
		if strings.HasPrefix(place.name, "..") || strings.HasPrefix(place.name, "/") || strings.Contains(place.base, "/") {
			t.Fatalf("%q is at %q, %q", p, place.name, place.base)
		}
		f, _, err := place.open()
		if err != nil {
			return
		}
		defer f.Close()
		b := make([]byte, 100)
		if n, _ := f.Read(b); string(b[:n]) != "inside" {
			t.Fatalf("%q reads %q", p, b[:n])
		}
	})
}

// FuzzArchive: an archive of any bytes leaves nothing outside, no link, and no more than its bounds.
func FuzzArchive(f *testing.F) {
	var r row
	r.Input.Entries = []entry{{Name: "a", Type: "file", Content: "x"}, {Name: "../b", Type: "file"}, {Name: "l", Type: "symlink", Link: "/etc"}}
	t := &testing.T{}
	f.Add(r.pack(t, "tar"))
	f.Add(r.pack(t, "zip"))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		root := folder(t, nil)
		put(t, filepath.Join(root, "in"), string(b))
		a, err := call.ArgsOf(m{"path": "in", "into": "out"})
		if err != nil {
			t.Fatal(err)
		}
		j, err := openJail(root)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		_, _ = extract(&work{jail: j, ctx: t.Context()}, a)
		if all, err := os.ReadDir(filepath.Dir(root)); err != nil || len(all) != 1 {
			t.Fatalf("outside: %v, %v", all, err)
		}
		n := 0
		_ = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
			if n++; err == nil && e.Type()&fs.ModeSymlink != 0 {
				t.Errorf("a link: %s", p)
			}
			return nil
		})
		if n > maxEntries+10 {
			t.Errorf("%d entries", n)
		}
	})
}
