package redact

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"waldo/internal/core/policy"
	"waldo/internal/core/session"
	"waldo/internal/detect"
	"waldo/internal/detect/surrogate"
	"waldo/internal/model/contract"
)

// formDesk is desk with tokens in the form of the values.
func formDesk(t *testing.T) (*Redactor, policy.Decision, *session.Manager) {
	t.Helper()
	r, d, m := desk(t)
	r.Configure(contract.Redaction{Model: detect.Classes(), Tokens: true, Format: true})
	return r, d, m
}

// restoredTo restores one argument.
func restoredTo(t *testing.T, r *Redactor, d policy.Decision, text string) string {
	t.Helper()
	q, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		t.Fatal(err)
	}
	d.Call.Args = args(t, `{"to":`+string(q)+`}`)
	a, err := r.Restore(d)
	if err != nil {
		t.Fatal(err)
	}
	all, err := values(a.Raw())
	if err != nil || len(all) != 1 {
		t.Fatalf("%s: %v", a.Raw(), err)
	}
	return all[0].text(string(a.Raw()))
}

const formed = "mail jane@x.example or jane@x.example, ben@x.example; call (415) 555-0132 or +49 30 1234567; " +
	"SSN 078-05-1120, card 4111-1111-1111-1111, IBAN GB82 WEST 1234 5698 7654 32, from 81.2.69.142"

const formedTokens = "mail person-1@redacted.example or person-1@redacted.example, person-2@redacted.example; " +
	"call (555) 555-0100 or +99 90 0000002; SSN 000-00-0001, card 9999-0000-0000-0010, " +
	"IBAN ZZ00 XXXX 0000 0000 0000 01, from 240.0.0.1"

func TestTokensInTheFormOfTheValue(t *testing.T) {
	r, d, m := formDesk(t)
	if got := shown(r, d, formed); got != formedTokens {
		t.Fatalf("the model sees\n%s, want\n%s", got, formedTokens)
	}
	if got := shown(r, d, formed); got != formedTokens {
		t.Errorf("the second time the model sees\n%s", got)
	}
	if got := restoredTo(t, r, d, formedTokens); got != formed {
		t.Errorf("the tool receives\n%s", got)
	}
	d.Call.Args = args(t, `{"to":"person-2@redacted.example"}`)
	want := `person-2@redacted.example stands for "ben@x.example"`
	if got := r.Meanings(d); len(got) != 1 || got[0] != want {
		t.Errorf("the human reads %q", got)
	}
	if got := string(r.Args(d).Raw()); got != `{"to":"person-2@redacted.example"}` {
		t.Errorf("the log has %s", got)
	}

	closed := d
	closed.Contract.Mode = contract.Read
	if got := restoredTo(t, r, closed, formedTokens); got != formedTokens {
		t.Errorf("a tool that sees no class receives\n%s", got)
	}
	closed.Contract.Keys = map[string]contract.Position{"redact": {}}
	closed.Contract.Redact = []string{"secrets", "email"}
	if got := restoredTo(t, r, closed, "person-1@redacted.example 000-00-0001"); got != "person-1@redacted.example 078-05-1120" {
		t.Errorf("a tool that sees all but addresses receives %s", got)
	}
	other, err := m.Open("os:1000", "w_2")
	if err != nil {
		t.Fatal(err)
	}
	d.Call.Session = other.ID
	if got := restoredTo(t, r, d, formedTokens); got != formedTokens {
		t.Errorf("another session restores\n%s", got)
	}
}

// Text of a tool in the form of a token gets a token of its own, and is never taken for a person's value.
func TestTextInTheFormOfATokenIsNotRestored(t *testing.T) {
	r, d, _ := formDesk(t)
	shown(r, d, "card 4111-1111-1111-1111")
	if got := shown(r, d, "9999-0000-0000-0010"); got != "[TEXT_1]" {
		t.Fatalf("the model sees %q", got)
	}
	if got := restoredTo(t, r, d, "[TEXT_1]"); got != "9999-0000-0000-0010" {
		t.Errorf("the tool receives %q", got)
	}
	d.Call.Args = args(t, `{"q":"9999-0000-0000-0010"}`)
	if got := shown(r, d, "no hits for 9999-0000-0000-0010"); got != "no hits for 9999-0000-0000-0010" {
		t.Errorf("an echo of the call's own token became %q", got)
	}
}

// A token that comes back is not personal data again.
func TestTokensInFormAreStable(t *testing.T) {
	r, d, _ := formDesk(t)
	shown(r, d, formed)
	d.Contract.Transport = contract.SandboxedExec
	if got := shown(r, d, formedTokens); got != formedTokens {
		t.Errorf("what the agent's code printed became\n%s", got)
	}
	in := `{"phone":"` + shown(r, d, "(415) 555-0132") + `"}`
	if got := string(r.show(d).json([]byte(in))); got != in {
		t.Errorf("the field became %s", got)
	}
}

// A value in the form of a token that was never issued passes as it is, and no value gets it later.
func TestFormsNeverIssued(t *testing.T) {
	r, d, _ := formDesk(t)
	const made = "person-1@redacted.example, 000-00-0001"
	if got := restoredTo(t, r, d, made); got != made {
		t.Fatalf("the tool receives %s", got)
	}
	if got := shown(r, d, "jane@x.example, 078-05-1120"); got != "person-2@redacted.example, 000-00-0002" {
		t.Errorf("the model sees %s", got)
	}
	if got := restoredTo(t, r, d, made); got != made {
		t.Errorf("then the tool receives %s", got)
	}
	d.Contract.Transport = contract.SandboxedExec
	if got := shown(r, d, "219-09-9999 000-00-0003"); got != "000-00-0004 000-00-0003" {
		t.Errorf("beside text of that form the model sees %s", got)
	}
}

// A token that other text would seem to continue has brackets.
func TestFormsBesideOtherText(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		{`a\njane@x.example`, `a\n[EMAIL_1]`},
		{"cc=%3Bjane@x.example", "cc=%3B[EMAIL_1]"},
		{"jane%40x.example", "[EMAIL_1]"},
		{"01 23 45 67 89", "[PHONE_1]"},
	} {
		r, d, _ := formDesk(t)
		if got := shown(r, d, row.in); got != row.want {
			t.Errorf("%q: the model sees %q, want %q", row.in, got, row.want)
		}
		if got := restoredTo(t, r, d, row.want); got != row.in {
			t.Errorf("%q: the tool receives %q", row.in, got)
		}
	}
}

// FuzzTokensInForm tokenises and restores a text, which must give the text again. No token is in the text before.
func FuzzTokensInForm(f *testing.F) {
	f.Add(formed)
	f.Add(formedTokens + "\n" + formed)
	f.Add("4111 1111 1111 1111 12 items, 81.2.69.142-81.2.69.150, +49 30 1234567 +49 30 7654321")
	f.Add("(415) 555-0132 [EMAIL_1] 555-555-0100 999 555 0199")
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToLower(Clean(text)) // addresses in two spellings are restored as first seen
		if len(text) > 2000 || strings.Contains(text, "[secret]") {
			return
		}
		r, d, _ := formDesk(t)
		got := shown(r, d, text)
		if strings.Contains(got, secretMask) || strings.Contains(got, "withheld") {
			return
		}
		if back := restoredTo(t, r, d, got); back != text {
			t.Fatalf("%q\nis shown as %q\nand restored to %q", text, got, back)
		}
		for _, x := range surrogate.In(text) {
			if v, ok := r.Vaults.Value(d.Call.Session, text[x.Start:x.End]); ok {
				t.Fatalf("%q: a token in the text stands for %q", text, v)
			}
		}
	})
}
