//go:build linux && (amd64 || arm64)

package namespace

import "errors"

// Export copies what the last run left in an exported Tmpfs to a folder of the host.
func (b *box) Export(target, dir string) ([]string, error) {
	return nil, errors.New("namespace: export is not built yet")
}
