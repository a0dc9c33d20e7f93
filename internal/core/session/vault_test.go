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
