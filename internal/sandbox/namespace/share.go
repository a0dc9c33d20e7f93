//go:build linux && (amd64 || arm64)

package namespace

import (
	"fmt"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/volume"
)

// Share satisfies sandbox.Abilities, for one place of a sandbox.
func (b *instance) Share(target, dir string) ([]string, error) {
	b.sharing.Lock()
	defer b.sharing.Unlock()
	for _, p := range b.places {
		if p.Target == target && p.Tmpfs.Export {
			if b.shared[target] == nil {
				if b.shared == nil {
					b.shared = map[string]*volume.Syncer{}
				}
				b.shared[target] = &volume.Syncer{}
			}
			return b.shared[target].Sync(p, dir, volume.AsUser(b.uid, b.gid))
		}
	}
	return nil, fmt.Errorf("namespace: %q is not a place of this sandbox that may be shared", target)
}

// Abilities satisfies sandbox.Sandbox.
func (b *instance) Abilities() sandbox.Abilities {
	return sandbox.Abilities{
		Bridge: b.Bridge, Share: b.Share,
		Pause:  func() error { return b.group.Freeze(true) },
		Resume: func() error { return b.group.Freeze(false) },
		Spent:  b.Spent,
		PID:    func() int { return b.init.Pid },
		Lacks:  b.warnings,
	}
}
