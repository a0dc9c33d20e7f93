//go:build linux && (amd64 || arm64)

package namespace

// Pause stops every process of the box where it stands.
func (b *box) Pause() error { return b.group.Freeze(true) }

// Resume lets the processes of the box go on.
func (b *box) Resume() error { return b.group.Freeze(false) }
