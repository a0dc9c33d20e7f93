package secretsource

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"waldo/internal/model/secret"
)

// TestKeyringWithoutBus: on a machine without a session the error says what is missing, and no bus
// is started.
func TestKeyringWithoutBus(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	_, err := Sources{Keyring: Keyring}.Resolve("keyring:waldo-test/token")
	if !errors.Is(err, errNoKeyring) || !strings.Contains(err.Error(), "DBUS_SESSION_BUS_ADDRESS") {
		t.Errorf("got %v", err)
	}
}

// TestKeyring reads from a gnome-keyring in a session bus of its own. The test starts itself there.
func TestKeyring(t *testing.T) {
	if os.Getenv("WALDO_KEYRING_INSIDE") == "1" {
		inside(t)
		return
	}
	for _, program := range []string{"dbus-run-session", "gnome-keyring-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is missing: apt-get install dbus gnome-keyring", program)
			}
			t.Skipf("%s is not installed, so there is no keyring to ask", program)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := exec.Command("dbus-run-session", "--", "sh", "-c",
		`printf pw | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1 && exec "$0" -test.run `+
			`'^TestKeyring$' -test.v`, self)
	c.Env = append(os.Environ(), "WALDO_KEYRING_INSIDE=1", "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_RUNTIME_DIR="+dir,
		"DBUS_SESSION_BUS_ADDRESS=")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil || !strings.Contains(out.String(), "--- PASS: TestKeyring") {
		t.Fatalf("%v\n%s", err, out.String())
	}
}

func inside(t *testing.T) {
	if err := SetKeyring("waldo-test", "token", canary); err != nil {
		t.Fatalf("control: %v", err)
	}
	s := Sources{Keyring: Keyring}
	if v, err := s.Resolve("keyring:waldo-test/token"); err != nil || v.Reveal() != canary {
		t.Errorf("got %v", err)
	}
	if _, err := s.Resolve("keyring:waldo-test/absent"); !errors.Is(err, ErrMissing) {
		t.Errorf("an item that is not there: %v", err)
	}
	if _, err := s.Resolve(secret.Ref("keyring:other/token")); !errors.Is(err, ErrMissing) {
		t.Errorf("another service: %v", err)
	}
}
