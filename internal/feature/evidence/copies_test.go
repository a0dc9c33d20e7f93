package evidence

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/core/audit"
	"waldo/internal/feature/evidence/bucket"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/storage/database"
	"waldo/internal/testing/s3test"
)

// copying is a log whose segments are small, with a folder as its bucket.
type copying struct {
	*ground
	folder string
	*copies
}

func newCopying(t *testing.T, records int) *copying {
	t.Helper()
	c := &copying{newGround(t, 0), filepath.Join(t.TempDir(), "bucket"), nil}
	if err := os.Mkdir(c.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	c.reopen()
	c.more(records)
	return c
}

func (c *copying) blobs() contract.Blobs { return contract.Blobs{URL: "file://" + c.folder} }

func (c *copying) reopen() {
	c.t.Helper()
	var err error
	if c.copies, err = copiesOf(c.ground.store, c.blobs(), nil); err != nil {
		c.t.Fatal(err)
	}
}

func (c *copying) more(n int) {
	c.t.Helper()
	l, err := audit.Open(c.t.Context(), audit.Dir(c.state), audit.Options{Heads: c.ground.store, SegmentBytes: 8 << 10})
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range n {
		if _, err := l.Append(c.t.Context(), "test", []byte(`{}`), i == n-1 || i%16 == 0); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *copying) copyAll() {
	c.t.Helper()
	if err := c.copies.copy(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// sibling is a log in a copy of the state directory as it is now, with the same bucket.
func (c *copying) sibling() *copying {
	c.t.Helper()
	state := c.t.TempDir()
	if err := os.CopyFS(state, os.DirFS(c.state)); err != nil {
		c.t.Fatal(err)
	}
	err := filepath.WalkDir(state, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return errors.Join(err, os.Chmod(path, 0o700))
		}
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		c.t.Fatal(err)
	}
	s, err := database.Open(state)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = s.Close() })
	out := &copying{&ground{c.t, state, s, treeOf(s)}, c.folder, nil}
	out.reopen()
	return out
}

// codes returns the codes of what verify finds.
func (c *copying) codes(whole bool) string {
	var out []string
	for _, f := range c.copies.verify(c.t.Context(), whole) {
		out = append(out, f.Code)
	}
	return strings.Join(slices.Compact(out), " ")
}

// back returns the reason against a dangerous call, after a new comparison.
func (c *copying) back() string {
	c.t.Helper()
	m := c.read()
	m.Looked = time.Now() // no process believes that
	if err := c.copies.write(m); err != nil {
		c.t.Fatal(err)
	}
	c.copies.looked = time.Time{}
	if why := (witness{copies: c.copies}).Back(c.t.Context()); why != nil {
		return why.Code
	}
	return ""
}

// first returns the first object of the bucket whose name begins with a prefix.
func (c *copying) first(prefix string) string {
	c.t.Helper()
	names, err := bucket.Folder(c.folder).List(c.t.Context(), prefix, "")
	if err != nil || len(names) == 0 {
		c.t.Fatalf("no %s: %v %v", prefix, names, err)
	}
	return filepath.Join(c.folder, filepath.FromSlash(names[0]))
}

func (c *copying) replace(file string, change func(b []byte) []byte) {
	c.t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, change(b), 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func flip(b []byte) []byte { b[len(b)/2] ^= 1; return b }

// TestCopies: a log that grows is in the bucket as it is here. Each object that was replaced, removed or
// added there is
// a finding, by its name, and only a log that is not the one of the bucket stops dangerous calls.
func TestCopies(t *testing.T) {
	sound := func(c *copying) {
		t.Helper()
		if whole, names, back := c.codes(true), c.codes(false), c.back(); whole != "bucket.seen" || names != whole || back != "" {
			t.Fatalf("control: %s, %s, %s", whole, names, back)
		}
	}
	for _, row := range []struct {
		name        string
		do          func(c *copying)
		whole       string // what verify finds
		names, back string // by names alone; before a dangerous call
	}{
		{"a segment is replaced", func(c *copying) { c.replace(c.first(segments), flip) }, "bucket.differs", "bucket.seen", ""},
		{"a segment is cut", func(c *copying) { c.replace(c.first(segments), func(b []byte) []byte { return b[:len(b)/2] }) },
			"bucket.differs", "bucket.seen", ""},
		{"a segment is removed", func(c *copying) { _ = os.Remove(c.first(segments)) }, "bucket.missing", "bucket.missing", ""},
		{"a tile is replaced", func(c *copying) { c.replace(c.first("tile/"), flip) }, "bucket.differs", "bucket.seen", ""},
		{"a tile is removed", func(c *copying) { _ = os.Remove(c.first("tile/0/000")) }, "bucket.missing", "bucket.missing", ""},
		{"an old checkpoint is replaced", func(c *copying) { c.replace(c.first(checkpoints), flip) }, "bucket.foreign", "bucket.foreign", ""},
		{"the newest checkpoint is removed", func(c *copying) {
			_ = os.Remove(filepath.Join(c.folder, checkpointObject(c.read().Size)))
		}, "bucket.missing", "bucket.missing", ""},
		{"the origin is removed", func(c *copying) { _ = os.Remove(c.first(originObject)) }, "bucket.missing", "bucket.missing", ""},
		{"another object is added", func(c *copying) {
			_ = os.WriteFile(filepath.Join(c.folder, "segment", "x"), nil, 0o600)
		}, "bucket.foreign", "bucket.foreign", ""},
		{"a later checkpoint is forged", func(c *copying) { // who can write there cannot stop calls
			b, _ := os.ReadFile(c.first(checkpoints))
			_ = os.WriteFile(filepath.Join(c.folder, checkpointObject(9999)), b, 0o600)
		}, "bucket.foreign", "bucket.foreign", ""},
		{"the bucket is another log's", func(c *copying) {
			c.replace(c.first(originObject), func([]byte) []byte { return []byte("waldo/0123456789abcdef/1\n") })
		}, "bucket.differs", "bucket.differs", ""}, // the origin alone proves nothing
		{"the bucket is away", func(c *copying) { _ = os.Rename(c.folder, c.folder+"-gone") },
			"bucket.unreachable", "bucket.unreachable", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := newCopying(t, 200)
			c.copyAll()
			c.more(200)
			c.copyAll()
			sound(c)
			row.do(c)
			if whole, names, back := c.codes(true), c.codes(false), c.back(); whole != row.whole || names != row.names || back != row.back {
				t.Errorf("%s, %s, %s", whole, names, back)
			}
		})
	}
}

// TestBehind: records count as not copied until the next copy.
func TestBehind(t *testing.T) {
	c := newCopying(t, 20)
	behind := func(want uint64) {
		t.Helper()
		if n, err := c.behind(t.Context()); n != want || err != nil {
			t.Errorf("%d records are not copied, %v; want %d", n, err, want)
		}
	}
	behind(21) // with the first one, of the log itself
	c.copyAll()
	behind(0)
	c.more(5)
	behind(5)
}

// TestWentBack: a state directory that went back in time is found by the bucket, also once it grew beyond it, and
// copies nothing more. So is one that was replaced or removed, and a second waldo with the same prefix.
func TestWentBack(t *testing.T) {
	c := newCopying(t, 200)
	c.copyAll()
	old, longer, unaware := c.sibling(), c.sibling(), c.sibling()
	if err := os.Remove(filepath.Join(unaware.ground.tree.Dir, copiedFile)); err != nil {
		t.Fatal(err)
	}
	if got := old.back(); got != "" {
		t.Fatalf("control: %s", got)
	}
	c.more(100)
	c.copyAll()
	longer.more(300)
	other := newCopying(t, 50)
	other.folder = c.folder
	other.reopen()
	empty, err := database.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = empty.Close() }()
	none, err := copiesOf(empty, c.blobs(), nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := bucket.Folder(c.folder).List(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		c    *copying
		want string
	}{
		"older": {old, "bucket.back"}, "without its note": {unaware, "bucket.back"}, "continued": {longer, "bucket.back"},
		"another log": {other, "bucket.other"},
	} {
		if got := row.c.codes(true); got != row.want {
			t.Errorf("%s: verify says %s", name, got)
		}
		if got := row.c.back(); got != row.want {
			t.Errorf("%s: a dangerous call gets %q", name, got)
		}
		if err := row.c.copies.copy(t.Context()); err == nil {
			t.Errorf("%s: it was copied", name)
		}
	}
	if m, err := none.look(t.Context()); err != nil || m.Against == nil || m.Against.Code != "bucket.back" {
		t.Errorf("removed: %+v, %v", m, err)
	}
	if got := c.codes(true) + c.back(); got != "bucket.seen" {
		t.Errorf("the log that the bucket has: %s", got)
	}
	after, err := bucket.Folder(c.folder).List(t.Context(), "", "")
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("objects were added: %v %v", after, err)
	}
}

// plant writes an object into the folder of the bucket, in place of one that is there.
func (c *copying) plant(name string, b []byte) {
	c.t.Helper()
	file := filepath.Join(c.folder, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, b, 0o600)); err != nil {
		c.t.Fatal(err)
	}
}

// forget removes what a waldo knows of its bucket.
func (c *copying) forget() {
	c.t.Helper()
	if err := os.Remove(filepath.Join(c.ground.tree.Dir, copiedFile)); err != nil {
		c.t.Fatal(err)
	}
}

// TestPlanted: objects that the log's key did not sign stop neither calls nor copies, and hide no checkpoint
// that it signed.
func TestPlanted(t *testing.T) {
	for name, plant := range map[string]func(c *copying){
		"nothing": func(*copying) {},
		"40 checkpoints": func(c *copying) {
			for i := range int64(40) {
				c.plant(checkpointObject(9000000000000000+i), []byte("junk"))
			}
		},
		"a large checkpoint": func(c *copying) {
			c.plant(checkpointObject(9000000000000000), nil)
			if err := os.Truncate(filepath.Join(c.folder, checkpointObject(9000000000000000)), 1<<40); err != nil {
				c.t.Skip(err)
			}
		},
		"a link": func(c *copying) {
			if err := os.Symlink("/dev/zero", filepath.Join(c.folder, checkpointObject(9000000000000000))); err != nil {
				c.t.Skip(err)
			}
		},
		"an origin and a key": func(c *copying) { c.plant(originObject, []byte("x")); c.plant(keyObject, []byte("x")) },
		"tiles":               func(c *copying) { c.plant("tile/0/000.p/251", []byte("x")); c.plant("tile/0/001.p/45", []byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCopying(t, 100)
			c.copyAll()
			old := c.sibling()
			c.more(100)
			c.copyAll()
			plant(c)
			c.more(50)
			err := c.copies.copy(t.Context())
			if m := c.read(); m.Size != 251 || (err == nil) != (name == "nothing") {
				t.Errorf("a copy: %+v, %v", m, err)
			}
			c.more(50)
			_ = c.copies.copy(t.Context())
			if m, got := c.read(), c.back(); m.Size != 301 || got != "" {
				t.Errorf("a call: %q, %+v", got, m)
			}
			if got := c.codes(true); (got == "bucket.seen") != (name == "nothing") || strings.Contains(got, "unreachable") {
				t.Errorf("verify: %s", got)
			}
			if got, found := old.back(), old.codes(false); got != "bucket.back" || !strings.HasPrefix(found, got) {
				t.Errorf("back in time: %q, %s", got, found)
			}
			old.forget()
			if got := old.back(); got != "bucket.back" {
				t.Errorf("back in time, without its note: %q", got)
			}
		})
	}
}

// TestAdded: checkpoints that the log's key signed for a log that was rewritten do not hide the older ones.
func TestAdded(t *testing.T) {
	c := newCopying(t, 100)
	c.copyAll()
	old := c.sibling()
	c.more(50)
	c.copyAll()
	old.more(100)
	if got := old.back(); got != "bucket.back" {
		t.Fatalf("control: %q", got)
	}
	there := old.folder
	old.folder = t.TempDir()
	old.reopen()
	old.copyAll()
	for _, name := range []string{checkpointObject(201), "tile/0/000.p/201"} {
		b, err := os.ReadFile(filepath.Join(old.folder, name))
		if err != nil {
			t.Fatal(err)
		}
		c.plant(name, b)
	}
	old.folder = there
	old.reopen()
	for _, forgets := range []bool{false, true} {
		if forgets {
			old.forget()
		}
		if got, found := old.back(), old.codes(false); got != "bucket.back" || found != got {
			t.Errorf("rewritten: %q, %s", got, found)
		}
	}
}

// TestAnotherKey: a log without its key is not the one of the bucket. Who can only write there cannot say so.
func TestAnotherKey(t *testing.T) {
	c := newCopying(t, 100)
	c.copyAll()
	keyless, aware := c.sibling(), c.sibling()
	origin := c.grow().Origin
	if got := keyless.back(); got != "" {
		t.Fatalf("control: %q", got)
	}
	keyless.forget()
	for _, one := range []*copying{keyless, aware} {
		_, key, err := ed25519.GenerateKey(nil)
		err = errors.Join(err, os.Remove(filepath.Join(one.ground.tree.Dir, checkpointFile)),
			one.ground.tree.Keys.Set(slot(origin), secret.NewValue(base64.StdEncoding.EncodeToString(key.Seed()))))
		if err != nil {
			t.Fatal(err)
		}
		if got, found := one.back(), one.codes(false); got != "bucket.back" || found != got {
			t.Errorf("another key: %q, %s", got, found)
		}
		one.more(50)
		if err := one.copies.copy(t.Context()); err == nil || !strings.Contains(err.Error(), "by another key") {
			t.Errorf("it was copied: %v", err)
		}
	}
	if got := c.codes(true) + c.back(); got != "bucket.seen" {
		t.Errorf("the log that the bucket has: %s", got)
	}
	private, public, err := note.GenerateKey(nil, origin)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	text := torchwood.Checkpoint{Origin: origin, Tree: tlog.Tree{N: 7}}.String()
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		t.Fatal(err)
	}
	c.plant(keyObject, []byte(public))
	c.forget()
	if got, found := c.back(), c.codes(false); got != "" || found != "bucket.differs" {
		t.Errorf("a key that signed nothing: %q, %s", got, found)
	}
	c.plant(checkpointObject(7), signed)
	if got, found := c.back(), c.codes(false); got != "bucket.back" || found != got {
		t.Errorf("a key that signed, and this waldo remembers none: %q, %s", got, found)
	}
	again := newCopying(t, 100)
	again.copyAll()
	again.plant(keyObject, []byte(public))
	again.plant(checkpointObject(7), signed)
	if got, found := again.back(), again.codes(false); got != "" || found != "bucket.foreign bucket.differs" {
		t.Errorf("a key that signed, and this waldo remembers its own: %q, %s", got, found)
	}
}

// crowded is a bucket to which somebody added names, with time for so many objects in one look.
type crowded struct {
	bucket.Bucket
	added []string
	most  int // objects that a look can read; one that reads "origin" begins anew
	page  int // names that a list comes to before its time is over; 0: all
	read  map[string]int
	left  int
}

func (b *crowded) List(ctx context.Context, prefix, after string) ([]string, error) {
	names, err := b.Bucket.List(ctx, prefix, after)
	for _, name := range b.added {
		if strings.HasPrefix(name, prefix) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); b.page > 0 && len(names) > b.page {
		return names[:b.page], context.DeadlineExceeded
	}
	return names, err
}

func (b *crowded) Get(ctx context.Context, name string, most int) ([]byte, error) {
	if name == originObject {
		b.left = b.most
	}
	if !strings.HasPrefix(name, checkpoints) {
		return b.Bucket.Get(ctx, name, most)
	}
	if b.left--; b.left < 0 {
		return nil, context.DeadlineExceeded
	}
	b.read[name]++
	got, err := b.Bucket.Get(ctx, name, most)
	if errors.Is(err, fs.ErrNotExist) && slices.Contains(b.added, name) {
		return []byte("junk"), nil
	}
	return got, err
}

// crowd adds names to the bucket of a log.
func (c *copying) crowd(most, page int, names ...string) *crowded {
	b := &crowded{c.copies.bucket, names, most, page, map[string]int{}, 0}
	c.copies.bucket = b
	return b
}

// TestCrowd: names that somebody added to the bucket hide no checkpoint. Until each was read, a dangerous call is denied
// and nothing is copied; the next look goes on where the last one ended, and reads no forged one twice.
func TestCrowd(t *testing.T) {
	c := newCopying(t, 100)
	c.copyAll()
	old := c.sibling()
	c.more(50)
	c.copyAll()
	var odd, forged []string
	for i := range 3000 {
		odd = append(odd, fmt.Sprintf("%s-%06d", checkpointObject(101), i), fmt.Sprintf("%s1%016d", checkpoints, i),
			fmt.Sprintf("%s-%015d", checkpoints, i+1), fmt.Sprintf("%s+%015d", checkpoints, i))
		if n := int64(102 + i); n != 151 {
			forged = append(forged, checkpointObject(n))
		}
	}
	const looks = 6 // of 500 objects, for 2,999 that are forged

	t.Run("names of another form", func(t *testing.T) { // they are not read
		back, sound := old.sibling(), c.sibling()
		b := back.crowd(1, 0, odd...)
		if got := back.back(); got != "bucket.back" || len(b.read) != 1 {
			t.Errorf("back in time: %q, %d objects", got, len(b.read))
		}
		sound.forget() // a name with a plus sorts before each number
		sound.crowd(2, 0, odd...)
		if got, found := sound.back(), sound.read(); got != "" || found.Error == "" {
			t.Errorf("control: %q, %+v", got, found)
		}
	})
	for _, forgets := range []bool{false, true} {
		t.Run(fmt.Sprintf("forged ones, without its note: %t", forgets), func(t *testing.T) {
			back := old.sibling()
			if forgets {
				back.forget()
			}
			b := back.crowd(500, 0, forged...)
			for i := range looks - 1 {
				if got := back.back(); got != "bucket.unread" || len(b.read) != 500*(i+1) {
					t.Fatalf("look %d: %q, %d objects", i, got, len(b.read))
				}
				if !back.read().Looked.IsZero() {
					t.Fatalf("look %d: the next call does not go on", i)
				}
			}
			if got := back.back(); got != "bucket.back" {
				t.Errorf("the last look: %q", got)
			}
		})
	}
	t.Run("a copy waits", func(t *testing.T) {
		back := old.sibling()
		b := back.crowd(500, 0, forged...)
		if err := back.copies.copy(t.Context()); err == nil || back.read().Against.Code != "bucket.back" || len(b.read) < 2900 {
			t.Errorf("%v, %+v, %d objects", err, back.read().Against, len(b.read))
		}
		sound := c.sibling()
		sound.more(50)
		sound.crowd(0, 0, forged...)
		if err := sound.copies.copy(t.Context()); err == nil || sound.read().Size != 151 {
			t.Errorf("it was copied: %v, %+v", err, sound.read())
		}
	})
	t.Run("a list without an end", func(t *testing.T) {
		back := old.sibling()
		back.crowd(1, 2000, odd...)
		if got := back.back(); got != "bucket.unread" {
			t.Errorf("back in time: %q", got)
		}
	})
	t.Run("the log of the bucket", func(t *testing.T) { // its calls go on once all was read
		sound := c.sibling()
		b := sound.crowd(500, 0, forged...)
		for range looks {
			if got := sound.back(); got != "bucket.unread" {
				t.Fatalf("%q", got)
			}
		}
		for range 2 {
			if got, m := sound.back(), sound.read(); got != "" || m.Error == "" {
				t.Errorf("%q, %+v", got, m.Error)
			}
		}
		for name, times := range b.read {
			if times > 1 && name != checkpointObject(151) {
				t.Errorf("%s was read %d times", name, times)
			}
		}
		b.added = nil
		if got, m := sound.back(), sound.read(); got != "" || len(m.Forged) > 0 || m.Error != "" {
			t.Errorf("after they were removed: %q, %+v", got, m)
		}
	})
}

// TestSlow: a bucket without the time for the checkpoint that this waldo stored stops neither calls nor copies.
func TestSlow(t *testing.T) {
	c := newCopying(t, 100)
	c.copyAll()
	c.crowd(0, 0)
	if got, m := c.back(), c.read(); got != "" || m.Error != errPart.Error() {
		t.Errorf("a call: %q, %q", got, m.Error)
	}
	c.more(50)
	if err := c.copies.copy(t.Context()); err == nil || c.read().Size != 151 {
		t.Errorf("a copy: %v, %+v", err, c.read())
	}
}

// TestAnotherLooks: a call for which another process's look does not end in time is denied.
func TestAnotherLooks(t *testing.T) {
	c := newCopying(t, 10)
	unlock, err := c.ground.tree.lock(t.Context(), lookLock)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if m, err := c.look(short); err == nil || m.Against == nil || m.Against.Code != "bucket.unread" {
		t.Errorf("%+v, %v", m.Against, err)
	}
	unlock()
	if got := c.back(); got != "" {
		t.Errorf("control: %q", got)
	}
}

// TestCrowdedKey: a state directory without a log, and a bucket whose checkpoints were not all read, is denied.
func TestCrowdedKey(t *testing.T) {
	c := newCopying(t, 10)
	c.copyAll()
	s, err := database.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for most, want := range map[int]string{1: "bucket.unread", 9: "bucket.back"} {
		none, err := copiesOf(s, c.blobs(), nil)
		if err != nil {
			t.Fatal(err)
		}
		empty := &copying{&ground{c.t, "", s, treeOf(s)}, c.folder, none}
		empty.crowd(most, 0, checkpointObject(101), checkpointObject(102))
		if m, _ := none.look(t.Context()); m.Against == nil || m.Against.Code != want {
			t.Errorf("%d objects: %+v", most, m.Against)
		}
	}
}

// TestAway: a reason against calls stays while the bucket cannot be reached.
func TestAway(t *testing.T) {
	c := newCopying(t, 20)
	c.copyAll()
	old := c.sibling()
	c.more(20)
	c.copyAll()
	if got := old.back(); got != "bucket.back" {
		t.Fatalf("control: %q", got)
	}
	if err := os.Rename(c.folder, c.folder+"-gone"); err != nil {
		t.Fatal(err)
	}
	if got := old.back(); got != "bucket.back" {
		t.Errorf("away: %q", got)
	}
	if m := old.read(); m.Error == "" || m.Against == nil {
		t.Errorf("%+v", m)
	}
}

// TestPrunedSegments: a segment whose records were removed here is compared with the hashes of the tree.
func TestPrunedSegments(t *testing.T) {
	c := newCopying(t, 200)
	c.copyAll()
	closed, err := audit.ClosedSegments(c.ground.tree.Dir)
	if err != nil || len(closed) < 2 {
		t.Fatalf("%v %v", closed, err)
	}
	if err := os.Remove(filepath.Join(c.ground.tree.Dir, closed[0].Name)); err != nil {
		t.Fatal(err)
	}
	if got := c.codes(true); got != "bucket.seen" {
		t.Fatalf("control: %s", got)
	}
	file := filepath.Join(c.folder, "segment", closed[0].Name)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	end := strings.LastIndex(strings.TrimSuffix(string(b), "\n"), "\n") + 1
	for name, text := range map[string]string{
		"changed": strings.Replace(string(b), `"body":{}`, `"body":{"n":1}`, 1), "cut at a record": string(b[:end]), "empty": "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := c.codes(true); got != "bucket.differs" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestCopiesS3 is against a real S3 server.
func TestCopiesS3(t *testing.T) {
	s := s3test.Start(t)
	blobs := contract.Blobs{URL: "s3://" + s3test.Bucket + "/host-1", Endpoint: s.Endpoint, Region: "us-east-1", Key: "id",
		Secret: "key"}
	over := func(c *copying) {
		t.Helper()
		var err error
		c.copies, err = copiesOf(c.ground.store, blobs, func(r secret.Ref) (secret.Value, error) {
			return secret.NewValue(map[secret.Ref]string{"id": s3test.ID, "key": s3test.Secret}[r]), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	c := newCopying(t, 300)
	over(c)
	c.copyAll()
	old := c.sibling()
	over(old)
	c.more(300)
	c.copyAll()
	if got := c.codes(true); got != "bucket.seen" {
		t.Fatalf("control: %s: %+v", got, c.copies.verify(t.Context(), true))
	}
	if m, err := old.look(t.Context()); err != nil || m.Against == nil || m.Against.Code != "bucket.back" {
		t.Errorf("back in time: %+v %v", m, err)
	}
	other := newCopying(t, 10)
	over(other)
	if err := other.copies.copy(t.Context()); err == nil || !strings.Contains(err.Error(), "another waldo writes there") {
		t.Errorf("another waldo: %v", err)
	}
	c.folder = filepath.Join(s.Folder, "host-1")
	c.replace(c.first(segments), flip)
	if got := c.codes(true); got != "bucket.differs" {
		t.Errorf("replaced: %s", got)
	}
	if err := os.Remove(c.first(segments)); err != nil {
		t.Fatal(err)
	}
	if got := c.codes(false); got != "bucket.missing" {
		t.Errorf("removed: %s", got)
	}
}
