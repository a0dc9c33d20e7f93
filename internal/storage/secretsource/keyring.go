package secretsource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/zalando/go-keyring"

	"waldo/internal/model/secret"
)

// errNoKeyring says what a machine without a keyring lacks.
var errNoKeyring = errors.New("no keyring can be reached: it wants a session bus (DBUS_SESSION_BUS_ADDRESS) and a " +
	"Secret Service on it, such as gnome-keyring or KeePassXC")

// Keyring reads one item of the operating system's keyring: the Secret Service on Linux, where an
// item has the attributes service and username, the keychain on macOS, the credentials on Windows.
func Keyring(service, account string) (string, error) {
	if err := bus(); err != nil {
		return "", err
	}
	v, err := keyring.Get(service, account)
	return v, inKeyring(err)
}

// SetKeyring writes one item of the keyring.
func SetKeyring(service, account, value string) error {
	if err := bus(); err != nil {
		return err
	}
	return inKeyring(keyring.Set(service, account, value))
}

// bus makes sure that there is a bus to speak on: without an address the library would start one.
func bus() error {
	if runtime.GOOS != "linux" || os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return nil
	}
	path := os.Getenv("XDG_RUNTIME_DIR") + "/bus"
	if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeSocket == 0 {
		return errNoKeyring
	}
	return nil
}

func inKeyring(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, keyring.ErrNotFound):
		return ErrMissing
	case errors.Is(err, keyring.ErrUnsupportedPlatform):
		return errNoKeyring
	}
	return fmt.Errorf("%w (%w)", errNoKeyring, err)
}

// fromKeyring asks the keyring, which may ask a person and so is not waited for longer than any source.
func (s Sources) fromKeyring(p secret.Place) (fetched, error) {
	if s.Keyring == nil {
		return fetched{}, ErrClosed
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchPatience)
	defer cancel()
	type answer struct {
		v   string
		err error
	}
	got := make(chan answer, 1)
	go func() {
		v, err := s.Keyring(p.Path, p.Name)
		got <- answer{v, err}
	}()
	select {
	case a := <-got:
		return fetched{value: secret.NewValue(a.v), lasts: keyringLasts}, a.err
	case <-ctx.Done():
		return fetched{}, errors.New("the keyring does not answer; is it locked?")
	}
}
