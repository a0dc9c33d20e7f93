package eras

import (
	"context"
	"testing"
	"time"
)

type memoryStore map[string]string

func (s memoryStore) Get(_ context.Context, bucket, name string) (string, bool, error) {
	v, ok := s[bucket+" "+name]
	return v, ok, nil
}

func (s memoryStore) Put(_ context.Context, bucket, name, value string) error {
	s[bucket+" "+name] = value
	return nil
}

func TestABookOutlivesItsProcess(t *testing.T) {
	ctx, now, kept := context.Background(), time.Now(), memoryStore{}
	clock := func() time.Time { return now }
	first := New(kept, clock)
	first.Note(ctx, "old", true)
	first.Note(ctx, "new", false)
	second := New(kept, clock)
	if !second.Legacy(ctx, "old") || second.Legacy(ctx, "new") || second.Legacy(ctx, "other") {
		t.Errorf("%v", kept)
	}
	now = now.Add(keep)
	if second.Legacy(ctx, "old") {
		t.Error("an entry holds for longer than a week")
	}
	now = now.Add(-keep)
	second.Note(ctx, "old", false) // it was updated
	if New(kept, clock).Legacy(ctx, "old") {
		t.Errorf("what has changed is not noted: %v", kept)
	}
	kept[bucket+" damaged"] = "yes"
	if second.Legacy(ctx, "damaged") || (*Book)(nil).Legacy(ctx, "old") {
		t.Error("damage, or no book, says something")
	}
}
