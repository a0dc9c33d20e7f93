package runner

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"waldo/internal/core/policy"
	"waldo/internal/core/redact"
	"waldo/internal/executor/admit"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
	"waldo/internal/storage/workspace"
)

// TestUntorn: a piece of text ends with a whole character, and no whole character is lost.
func TestUntorn(t *testing.T) {
	text := strings.Repeat("aé€😀", 3)
	for n := 1; n <= len(text); n++ {
		piece := untorn([]byte(text[:n]))
		if !utf8.Valid(piece) || n-len(piece) >= utf8.UTFMax {
			t.Errorf("%d bytes: %q", n, piece)
		}
		if utf8.ValidString(text[:n]) && len(piece) != n {
			t.Errorf("%d bytes, whole: %q", n, piece)
		}
	}
	if got := untorn([]byte{0xff, 0xfe, 0xfd}); len(got) != 3 {
		t.Errorf("bytes that are no text lost some: %x", got)
	}
}

// TestPieceHidesPartsOfSecrets: no piece of a file shows a part of a known secret at its edge, and pieces read one
// after the other give all of the rest.
func TestPieceHidesPartsOfSecrets(t *testing.T) {
	ws, err := workspace.Open(filepath.Join(t.TempDir(), "workspaces"), id.New(id.Workspace))
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	const hidden = "Zq7Lw2Rt9Xv4Bn6Mk1Pd8Sg3Hj5Fc0Ya"
	known := &redact.Registry{}
	if err := known.Add("s", secret.NewValue(hidden)); err != nil {
		t.Fatal(err)
	}
	for _, before := range []int{0, 5, around + 77} {
		text := strings.Repeat(".", before) + hidden + strings.Repeat("-", 3*around)
		if err := os.WriteFile(filepath.Join(ws.Path(workspace.Output), "f"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		shows := func(r *Runner, from, most int) bool {
			b, _, err := r.piece(ws, "output/f", int64(from), int64(most))
			if err != nil {
				t.Fatal(err)
			}
			return strings.Trim(known.Text(string(b)), ".-") != "" && !strings.Contains(string(b), hidden)
		}
		guarded, control := &Runner{Known: known}, &Runner{Known: &redact.Registry{}}
		if !shows(control, before+3, 10) || !shows(control, 0, before+8) {
			t.Fatal("control: a plain piece shows no part of the secret")
		}
		for at := 0; at <= len(hidden); at += 4 {
			for _, piece := range [][2]int{
				{before + at, 7}, {before + at, around}, {0, before + at}, {max(0, before-3), 3 + at},
			} {
				if piece[1] > 0 && shows(guarded, piece[0], piece[1]) {
					t.Errorf("%d bytes before the secret: a part shows in %d bytes from %d on", before, piece[1], piece[0])
				}
			}
		}
		for _, most := range []int64{7, 20_000, around} {
			var all []byte
			for from, n := int64(0), 0; ; n++ {
				if most == 7 && n > 20 {
					break // the rest is the same for larger pieces
				}
				b, next, err := guarded.piece(ws, "output/f", from, most)
				if err != nil || next != 0 && next <= from {
					t.Fatalf("from %d: next %d, %v", from, next, err)
				}
				if all = append(all, b...); next == 0 {
					break
				}
				from = next
			}
			rest := strings.ReplaceAll(string(all), hidden, "")
			if most > 7 && len(rest) != before+3*around || strings.Trim(rest, ".-") != "" {
				t.Errorf("pieces of %d bytes: %d of %d bytes", most, len(rest), before+3*around)
			}
		}
	}
}

// TestFilesNeedRoom: pictures, tables and pieces of files draw on waldo's own memory. Without room files are links alone,
// and a piece is refused.
func TestFilesNeedRoom(t *testing.T) {
	dir, name := filepath.Join(t.TempDir(), "workspaces"), id.New(id.Workspace)
	open := func(call.Session) (*workspace.Workspace, error) { return workspace.Open(dir, name) }
	ws, err := open("")
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if err := os.WriteFile(filepath.Join(ws.Path(workspace.Output), "a.csv"), []byte("n\n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Runner{Work: admit.Own(), Means: &means{workspace: open}, Known: &redact.Registry{}}
	read := policy.Decision{Call: call.Call{Capability: ReadOutput}}
	read.Contract.Filesystem, read.Contract.Timeout = contract.WorkspaceOnly, 50*time.Millisecond
	if read.Call.Args, err = call.ParseArgs([]byte(`{"name":"output/a.csv"}`)); err != nil {
		t.Fatal(err)
	}
	names := []string{"output/a.csv"}
	var out call.Outcome
	r.show(t.Context(), &out, "", ws, names)
	if len(out.Content) != 2 || !strings.Contains(out.Content[1].Text, "table: 1 row, 1 column") || out.Held == nil {
		t.Fatalf("control: %+v", out.Content)
	}
	out.Release()
	over, err := r.Work.Enter(t.Context(), "", 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	out = call.Outcome{}
	r.show(ctx, &out, "", ws, names)
	if len(out.Content) > 1 || len(out.Facts.Warnings) != 1 || !strings.HasPrefix(out.Facts.Warnings[0], "memory.busy:") {
		t.Errorf("without room: %+v %q", out.Content, out.Facts.Warnings)
	}
	if got, err := r.readOutput(t.Context(), read); err != nil || got.Refused == nil || got.Refused.Code != "memory.busy" {
		t.Errorf("a piece without room: %+v %v", got.Refused, err)
	}
	over()
	if got, err := r.readOutput(t.Context(), read); err != nil || got.Refused != nil || got.Held == nil {
		t.Errorf("control: a piece: %+v %v", got.Refused, err)
	}
}
