package main

import (
	"os"
	"path/filepath"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
)

// waldo serve accepts only the lock that an order names: not another file, and not a replacement with another digest.
func TestOnlyTheAcceptedLockIsTaken(t *testing.T) {
	h, _ := applicationOf(t, "version: 1\n")
	file, err := filepath.Abs(h.lockFile())
	if err != nil {
		t.Fatal(err)
	}
	content := []byte(`{"version":1,"servers":{}}`)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		why          string
		o            order
		serves, kept bool
	}{
		{"control", order{File: file, Lock: strictjson.Digest(content)}, true, false},
		{"another lock is in its place", order{File: file, Lock: strictjson.Digest([]byte("other"))}, true, true},
		{"no digest", order{File: file}, true, true},
		{"another configuration's", order{File: file + ".other", Lock: strictjson.Digest(content)}, false, false},
	} {
		if r := h.attendant.relock(t.Context(), row.o); r.Serves != row.serves || (r.Kept != "") != row.kept {
			t.Errorf("%s: %+v", row.why, r)
		}
	}
}

// What the policy knows of a tool's annotations is as in the lock that was taken last.
func TestTheTakenLockRenewsAnnotations(t *testing.T) {
	h, _ := applicationOf(t, "version: 1\nservers:\n  s: {command: [x]}\ncapabilities:\n  s.wipe: {mode: write, approval: none}\n")
	explained := func() policy.Decision { return h.policy.Explain(call.Call{Capability: "s.wipe"}) }
	if d := explained(); d.Effect != policy.Allow {
		t.Fatalf("control: %+v", d)
	}
	file, err := filepath.Abs(h.lockFile())
	if err != nil {
		t.Fatal(err)
	}
	def, err := strictjson.Parse([]byte(`{"name":"wipe","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	content := []byte(`{"version":1,"servers":{"s":{"command":"c","name":"s","tools":{"wipe":"` + def.Digest() + `"},"definitions":{"wipe":` + string(def.Raw()) + `}}}}`)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := h.attendant.relock(t.Context(), order{File: file, Lock: strictjson.Digest(content)}); r.Kept != "" || !r.Serves {
		t.Fatalf("%+v", r)
	}
	if d := explained(); d.Effect != policy.Ask {
		t.Errorf("%+v", d)
	}
}

// New definitions that a waldo serve stored appear for their server only, under their own names. They never replace a
// definition that the server lists.
func TestAppearedTools(t *testing.T) {
	h, _ := applicationOf(t, "version: 1\n")
	put := func(row string) {
		if err := h.store.Put(t.Context(), appearedBucket, h.appearedKey("s"), row); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		why, row string
		want     int
	}{
		{"control", `{"command":"c","tools":{"late":{"name":"late"}}}`, 2},
		{"started otherwise", `{"command":"other","tools":{"late":{"name":"late"}}}`, 1},
		{"under another name", `{"command":"c","tools":{"late":{"name":"send"}}}`, 1},
		{"the server lists it", `{"command":"c","tools":{"own":{"name":"own","description":"x"}}}`, 1},
		{"not readable", `{`, 1},
	} {
		put(row.row)
		now := lockfile.Locked{Command: "c", Tools: map[string]string{"own": "sha256:1"}, Definitions: map[string]strictjson.Value{}}
		if err := h.withAppeared(t.Context(), "s", &now); err != nil || len(now.Tools) != row.want || now.Tools["own"] != "sha256:1" {
			t.Errorf("%s: %v %v", row.why, now.Tools, err)
		}
	}
}
