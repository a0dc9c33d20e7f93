//go:build unix

package secretsource

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/secret"
)

// TestKeeperRotates: a file that changes is read again, and redaction hears of each value before
// anybody gets it.
func TestKeeperRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "first-secret\n", 0o600)
	var learned []string
	k := &Keeper{Sources: Sources{Files: true}, Learned: func(_ secret.Ref, v secret.Value) error {
		learned = append(learned, v.Reveal())
		return nil
	}}
	ref := secret.Ref("file:" + path)
	for range 3 {
		if v, err := k.Get(ref); err != nil || v.Reveal() != "first-secret" {
			t.Fatal(err)
		}
	}
	next := path + ".new"
	write(t, next, "second-secret\n", 0o600)
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	if v, err := k.Get(ref); err != nil || v.Reveal() != "second-secret" {
		t.Errorf("after the file was replaced: %v", err)
	}
	if got := strings.Join(learned, " "); got != "first-secret second-secret" {
		t.Errorf("learned %q", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if v, err := k.Get(ref); !errors.Is(err, ErrMissing) || !v.IsZero() {
		t.Errorf("a secret that was taken away is given out: %v", err)
	}
}

// TestKeeperTellsBeforeItGives: Get refuses a value that redaction could not register.
func TestKeeperTellsBeforeItGives(t *testing.T) {
	k := &Keeper{
		Sources: Sources{Env: func(string) (string, bool) { return canary, true }},
		Learned: func(secret.Ref, secret.Value) error { return errors.New("no") },
	}
	if v, err := k.Get("env:A"); err == nil || !v.IsZero() {
		t.Error("the value was given out")
	}
	k.Learned = nil
	if v, err := k.Get("env:A"); err != nil || v.Reveal() != canary {
		t.Errorf("control: %v", err)
	}
}

// TestKeeperRefreshes: Get fetches a value again after its time. If the source fails, it uses the value for one more
// period. If the secret is gone, it does not.
func TestKeeperRefreshes(t *testing.T) {
	now := time.Unix(1000, 0)
	asked, fails, answer := 0, error(nil), "value-0"
	k := &Keeper{now: func() time.Time { return now },
		Specs:   map[secret.Ref]secret.Spec{"name": {From: "keyring:a/b", Refresh: 5 * time.Minute}},
		Sources: Sources{Keyring: func(string, string) (string, error) { asked++; return answer, fails }}}
	step := func(d time.Duration, want string, times int) {
		t.Helper()
		now = now.Add(d)
		v, err := k.Get("name")
		if v.Reveal() != want || asked != times || (err == nil) != (want != "") {
			t.Errorf("at %s: %q, asked %d times, %v", now.Format("04:05"), v.Reveal(), asked, err)
		}
	}
	step(0, "value-0", 1)
	step(4*time.Minute, "value-0", 1)
	answer = "value-1"
	step(time.Minute, "value-1", 2)
	fails = errors.New("the bus is gone")
	step(5*time.Minute, "value-1", 3)
	step(4*time.Minute, "value-1", 4)
	step(time.Minute, "", 5)
	fails, answer = nil, "value-2"
	step(time.Second, "value-2", 6)
	fails = ErrMissing
	step(5*time.Minute, "", 7)
}

// TestKeeperNames: a name is the configuration's, else the store's; one without a place has none.
func TestKeeperNames(t *testing.T) {
	k := &Keeper{Specs: map[secret.Ref]secret.Spec{"a": {From: "env:A"}, "elsewhere": {}},
		Sources: Sources{Env: func(string) (string, bool) { return "from-env", true },
			Stored: func(n string) (secret.Value, error) {
				if n != "kept" {
					return secret.Value{}, ErrMissing
				}
				return secret.NewValue("from-store"), nil
			}}}
	for name, want := range map[secret.Ref]string{
		"a": "from-env", "kept": "from-store", "store:kept": "from-store", "env:X": "from-env",
	} {
		if v, err := k.Get(name); err != nil || v.Reveal() != want {
			t.Errorf("%s: %q, %v", name, v.Reveal(), err)
		}
	}
	for name, want := range map[secret.Ref]error{
		"elsewhere": ErrMissing, "absent": ErrMissing, "": ErrForm, "vault:a/b#c": ErrClosed,
	} {
		if _, err := k.Get(name); !errors.Is(err, want) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
