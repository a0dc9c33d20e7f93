//go:build unix

package secretsource

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"

	"waldo/internal/model/secret"
)

// sealed is text in an age file, in armour or not.
func sealed(t *testing.T, text string, armoured bool, to ...age.Recipient) string {
	t.Helper()
	var out bytes.Buffer
	w := closing(nopCloser{&out})
	if armoured {
		w = armor.NewWriter(&out)
	}
	a, err := age.Encrypt(w, to...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = a.Write([]byte(text)); err == nil {
		err = errors.Join(a.Close(), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

type closing interface {
	Write([]byte) (int, error)
	Close() error
}

type nopCloser struct{ *bytes.Buffer }

func (nopCloser) Close() error { return nil }

// TestAge: a sealed file opens with the identity or the passphrase it was sealed for, and no other.
func TestAge(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	mine, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	phrase, err := age.NewScryptRecipient("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	phrase.SetWorkFactor(10)
	slow, err := age.NewScryptRecipient("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	slow.SetWorkFactor(10)
	write(t, at("one.age"), sealed(t, canary+"\n", false, mine.Recipient()), 0o644)
	write(t, at("env.age"), sealed(t, "A=other\nTOKEN="+canary+"\n", true, mine.Recipient()), 0o644)
	write(t, at("phrase.age"), sealed(t, canary, false, phrase), 0o600)
	write(t, at("theirs.age"), sealed(t, canary, false, other.Recipient()), 0o600)
	write(t, at("open.age"), sealed(t, canary, false, mine.Recipient()), 0o666)
	write(t, at("bomb.age"), sealed(t, strings.Repeat("x", maxFile+1), false, mine.Recipient()), 0o600)
	write(t, at("key"), "# created by age-keygen\n"+mine.String()+"\n", 0o600)
	write(t, at("openkey"), mine.String()+"\n", 0o644)
	write(t, at("nokey"), canary+"\n", 0o600)
	write(t, at("sealedkey"), sealed(t, mine.String()+"\n", true, slow), 0o600)
	asks := func(phrase string) func(string) (secret.Value, error) {
		return func(string) (secret.Value, error) { return secret.NewValue(phrase), nil }
	}
	s := Sources{Files: true, Identity: at("key"), Passphrase: asks("correct horse")}
	for _, ref := range []secret.Ref{
		"age:" + secret.Ref(at("one.age")), "age:" + secret.Ref(at("env.age")) + "#TOKEN",
		"age:" + secret.Ref(at("phrase.age")),
	} {
		if v, err := s.Resolve(ref); err != nil || v.Reveal() != canary {
			t.Errorf("control %s: %v", ref, err)
		}
	}
	s.Identity = at("sealedkey")
	if v, err := s.Resolve("age:" + secret.Ref(at("one.age"))); err != nil || v.Reveal() != canary {
		t.Errorf("control, an identity that is sealed itself: %v", err)
	}
	rows := []struct {
		why, file string
		s         Sources
		err       error
	}{
		{"sealed for another", "theirs.age", Sources{Files: true, Identity: at("key")}, ErrSealed},
		{"no identity is named", "one.age", Sources{Files: true}, ErrClosed},
		{"others can read the identity", "one.age", Sources{Files: true, Identity: at("openkey")}, ErrUnsafe},
		{"the identity file holds none", "one.age", Sources{Files: true, Identity: at("nokey")}, errNoIdentity},
		{"others can change the sealed file", "open.age", Sources{Files: true, Identity: at("key")}, ErrUnsafe},
		{"more comes out than a secret is long", "bomb.age", Sources{Files: true, Identity: at("key")}, ErrTooBig},
		{"nobody is there to give the passphrase", "phrase.age", Sources{Files: true, Identity: at("key")}, ErrClosed},
		{"another passphrase", "phrase.age", Sources{Files: true, Passphrase: asks("battery staple")}, ErrSealed},
		{"files are closed", "one.age", Sources{Identity: at("key")}, ErrClosed},
		{"there is none", "absent.age", Sources{Files: true, Identity: at("key")}, ErrMissing},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			_, err := r.s.Resolve("age:" + secret.Ref(at(r.file)))
			if !errors.Is(err, r.err) || strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "AGE-SECRET") {
				t.Errorf("got %v, want %v", err, r.err)
			}
		})
	}
}
