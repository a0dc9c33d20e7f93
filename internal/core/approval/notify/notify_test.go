//go:build unix

package notify

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
)

// The operator's command gets each question, without the arguments unless they are configured.
func TestNotify(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	q := approval.Question{ID: id.New(id.Approval), Capability: "mail.send", Args: []byte(`{"to":"[EMAIL_2]"}`),
		Notes: []string{`[EMAIL_2] stands for "ann@example.com"`}}
	for _, with := range []bool{false, true} {
		out := filepath.Join(t.TempDir(), "told")
		rules := contract.Approvals{Notify: []string{sh, "-c", `cat > "$0"`, out}, NotifyArguments: with}
		New(func() contract.Approvals { return rules }, trusted).Notify(context.Background(), q)
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if told := string(b); !strings.Contains(told, q.ID) || !strings.Contains(told, "mail.send") ||
			strings.Contains(told, "[EMAIL_2]") != with || strings.Contains(told, "ann@example.com") != with {
			t.Errorf("arguments %v: %s", with, told)
		}
	}
	out := filepath.Join(t.TempDir(), "told")
	changed := contract.Approvals{Notify: []string{sh, "-c", `cat > "$0"`, out}}
	New(func() contract.Approvals { return changed }, func([]string) ([]string, string, error) { return nil, "", errors.New("it changed") }).
		Notify(context.Background(), q)
	if _, err := os.Stat(out); err == nil {
		t.Error("a command that was not trusted as it is now was run")
	}
	n := New(func() contract.Approvals { return contract.Approvals{Notify: []string{sh, "-c", "sleep 60"}} }, trusted)
	for range maxNotifying {
		n.slots <- struct{}{}
	}
	start := time.Now()
	n.Notify(context.Background(), q)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("one command too many was run: %v", took)
	}
}

// trusted takes every command as it was trusted.
func trusted(argv []string) ([]string, string, error) { return argv, "", nil }
