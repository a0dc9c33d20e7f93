package sandboxes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/model/id"
)

// Whoever can write the database must not choose what waldo makes, reads and deletes on this machine.
func TestRowsNameNoPaths(t *testing.T) {
	for name, row := range map[string]struct{ from, to string }{
		"control":          {"", ""},
		"id":               {`"id":"s_`, `"id":"../../victim","x":"`},
		"id of another":    {`"id":"s_`, `"id":"../workspaces/w_`},
		"workspace":        {`"workspace":"w_`, `"workspace":"../victim","x":"`},
		"workspace and up": {`"workspace":"w_`, `"workspace":"w_../../../victim","x":"`},
		"session":          {`"session":"n_`, `"session":"../victim","x":"`},
		"name":             {`"name":"work"`, `"name":"../victim"`},
		"name of another":  {`"name":"work"`, `"name":"other"`},
		"owner":            {`"owner":"` + me, `"owner":"` + other},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := fresh(t)
			ctx := t.Context()
			s := create(t, m, me, "work")
			sound := create(t, m, me, "sound")
			victim := filepath.Join(m.store.Dir(), "victim")
			err := errors.Join(os.MkdirAll(victim, 0o700), os.WriteFile(filepath.Join(victim, "top"), nil, 0o600))
			if err != nil {
				t.Fatal(err)
			}
			text, _, err := m.store.Get(ctx, bucket, key(me, "work"))
			if err != nil || !strings.Contains(text, row.from) {
				t.Fatal(text, err)
			}
			text = strings.Replace(text, row.from, row.to, 1)
			if err := m.store.Put(ctx, bucket, key(me, "work"), text); err != nil {
				t.Fatal(err)
			}
			_, begun := m.Begin(ctx, me, "work", id.New(id.Call), true)
			_, taken := m.Snapshot(ctx, me, "work")
			all, listed := m.List(ctx, me)
			_, swept := m.Sweep(ctx)
			if name == "control" {
				if begun != nil || listed != nil || swept != nil || len(all) != 2 {
					t.Fatal(begun, listed, swept, all)
				}
				return
			}
			if listed != nil || len(all) != 1 || all[0].ID != sound.ID {
				t.Errorf("the list: %v %v", all, listed)
			}
			for _, err := range []error{begun, taken, swept, m.Remove(ctx, me, "work", true)} {
				if !errors.Is(err, ErrRow) || !strings.Contains(err.Error(), `"os:1000/work"`) {
					t.Errorf("%v", err)
				}
			}
			if in, err := os.ReadDir(victim); err != nil || len(in) != 1 {
				t.Errorf("the folder was changed: %v %v", in, err)
			}
			if _, err := os.Stat(m.store.Path("workspaces", s.Workspace)); err != nil {
				t.Errorf("a sweep deleted the files of a row that cannot be read: %v", err)
			}
		})
	}
}

func TestRowsOfSnapshotsNameNoPaths(t *testing.T) {
	m, _ := fresh(t)
	ctx := t.Context()
	create(t, m, me, "work")
	p, err := m.Snapshot(ctx, me, "work")
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := m.store.Get(ctx, snapshots, p.ID)
	if _, control := m.Picture(ctx, me, p.ID); err != nil || control != nil {
		t.Fatal(err, control)
	}
	for _, change := range [][2]string{{p.ID, id.New(id.Snapshot)}, {p.ID, "../x"}, {p.Of.ID, "../x"},
		{p.Of.Workspace, "w_../x"}} {
		if err := m.store.Put(ctx, snapshots, p.ID, strings.Replace(text, change[0], change[1], 1)); err != nil {
			t.Fatal(err)
		}
		_, looked := m.Picture(ctx, me, p.ID)
		_, listed := m.Snapshots(ctx, me)
		_, restored := m.Restore(ctx, me, "work", p.ID)
		for _, err := range []error{looked, listed, restored, m.Forget(ctx, me, p.ID), m.sweepBlobs(ctx)} {
			if !errors.Is(err, ErrRow) {
				t.Errorf("%s: %v", change[1], err)
			}
		}
	}
}
