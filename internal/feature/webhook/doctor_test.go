package webhook

import (
	"strings"
	"testing"

	"waldo/internal/app"
	"waldo/internal/app/secrets"
	"waldo/internal/core/redact"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// TestDoctor: a secret that fits its scheme is ok, each other one has a hint, and no secret is in the text.
func TestDoctor(t *testing.T) {
	t.Setenv("HOOK_GOOD", "0123456789abcdef0123")
	t.Setenv("HOOK_SHORT", "xyzzy")
	hook := func(ref secret.Ref) contract.Webhook { return contract.Webhook{Scheme: "github", Secret: ref} }
	cfg := &contract.Config{Webhooks: map[string]contract.Webhook{"good": hook("env:HOOK_GOOD"),
		"short": hook("env:HOOK_SHORT"), "none": hook("env:HOOK_NONE")}}
	known := &redact.Registry{}
	state := t.TempDir()
	got := doctor(t.Context(), app.Place{State: state, Config: cfg, Known: known,
		Secret: secrets.New(state, cfg, known, nil).Get})
	want := map[string]bool{"webhook good": true, "webhook short": false, "webhook none": false}
	if len(got) != len(want) {
		t.Errorf("%+v", got)
	}
	for _, a := range got {
		if ok, there := want[a.Name]; !there || a.OK != ok || a.OK != (a.Hint == "") || strings.Contains(a.What,
			"xyzzy") {
			t.Errorf("%+v", a)
		}
	}
}
