package audit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/storage/database"
	"waldo/internal/testing/storetest"
)

// lab is a log with two heads and all that a deployment promises of it, under attack by a process of the same user.
type lab struct {
	*approvals
	copy   *memory // of the head, elsewhere
	expect Expect
	now    func() time.Time
}

func (b *lab) options() Options { return Options{Heads: b.store, Second: b.copy, Now: b.now} }

// newLab enrols ann, whom a pin names, and bob, and revokes bob. set says how old the records get.
func newLab(t *testing.T, pin bool) *lab {
	t.Helper()
	s, err := storetest.Open(t, filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b := &lab{approvals: &approvals{t: t, store: s, dir: s.Path("log")}, copy: &memory{}, now: time.Now}
	b.expect.Keeps = []Retention{{}}
	b.open()
	if pin {
		b.ann = b.enrol("ann", nil)
		b.enrol("bob", b.ann)
		b.must(b.desk.Revoke(ctx, "bob", b.ann))
		b.expect.Pins = []string{b.root().Fingerprint()}
	}
	b.notes(6)
	b.shut()
	return b
}

func (b *lab) open() {
	b.t.Helper()
	b.log = openLog(b.t, b.dir, b.options())
	w := &Witness{Dir: b.dir}
	b.rec = &Recorder{Log: b.log, Witness: w}
	b.desk = &approval.Service{Store: b.store, Witness: w,
		Records: Desk{b.rec, "os:1"}}
}

func (b *lab) shut() {
	b.t.Helper()
	closeLog(b.t, b.log)
	b.log = nil
}

func (b *lab) notes(n int) {
	b.t.Helper()
	for range n {
		if _, err := b.log.Append(ctx, "decision", []byte(`{}`), true); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *lab) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// found returns the codes of the problems and of what was not checked, each once, in order.
func (b *lab) found() string {
	b.t.Helper()
	o := b.options()
	if b.copy == nil {
		o.Second = nil
	}
	anchors, err := Anchors(ctx, o)
	b.must(err)
	r, err := Verify(ctx, b.dir, anchors, b.now(), b.expect)
	b.must(err)
	var out []string
	for _, f := range r.Findings {
		if (f.Problem || f.Unchecked) && !slices.Contains(out, f.Code) {
			out = append(out, f.Code)
		}
	}
	if r.OK != !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Problem }) ||
		r.Complete != !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Unchecked }) {
		b.t.Errorf("ok %v, complete %v: %+v", r.OK, r.Complete, r.Findings)
	}
	return strings.Join(out, " ")
}

func (b *lab) file() string {
	b.t.Helper()
	names, err := segments(b.dir)
	if err != nil || len(names) == 0 {
		b.t.Fatal(names, err)
	}
	return filepath.Join(b.dir, names[len(names)-1])
}

func (b *lab) lines() [][]byte {
	l := bytes.SplitAfter(mustRead(b.t, b.file()), []byte("\n"))
	return l[:len(l)-1]
}

func (b *lab) write(lines [][]byte) {
	b.t.Helper()
	b.must(os.WriteFile(b.file(), bytes.Join(lines, nil), 0o600))
}

// flip changes one text of the first line that has another.
func (b *lab) flip(line, from, to string) {
	b.t.Helper()
	l := b.lines()
	i := slices.IndexFunc(l, func(x []byte) bool { return bytes.Contains(x, []byte(line)) })
	if i < 0 || !bytes.Contains(l[i], []byte(from)) {
		b.t.Fatalf("control: no line has %s and %s", line, from)
	}
	l[i] = bytes.Replace(l[i], []byte(from), []byte(to), 1)
	b.write(l)
}

// edit changes one text of the fourth line.
func (b *lab) edit(from, to string) {
	b.t.Helper()
	l := b.lines()
	if !bytes.Contains(l[3], []byte(from)) {
		b.t.Fatalf("control: no %s", from)
	}
	l[3] = bytes.Replace(l[3], []byte(from), []byte(to), 1)
	b.write(l)
}

// swap gives one line the 64 digits of another one after a text.
func (b *lab) swap(l [][]byte, i, j int, after string) {
	digits := func(x []byte) []byte { at := bytes.LastIndex(x, []byte(after)) + len(after); return x[at : at+64] }
	copy(digits(l[i]), digits(l[j]))
	b.write(l)
}

// reseal changes one record and gives it a fitting hash.
func (b *lab) reseal(i int, change func(*Record)) {
	b.t.Helper()
	l := b.lines()
	r, err := parseRecord(bytes.TrimSuffix(l[i], []byte("\n")))
	b.must(err)
	change(&r)
	l[i] = r.seal(nil)
	b.write(l)
}

// add appends a record with a fitting hash.
func (b *lab) add(kind string, body any) {
	b.t.Helper()
	l := b.lines()
	last, err := parseRecord(bytes.TrimSuffix(l[len(l)-1], []byte("\n")))
	b.must(err)
	text, err := json.Marshal(body)
	b.must(err)
	r := Record{Seq: last.Seq + 1, ID: last.ID, At: database.Stamp(b.now()), Prev: last.Hash, Kind: kind, Body: text}
	b.write(append(l, r.seal(nil)))
}

// forgePrune removes the first records with a record that says so, and no key.
func (b *lab) forgePrune(keep time.Duration) Record {
	b.t.Helper()
	l := b.lines()
	gone, err := parseRecord(bytes.TrimSuffix(l[len(l)-2], []byte("\n")))
	b.must(err)
	old := b.file()
	b.add(KindPruned, Pruned{Checkpoint: approval.Checkpoint{Through: gone.Seq, Hash: gone.Hash},
		Segments: []string{filepath.Base(old)}, Newest: database.Stamp(b.now().Add(-keep)), Keep: keep.String(), By: "os:1"})
	rest := b.lines()[len(l)-1:]
	b.must(os.Remove(old))
	b.must(os.WriteFile(filepath.Join(b.dir, segmentName(gone.Seq+1)), bytes.Join(rest, nil), 0o600))
	first, err := parseRecord(bytes.TrimSuffix(rest[0], []byte("\n")))
	b.must(err)
	return first
}

// moveHeads rewrites the beginning in waldo.db, and in the copy where that is in reach.
func (b *lab) moveHeads(first Record, elsewhere bool) {
	b.t.Helper()
	to := []Heads{b.store}
	if elsewhere {
		to = append(to, b.copy)
	}
	for _, s := range to {
		h, err := s.Head(ctx, Name)
		b.must(err)
		moved := *h
		moved.First, moved.FirstHash = first.Seq, first.Hash
		b.must(s.ResetHead(ctx, Name, moved))
	}
}

// oldHeads makes the heads those of a waldo that stored the last record alone.
func (b *lab) oldHeads() { b.moveHeads(Record{}, true) }

// aside sets the log aside, as an operator does after a flipped byte of a note.
func (b *lab) aside() {
	b.t.Helper()
	b.flip(`"kind":"decision"`, `"body":{}`, `"body":{ }`)
	a := Aside{By: "os:1", Reason: "disk", Expect: b.expect}
	if b.ann != nil {
		a.Sign = b.signAside
	}
	_, err := SetAside(ctx, b.dir, b.options(), a)
	b.must(err)
}

func (b *lab) asideFolder() string {
	all, err := filepath.Glob(filepath.Join(b.dir, "aside-*"))
	if err != nil || len(all) != 1 {
		b.t.Fatal(all, err)
	}
	return all[0]
}

// second returns the enrolment of another first approver, signed by itself.
func second(t *testing.T) Enrolled {
	pub, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := approval.Approver{Name: "eve", Key: hex.EncodeToString(pub), Roles: []string{}, By: "eve",
		At: database.Stamp(time.Now().Add(time.Second))}
	return Enrolled{Enrolment: approval.Enrolment{Action: "enrol", Approver: "eve", Key: a.Fingerprint(), Public: a.Key,
		By: "eve", At: a.At, Signature: base64.StdEncoding.EncodeToString(ed25519.Sign(private, a.Message()))}, User: "os:1"}
}

// TestTampering edits a log, its heads, or what was set aside, and names what verify then finds, exactly. Each row
// begins with a log of which verify finds nothing.
func TestTampering(t *testing.T) {
	const month = 30 * 24 * time.Hour
	keeps := func(b *lab, d time.Duration) { b.expect.Keeps = []Retention{{Keep: d}} }
	for _, r := range []struct {
		why   string
		named bool // the log names approvers, and a pin the first
		want  string
		do    func(b *lab)
	}{
		{"a byte of a record", true, "record.hash", func(b *lab) { b.flip(`"kind":"decision"`, `"body":{}`, `"body":{ }`) }},
		{"a byte of a revocation", true, "record.hash", func(b *lab) {
			b.flip(`"action":"revoke"`, `"revoke"`, `"Xevoke"`)
		}},
		{"a revocation is gone", true, "record.order", func(b *lab) {
			b.write(slices.DeleteFunc(b.lines(), func(l []byte) bool { return bytes.Contains(l, []byte(`"revoke"`)) }))
		}},
		{"a revocation became a note with a fitting hash", true, "chain.broken", func(b *lab) {
			l := b.lines()
			i := slices.IndexFunc(l, func(x []byte) bool { return bytes.Contains(x, []byte(`"revoke"`)) })
			old, err := parseRecord(bytes.TrimSuffix(l[i], []byte("\n")))
			b.must(err)
			old.Kind, old.Body = "note", []byte(`{}`)
			l[i] = old.seal(nil)
			b.write(l)
		}},
		{"the end is cut", true, "head.past_end", func(b *lab) { l := b.lines(); b.write(l[:len(l)-2]) }},
		{"all is gone", true, "head.past_end", func(b *lab) { b.must(os.Remove(b.file())) }},
		{"a line is doubled", false, "record.order", func(b *lab) { l := b.lines(); b.write(append(l, l[len(l)-1])) }},
		{"two lines are swapped", false, "record.order", func(b *lab) {
			l := b.lines()
			l[2], l[3] = l[3], l[2]
			b.write(l)
		}},
		{"an empty line", false, "line.layout", func(b *lab) { b.write(append(b.lines(), []byte("\n"))) }},
		{"no end of the last line", false, "line.torn head.past_end", func(b *lab) {
			l := b.lines()
			l[len(l)-1] = bytes.TrimSuffix(l[len(l)-1], []byte("\n"))
			b.write(l)
		}},
		{"the first line is gone", false, "record.order", func(b *lab) { b.write(b.lines()[1:]) }},
		{"the beginning is cut, and the segment renamed", false, "head.beginning segment.order", func(b *lab) {
			l, old := b.lines(), b.file()
			b.must(os.Remove(old))
			b.must(os.WriteFile(filepath.Join(b.dir, segmentName(5)), bytes.Join(l[4:], nil), 0o600))
		}},
		{"a forged prune", false, "head.beginning prune.unasked", func(b *lab) { b.forgePrune(3 * month) }},
		{"a forged prune, and waldo.db fits", false, "head.beginning prune.unasked", func(b *lab) {
			b.moveHeads(b.forgePrune(3*month), false)
		}},
		{"a forged prune, and no head is left to say", false, "prune.unasked", func(b *lab) {
			b.moveHeads(b.forgePrune(3*month), true)
		}},
		{"a forged prune of young records", false, "prune.early", func(b *lab) {
			keeps(b, 3*month)
			b.moveHeads(b.forgePrune(month), true)
		}},
		{"a forged prune, and no configuration is known", false, "prune.unchecked", func(b *lab) {
			b.expect.Keeps = nil
			b.moveHeads(b.forgePrune(3*month), true)
		}},
		{"a forged prune, and heads of the old format", false, "head.format prune.unasked", func(b *lab) {
			b.forgePrune(3 * month)
			b.oldHeads()
		}},
		{"a forged prune in a log with approvers", true, "head.beginning prune.unasked prune.unsigned", func(b *lab) {
			b.forgePrune(3 * month)
		}},
		{"the same, the heads fit, and a file that nobody signed asks for it", true, "prune.unasked prune.unsigned", func(b *lab) {
			keeps(b, month)
			b.moveHeads(b.forgePrune(3*month), true)
		}},
		{"a prune record that removes nothing", true, "prune.unsigned", func(b *lab) {
			b.add(KindPruned, Pruned{Checkpoint: approval.Checkpoint{Through: 2, Hash: genesis}, By: "os:1"})
		}},
		{"a second genesis", true, "genesis.second", func(b *lab) {
			b.add(kindGenesis, map[string]any{"set_aside": map[string]any{"x": 1}})
		}},
		{"the first record is no genesis", false, "genesis.absent chain.broken head.mismatch", func(b *lab) {
			l := b.lines()
			first, err := parseRecord(bytes.TrimSuffix(l[0], []byte("\n")))
			b.must(err)
			first.Kind = "note"
			l[0] = first.seal(nil)
			b.write(l)
		}},
		{"another first record with a fitting hash", false, "chain.broken head.mismatch", func(b *lab) {
			l := b.lines()
			first, err := parseRecord(bytes.TrimSuffix(l[0], []byte("\n")))
			b.must(err)
			first.Body = []byte(`{"log":"l_other"}`)
			l[0] = first.seal(nil)
			b.write(l)
		}},
		{"a second first approver", true, "approver.second", func(b *lab) { b.add(KindApprover, second(b.t)) }},
		{"an enrolment that nobody signed", true, "approver.signature", func(b *lab) {
			e := second(b.t)
			e.Signature = ""
			b.add(KindApprover, e)
		}},
		{"the head in waldo.db is removed", false, "head.absent", func(b *lab) { b.exec(`DELETE FROM heads`) }},
		{"the copy elsewhere is removed", false, "head.absent", func(b *lab) { b.copy.head = nil }},
		{"log and waldo.db are put back", false, "head.past_end", func(b *lab) {
			l := b.lines()
			last, err := parseRecord(bytes.TrimSuffix(l[3], []byte("\n")))
			b.must(err)
			h, err := b.store.Head(ctx, Name)
			b.must(err)
			h.Seq, h.Hash = last.Seq, last.Hash
			b.must(b.store.ResetHead(ctx, Name, *h))
			b.write(l[:4])
		}},
		{"a record's version", false, "record.version record.order", func(b *lab) { b.edit(`{"v":1`, `{"v":2`) }},
		{"a record's number", false, "record.hash record.order", func(b *lab) { b.edit(`"seq":4`, `"seq":5`) }},
		{"a record's id", false, "line.layout record.order", func(b *lab) { b.edit(`"id":"e_`, `"id":"f_`) }},
		{"a record's time", false, "record.hash", func(b *lab) { b.edit(`"at":"20`, `"at":"21`) }},
		{"a record's link", false, "record.hash chain.broken", func(b *lab) { l := b.lines(); b.swap(l, 3, 6, `"prev":"`) }},
		{"a record's kind", false, "line.layout record.order", func(b *lab) { b.edit(`"kind":"decision"`, `"kind":"decisioX"`) }},
		{"a record's kind by another that exists", false, "record.hash", func(b *lab) { b.edit(`"kind":"decision"`, `"kind":"answer"`) }},
		{"a record's hash", false, "record.hash chain.broken", func(b *lab) { l := b.lines(); b.swap(l, 3, 6, `"hash":"`) }},
		{"a record's number and hash", false, "record.order", func(b *lab) { b.reseal(3, func(r *Record) { r.Seq = 9 }) }},
		{"a record's time and hash", false, "chain.broken", func(b *lab) { b.reseal(3, func(r *Record) { r.At = "2020-01-01T00:00:00.000Z" }) }},
		{"the last record's body and hash", false, "head.mismatch", func(b *lab) {
			b.reseal(len(b.lines())-1, func(r *Record) { r.Body = []byte(`{"x":1}`) })
		}},
		{"a record's copy in another segment", false, "segment.order record.order head.past_end", func(b *lab) {
			b.must(os.WriteFile(filepath.Join(b.dir, segmentName(99)), b.lines()[2], 0o600))
		}},
		{"an empty segment", false, "segment.order", func(b *lab) { b.must(os.WriteFile(filepath.Join(b.dir, segmentName(99)), nil, 0o600)) }},
		{"the segment under another name", false, "segment.order record.order head.beginning", func(b *lab) {
			b.must(os.Rename(b.file(), filepath.Join(b.dir, segmentName(2))))
		}},
		{"all lines in another order", false, "record.order head.past_end", func(b *lab) { l := b.lines(); slices.Reverse(l); b.write(l) }},
		{"waldo.db is put back: only a witness finds it", false, "", func(b *lab) {
			last, err := parseRecord(bytes.TrimSuffix(b.lines()[3], []byte("\n")))
			b.must(err)
			h, err := b.store.Head(ctx, Name)
			b.must(err)
			h.Seq, h.Hash = last.Seq, last.Hash
			b.must(b.store.ResetHead(ctx, Name, *h))
		}},
		{"waldo.db, its copy and the log are put back: only a witness finds it", false, "", func(b *lab) {
			l := b.lines()
			last, err := parseRecord(bytes.TrimSuffix(l[3], []byte("\n")))
			b.must(err)
			h, err := b.store.Head(ctx, Name)
			b.must(err)
			h.Seq, h.Hash = last.Seq, last.Hash
			b.must(errors.Join(b.store.ResetHead(ctx, Name, *h), b.copy.ResetHead(ctx, Name, *h)))
			b.write(l[:4])
		}},
		{"the head names another last record", false, "head.mismatch", func(b *lab) {
			h := *b.copy.head
			h.Hash = genesis
			b.copy.head = &h
		}},
		{"set aside, and the folder is gone", true, "aside.missing", func(b *lab) {
			b.aside()
			b.must(os.RemoveAll(b.asideFolder()))
		}},
		{"set aside, and the folder is edited", false, "aside.changed", func(b *lab) {
			b.aside()
			f := filepath.Join(b.asideFolder(), segmentName(1))
			b.must(os.WriteFile(f, mustRead(b.t, f)[1:], 0o600))
		}},
		{"set aside with one head alone", false, "head.mismatch head.past_end", func(b *lab) {
			second := b.copy
			b.flip(`"kind":"decision"`, `"body":{}`, `"body":{ }`)
			_, err := SetAside(ctx, b.dir, Options{Heads: b.store}, Aside{By: "os:1", Reason: "x", Expect: b.expect})
			b.must(err)
			b.copy = second
		}},
		{"begun anew without a word of the log before", false, "head.before head.mismatch", func(b *lab) {
			b.aside()
			l := b.lines()
			first, err := parseRecord(bytes.TrimSuffix(l[0], []byte("\n")))
			b.must(err)
			first.Body = []byte(`{"log":"l_other"}`)
			l[0] = first.seal(nil)
			b.write(l)
		}},
		{"set aside, and the signature is taken out", true, "head.mismatch aside.unsigned", func(b *lab) {
			b.aside()
			l := b.lines()
			first, err := parseRecord(bytes.TrimSuffix(l[0], []byte("\n")))
			b.must(err)
			i := bytes.Index(first.Body, []byte(`"signature":"`)) + len(`"signature":"`)
			first.Body = bytes.Clone(first.Body)
			first.Body[i], first.Body[i+1] = 'A', 'A'
			l[0] = first.seal(nil)
			b.write(l)
		}},
		{"an old approver after the log was set aside", true, "approver.old", func(b *lab) {
			old, _, err := signed(ctx, b.dir, 1<<40)
			b.must(err)
			b.aside()
			b.add(KindApprover, Enrolled{Enrolment: old[0], User: "os:1"})
		}},
		{"what the caller could not find out", false, "config.unread", func(b *lab) {
			b.expect.Unchecked = []Finding{Unchecked("config.unread", "x")}
		}},
	} {
		t.Run(r.why, func(t *testing.T) {
			b := newLab(t, r.named)
			if said := b.found(); said != "" {
				t.Fatal("control: ", said)
			}
			r.do(b)
			got, want := strings.Fields(b.found()), strings.Fields(r.want)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestBeginningIsHeld: waldo does not start over a log whose beginning a head denies, and a running one stops.
func TestBeginningIsHeld(t *testing.T) {
	for _, r := range []struct {
		why     string
		db, far bool // whether the head fits, too
		refused bool // by another start
		stops   bool // the running one
		old     bool // the heads are of the format before
	}{
		{"neither head fits", false, false, true, true, false},
		{"waldo.db fits", true, false, true, true, false},
		{"control: both fit", true, true, false, false, false},
		{"heads of the format before", false, false, false, true, true},
	} {
		t.Run(r.why, func(t *testing.T) {
			b := newLab(t, false)
			b.open() // runs on
			running := b.log
			first := b.forgePrune(90 * 24 * time.Hour)
			if r.db {
				b.moveHeads(first, r.far)
			}
			if r.old {
				b.oldHeads()
			}
			_, err := running.Append(ctx, "decision", []byte(`{}`), true)
			if tampered := errors.Is(err, ErrTampered); tampered != r.stops || !tampered && err != nil {
				t.Errorf("the running one: %v", err)
			}
			_ = running.Close()
			l, err := Open(ctx, b.dir, b.options())
			if tampered := errors.Is(err, ErrTampered); tampered != r.refused || !tampered && err != nil {
				t.Fatalf("another start: %v", err)
			}
			if err == nil {
				if came := l.Recovery().Beginning > 0; came != r.old { // that it was not checked is on record
					t.Errorf("recovered: %+v", l.Recovery())
				}
				closeLog(t, l)
				if h, err := b.store.Head(ctx, Name); err != nil || h.First != first.Seq || h.FirstHash != first.Hash {
					t.Errorf("the head: %+v %v", h, err)
				}
			}
		})
	}
}

// TestWhoSetsAside: a log that named approvers needs the first one's signature, and one whose right ended, or perhaps
// did, cannot give it.
func TestWhoSetsAside(t *testing.T) {
	note := func(b *lab) { b.flip(`"kind":"decision"`, `"body":{}`, `"body":{ }`) }
	for _, r := range []struct {
		why   string
		named bool
		harm  func(b *lab)
		ask   func(b *lab, a *Aside)
		want  error
	}{
		{"control: no approver was ever named", false, note, func(*lab, *Aside) {}, nil},
		{"control: the first one signs", true, note, func(*lab, *Aside) {}, nil},
		{"control: damage past the heads", true, func(b *lab) { b.write(append(b.lines(), []byte("garbage\n"))) },
			func(*lab, *Aside) {}, nil},
		{"a sound log", true, func(*lab) {}, func(*lab, *Aside) {}, ErrSound},
		{"nobody signs", true, note, func(_ *lab, a *Aside) { a.Sign = nil }, ErrUnsigned},
		{"no pin says who is the first", true, note, func(_ *lab, a *Aside) { a.Expect.Pins = nil }, ErrAsideNoRoot},
		{"the pin names another", true, note, func(_ *lab, a *Aside) { a.Expect.Pins = []string{"sha256:0"} },
			ErrAsideNoRoot},
		{"the log names nobody any more, and waldo.db does", true,
			func(b *lab) { b.write([][]byte{[]byte("x\n")}) },
			func(b *lab, a *Aside) {
				var err error
				a.Known, err = b.desk.FirstRows(ctx)
				b.must(err)
				a.Expect.Pins, a.Sign = nil, nil
			}, ErrUnsigned},
		{"a byte of a revocation", true, func(b *lab) { b.flip(`"action":"revoke"`, `"revoke"`, `"Xevoke"`) },
			func(*lab, *Aside) {}, ErrAsideRevoked},
		{"a byte of its kind", true, func(b *lab) { b.flip(`"action":"revoke"`, `"kind":"approver"`, `"kind":"Xpprover"`) },
			func(*lab, *Aside) {}, ErrAsideRevoked},
		{"its bytes are zeros", true, func(b *lab) {
			l := b.lines()
			i := slices.IndexFunc(l, func(x []byte) bool { return bytes.Contains(x, []byte(`"revoke"`)) })
			l[i] = append(make([]byte, len(l[i])-1), '\n')
			b.write(l)
		}, func(*lab, *Aside) {}, ErrAsideRevoked},
		{"it is forged over, with a fitting hash", true, func(b *lab) {
			l := b.lines()
			i := slices.IndexFunc(l, func(x []byte) bool { return bytes.Contains(x, []byte(`"revoke"`)) })
			old, err := parseRecord(bytes.TrimSuffix(l[i], []byte("\n")))
			b.must(err)
			old.Body = bytes.Replace(old.Body, []byte(`"revoke"`), []byte(`"Xevoke"`), 1)
			l[i] = old.seal(nil)
			b.write(l)
		}, func(*lab, *Aside) {}, ErrAsideRevoked},
		{"the first one was revoked", true, func(b *lab) {
			b.open()
			b.must(b.desk.Revoke(ctx, "ann", b.ann))
			b.shut()
			note(b)
		}, func(*lab, *Aside) {}, ErrAsideRevoked},
	} {
		t.Run(r.why, func(t *testing.T) {
			b := newLab(t, r.named)
			r.harm(b)
			a := Aside{By: "os:1", Reason: "disk", Expect: b.expect}
			if r.named {
				a.Sign = b.signAside
			}
			r.ask(b, &a)
			_, err := SetAside(ctx, b.dir, b.options(), a)
			if !errors.Is(err, r.want) || r.want == nil && err != nil {
				t.Fatalf("got %v, want %v", err, r.want)
			}
			if err != nil {
				if all, _ := filepath.Glob(filepath.Join(b.dir, "aside-*")); len(all) > 0 {
					t.Error("it was set aside all the same")
				}
				return
			}
			if said := b.found(); said != "" {
				t.Errorf("afterwards: %s", said)
			}
			if h := b.copy.head; h.Before == nil || h.Before.Seq < 7 || h.Seq != 1 {
				t.Errorf("the copy elsewhere forgot the log before: %+v", h)
			}
		})
	}
}

// TestSecondGenesisVoidsNothing: an appended first record leaves a human's yes as it is.
func TestSecondGenesisVoidsNothing(t *testing.T) {
	b := newLab(t, true)
	b.open()
	d := asking(t, `{}`)
	d.Call.ApprovalID = b.want(d, "waiting")
	b.say(b.ann, d.Call.ApprovalID, true)
	b.shut()
	b.add(kindGenesis, map[string]any{"set_aside": map[string]any{"x": 1}})
	b.open()
	b.want(d, "ran")
	b.shut()
}

// TestFirstKeyDoesNotComeBack: with the log set aside, the first approver's old key enrols nobody, whenever it signs.
func TestFirstKeyDoesNotComeBack(t *testing.T) {
	b := newLab(t, true)
	old := b.root()
	b.aside()
	b.open()
	defer b.shut()
	old.At = database.Stamp(time.Now().Add(time.Minute))
	sig, err := b.ann.Sign(old.Message())
	b.must(err)
	again := approval.Enrolment{Action: "enrol", Approver: "ann", Key: old.Fingerprint(), Public: old.Key, By: "ann",
		At: old.At, Signature: base64.StdEncoding.EncodeToString(sig)}
	b.must(b.rec.Approver(ctx, "os:1", again))
	named := func() (n int) {
		b.must((&Witness{Dir: b.dir}).Look(ctx, func(l *approval.Ledger) { n = len(l.Firsts()) }))
		return n
	}
	if named() != 0 {
		t.Error("the key of the log before counts again")
	}
	if b.enrol("ann", nil); named() != 1 {
		t.Error("control: a new key does not count")
	}
}
