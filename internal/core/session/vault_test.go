package session

import "testing"

// TestVaultIsWiped: a call that is under way when its session closes finds no value in the vault, and adds none.
func TestVaultIsWiped(t *testing.T) {
	for why, end := range map[string]func(m *Manager, c *clock, s Info){
		"closed": func(m *Manager, _ *clock, s Info) { m.Close(s.ID) },
		"idle": func(m *Manager, c *clock, _ Info) {
			c.t = c.t.Add(Defaults().Idle)
			if len(m.Sweep()) == 0 {
				t.Error("control: nothing was closed")
			}
		},
	} {
		t.Run(why, func(t *testing.T) {
			m, c, d := setup(t, Defaults())
			s, _ := m.Get(d.Call.Session)
			v := m.vault(s.ID)
			token, ok := v.Token("EMAIL", "ada@example.org")
			if got, found := v.Value(token); !ok || !found || got != "ada@example.org" {
				t.Fatalf("control: %q %q %t", token, got, found)
			}
			end(m, c, s)
			if got, ok := v.Value(token); ok {
				t.Errorf("the vault still has %q", got)
			}
			if got, ok := v.Token("EMAIL", "ben@example.org"); ok {
				t.Errorf("the vault gives a token still: %q", got)
			}
			if len(v.tokens)+len(v.values) > 0 {
				t.Errorf("%d values are left in memory", len(v.tokens)+len(v.values))
			}
		})
	}
}

func TestVaultTokensInForm(t *testing.T) {
	v := NewVault(5)
	v.Avoid("person-2@redacted.example")
	_, _ = v.Token("EMAIL", "Person-3@redacted.example")
	one, _ := v.Like("EMAIL", "Jane@x.example")
	same, _ := v.Like("EMAIL", "jane@X.example")
	next, _ := v.Like("EMAIL", "joe@x.example")
	if one != "person-1@redacted.example" || same != one || next != "person-4@redacted.example" {
		t.Errorf("got %s %s %s", one, same, next)
	}
	if s, ok := v.Value(one); !ok || s != "Jane@x.example" {
		t.Errorf("%s stands for %q", one, s)
	}
	if s, ok := v.Like("NAME", "Jane Doe"); ok {
		t.Errorf("a class without a form gave %s", s)
	}
	for _, text := range []string{"a", "b", "c", "d"} {
		v.Avoid(text)
	}
	if s, ok := v.Like("EMAIL", "ann@x.example"); ok {
		t.Errorf("a vault that can note no more texts gave %s", s)
	}
	v = NewVault(1)
	_, _ = v.Like("EMAIL", "jane@x.example")
	if s, ok := v.Like("EMAIL", "joe@x.example"); ok {
		t.Errorf("a full vault gave %s", s)
	}
	v.Wipe()
	if s, ok := v.Value("person-1@redacted.example"); ok {
		t.Errorf("a wiped vault has %s", s)
	}
}
