package upstream

import (
	"fmt"
	"strings"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/executor/upstream/content"
	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
)

// TestResourceContents: a result of resources/read holds so many contents, each with a uri and either text or a blob.
func TestResourceContents(t *testing.T) {
	one := `{"uri":"x://y","text":"a"}`
	for _, row := range []struct {
		why, list string
		good      bool
	}{
		{"control: text", "[" + one + "]", true},
		{"control: a blob", `[{"uri":"x://y","blob":"YQ=="}]`, true},
		{"control: the most", "[" + strings.Repeat(one+",", content.MaxBlocks-1) + one + "]", true},
		{"one more", "[" + strings.Repeat(one+",", content.MaxBlocks) + one + "]", false},
		{"no list", one, false},
		{"no uri", `[{"text":"a"}]`, false},
		{"neither text nor a blob", `[{"uri":"x://y"}]`, false},
		{"both", `[{"uri":"x://y","text":"a","blob":"YQ=="}]`, false},
	} {
		v, err := strictjson.Parse([]byte(row.list))
		if err != nil {
			t.Fatal(err)
		}
		if o := resourceRead(result{"contents": v}, policy.Decision{}); o.IsError == row.good {
			t.Errorf("%s: %+v", row.why, o.Facts)
		}
	}
}

// TestSubscriptionsAreBounded: a server's resources are subscribed to where it offers that, up to a bound.
func TestSubscriptionsAreBounded(t *testing.T) {
	s, ses := &server{subs: map[string]map[call.Session]bool{}}, &session{}
	ses.can.subscribe = true
	d := policy.Decision{Call: call.Call{Session: "n_1"}}
	for i := range maxSubs {
		if o := s.subscribe(ses, d, fmt.Sprint("x://", i), false); o != nil {
			t.Fatalf("control: %d: %+v", i, o.Facts)
		}
	}
	if o := s.subscribe(ses, d, "x://more", false); o == nil || !o.IsError {
		t.Error("one more was accepted")
	}
	if o := s.subscribe(ses, d, "x://1", true); o != nil {
		t.Errorf("an end: %+v", o.Facts)
	}
	if o := s.subscribe(ses, d, "", false); o == nil || !o.IsError {
		t.Error("a subscription to nothing was accepted")
	}
	if o := s.subscribe(&session{}, d, "x://more", false); o == nil || !o.IsError {
		t.Error("a server without subscriptions was asked for one")
	}
}
