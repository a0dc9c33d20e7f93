//go:build linux && (amd64 || arm64)

package namespace

import (
	"fmt"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/common"
)

// Share satisfies sandbox.Sharer, for one place of a box.
func (b *box) Share(target, dir string) ([]string, error) {
	b.sharing.Lock()
	defer b.sharing.Unlock()
	for _, p := range b.places {
		if p.Target == target && p.Tmpfs.Export {
			return b.shared.Exchange(p, dir, common.AsUser(b.uid, b.gid))
		}
	}
	return nil, fmt.Errorf("namespace: %q is not a place of this box that may be shared", target)
}

var _ sandbox.Sharer = (*box)(nil)
