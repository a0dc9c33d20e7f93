package pkginstall

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Files returns the digest of the names and contents of all files in a folder. Anything in it but
// regular files and folders is refused: a link would show what the digest does not hold.
func Files(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	all := sha256.New()
	lines := json.NewEncoder(all) // a name is quoted, so that none can stand for two
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%w: %s is not a regular file", ErrPin, name)
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		one := sha256.New()
		if _, err := io.Copy(one, f); err != nil {
			return err
		}
		return lines.Encode([]string{name, hex.EncodeToString(one.Sum(nil))})
	})
	return "sha256:" + hex.EncodeToString(all.Sum(nil)), err
}
