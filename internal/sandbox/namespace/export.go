//go:build linux && (amd64 || arm64)

package namespace

import (
	"fmt"

	"waldo/internal/sandbox/common"
)

// Export copies what the last run left in an exported Tmpfs to a folder of the host, which it
// makes if need be. It returns the paths of the files, from the folder. Files that cannot be
// copied are in the error; the rest is copied all the same.
func (b *box) Export(target, dir string) ([]string, error) {
	b.running.Lock()
	defer b.running.Unlock()
	copied, err := common.Export(b.places, target, dir)
	if err != nil {
		err = fmt.Errorf("namespace: %w", err)
	}
	return copied, err
}
