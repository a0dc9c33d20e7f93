package worker

import (
	"errors"
	"testing"

	"waldo/internal/model/secret"
	"waldo/internal/storage/safefile"
)

// TestSeal: a message opens under its own run, attempt, expiry and direction, and under no other.
func TestSeal(t *testing.T) {
	k, err := readKey(secret.NewValue(newKey() + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := readKey(secret.NewValue(newKey()))
	if err != nil {
		t.Fatal(err)
	}
	e := envelope{run: "r_1", attempt: 1, expires: 42}
	sealed := k.seal(toWorker, e, []byte("code"))
	if text, err := k.open(toWorker, e, sealed); err != nil || string(text) != "code" {
		t.Fatalf("control: %q, %v", text, err)
	}
	for why, open := range map[string]func() ([]byte, error){
		"another run":       func() ([]byte, error) { return k.open(toWorker, envelope{"r_2", 1, 42}, sealed) },
		"another attempt":   func() ([]byte, error) { return k.open(toWorker, envelope{"r_1", 2, 42}, sealed) },
		"another expiry":    func() ([]byte, error) { return k.open(toWorker, envelope{"r_1", 1, 43}, sealed) },
		"another direction": func() ([]byte, error) { return k.open(toGateway, e, sealed) },
		"another key":       func() ([]byte, error) { return other.open(toWorker, e, sealed) },
		"a missing byte":    func() ([]byte, error) { return k.open(toWorker, e, sealed[:len(sealed)-1]) },
		"nothing":           func() ([]byte, error) { return k.open(toWorker, e, nil) },
	} {
		if text, err := open(); !errors.Is(err, safefile.ErrSealed) {
			t.Errorf("%s: %q, %v", why, text, err)
		}
	}
	if _, err := readKey(secret.NewValue("c2hvcnQ")); err == nil {
		t.Error("a short key was taken")
	}
}
