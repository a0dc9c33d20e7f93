package sandboxes

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// durable returns when all that was written to a folder's file system will outlast a power cut: one wait
// for however many files.
func durable(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
