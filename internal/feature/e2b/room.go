package e2b

import (
	"context"
	"time"

	"waldo/internal/budget"
)

// Limits of streams and of what waldo holds in memory for them.
const (
	maxStreams    = 512 // of one server
	maxStreamsKey = 256
	maxStreamsBox = 64
	maxWatches    = 64 // of one key
	maxMemory     = 256 << 20
	maxMemoryKey  = 32 << 20
	memoryWait    = 5 * time.Second
)

// room is what streams and bodies take of one server, with a share for each key.
type room struct {
	streams *budget.Gate // by key, a byte for each
	within  *budget.Gate // streams by sandbox
	watched *budget.Gate // streams of WatchDir by key
	glances *budget.Gate // by key, one at a time
	memory  *budget.Gate // bytes by key
}

func newRoom() room {
	const all = 1 << 20 // of what another limit bounds
	return room{
		streams: budget.New(budget.Limits{Memory: maxStreams, Share: maxStreamsKey, Each: maxStreamsKey}),
		within:  budget.New(budget.Limits{Memory: all, Each: maxStreamsBox}),
		watched: budget.New(budget.Limits{Memory: all, Each: maxWatches}),
		glances: budget.New(budget.Limits{Memory: all, Each: 1, Wait: time.Hour}),
		memory:  budget.New(budget.Limits{Memory: maxMemory, Share: maxMemoryKey, Each: all, Wait: memoryWait}),
	}
}

// stream lets a stream of a sandbox in, or fails at once.
func (m room) stream(ctx context.Context, b box) (leave func(), err error) {
	key, err := m.streams.Enter(ctx, b.Owner, 1)
	if err != nil {
		return nil, fail(429, "%d streams of one key are open at most, and %d of all", maxStreamsKey, maxStreams)
	}
	box, err := m.within.Enter(ctx, b.ID, 1)
	if err != nil {
		key()
		return nil, fail(429, "%d streams of one sandbox are open at most", maxStreamsBox)
	}
	return func() { box(); key() }, nil
}
