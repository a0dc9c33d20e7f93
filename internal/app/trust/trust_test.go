package trust

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/contract"
)

// TestHeld: a found configuration loads only as trusted, together with its lock. A lock of an earlier start must
// exist.
func TestHeld(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	cfg := &contract.Config{
		File: filepath.Join(dir, "waldo.yaml"), Digest: "sha256:1", Servers: map[string]contract.Server{"a": {}},
	}
	lock := LockFile(state, cfg)
	refused := func(why string, err error, want string) {
		t.Helper()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", why, err)
		}
	}
	refused("never trusted", held(state, cfg), "is new or has changed")
	all, key, err := Of(state, cfg)
	if err != nil {
		t.Fatal(err)
	}
	all[key] = Record{Digest: cfg.Digest, Lock: NoLock, At: time.Now()}
	if err := Write(state, all); err != nil {
		t.Fatal(err)
	}
	refused("the control", held(state, cfg), "")
	refused("no lock yet", PinsGone(state, cfg), "")
	if err := os.WriteFile(lock, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a lock appeared", held(state, cfg), "appeared after")
	now, err := Digest(LockFile(state, cfg))
	if err != nil {
		t.Fatal(err)
	}
	all, changed, err := AcceptLock(state, cfg, NoLock, now)
	if err == nil && changed[cfg.File].Lock == now {
		err = Write(state, all)
	}
	if err != nil || len(changed) != 1 {
		t.Fatal(err)
	}
	refused("the lock was accepted", held(state, cfg), "")
	if err := os.WriteFile(lock, []byte("{ }"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("the lock changed", held(state, cfg), "changed after")
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	refused("the lock is gone", PinsGone(state, cfg), "is gone")
	cfg.Digest = "sha256:2"
	refused("the file changed", held(state, cfg), "is new or has changed")
}

// TestPolicy: a found configuration loads only with the witnesses that were trusted.
func TestPolicy(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	cfg := &contract.Config{File: filepath.Join(dir, "waldo.yaml"), Digest: "sha256:1",
		Log: contract.Log{Policy: filepath.Join(dir, "log.policy")}}
	put(t, cfg.Log.Policy, "quorum w")
	trusted, err := Policy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, recorded string
		do             func()
		loads          bool
	}{
		{"control", trusted, func() {}, true},
		{"trusted before waldo recorded it", "", func() {}, false},
		{"trusted without the file", NoLock, func() {}, false},
		{"another witness", trusted, func() { put(t, cfg.Log.Policy, "quorum x") }, false},
		{"the control again", trusted, func() { put(t, cfg.Log.Policy, "quorum w") }, true},
		{"it is gone", trusted, func() { _ = os.Remove(cfg.Log.Policy) }, false},
	} {
		row.do()
		r := Record{Digest: cfg.Digest, Lock: NoLock, Policy: row.recorded}
		if err := Write(state, map[string]Record{cfg.File: r}); err != nil {
			t.Fatal(err)
		}
		want := cfg.Log.Policy + " changed after " + cfg.File + " was trusted"
		err := held(state, cfg)
		if row.loads && err != nil || !row.loads && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	if a, b := (Record{Digest: "d", Policy: "1"}), (Record{Digest: "d", Policy: "2"}); a.Accepted() == b.Accepted() {
		t.Error("the first approver's signature does not cover the witnesses")
	}
}

// TestUnchanged: a program in the folder of a found configuration starts only as it was trusted.
func TestUnchanged(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	program := filepath.Join(dir, "server.sh")
	write := func(text string) {
		if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("#!/bin/sh\n")
	s := contract.Server{
		Name: "a", Command: []string{program}, At: contract.Position{File: filepath.Join(dir, "waldo.yaml")},
	}
	cfg := &contract.Config{File: s.At.File, Servers: map[string]contract.Server{"a": s}}
	trusted, err := Programs(state, cfg)
	if err != nil || len(trusted) != 1 {
		t.Fatal(trusted, err)
	}
	cfg.Programs = trusted
	if err := Unchanged(state, cfg, s); err != nil {
		t.Errorf("control: %v", err)
	}
	write("#!/bin/sh\nevil\n")
	if err := Unchanged(state, cfg, s); err == nil ||
		!strings.Contains(err.Error(), "is not the program that was trusted") {
		t.Errorf("a changed program: %v", err)
	}
	cfg.Programs = nil
	if err := Unchanged(state, cfg, s); err != nil {
		t.Errorf("a named configuration: %v", err)
	}
}

func held(state string, cfg *contract.Config) error {
	_, err := Held(state, cfg)
	return err
}

// TestWords: who signs reads the digest of everything that the record covers, and what changed since the last signature.
func TestWords(t *testing.T) {
	was := Record{Digest: "d1", Lock: NoLock, Policy: "p1", Programs: map[string]string{"a": "a1", "b": "b1"},
		Places: map[string]string{"./data": "/srv/data"}}
	now := Record{Digest: "d2", Lock: "l2", Policy: "p2", Programs: map[string]string{"a": "a1", "c": "c1"},
		Places: map[string]string{"./data": "/srv/other"}}
	const want = "d2, waldo.lock l2\n" +
		"    witnesses of \"log.policy\": p2 (changed: it was p1)\n" +
		"    program \"a\": a1\n    program \"c\": c1 (new)\n    program \"b\": gone\n" +
		"    place \"./data\": /srv/other (changed: it was /srv/data)"
	if got := now.Words(was); got != want {
		t.Errorf("%s\nwanted\n%s", got, want)
	}
	if got := now.Words(Record{}); strings.Contains(got, "new") || strings.Contains(got, "changed") {
		t.Errorf("compared with nothing: %s", got)
	}
}
