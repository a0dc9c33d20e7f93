package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"waldo/internal/cli/exitcode"
	"waldo/internal/core/redact"
	"waldo/internal/model/secret"
)

// TestHiding: an error, a hint and a crash show no secret that is known.
func TestHiding(t *testing.T) {
	const canary = "canary-in-an-error"
	known, out := &redact.Registry{}, &bytes.Buffer{}
	w := exitcode.Hiding{W: out, Known: known}
	if exitcode.Report(w, false, errors.New("it said "+canary)); !strings.Contains(out.String(), canary) {
		t.Fatalf("control: %q", out)
	}
	out.Reset()
	if err := known.Add("env:K", secret.NewValue(canary)); err != nil {
		t.Fatal(err)
	}
	exitcode.Report(w, false, &exitcode.Exit{
		Code: exitcode.Failed, Err: errors.New("it said " + canary), Hint: "try " + canary,
	})
	if code := exitcode.Crashed(w, errors.New("broken by "+canary)); code != exitcode.Failed {
		t.Errorf("a crash has exit code %d", code)
	}
	if got := out.String(); strings.Contains(got, canary) || strings.Count(got, "[SECRET]") != 3 {
		t.Errorf("got %q", got)
	}
}

// TestFullDisk: an error caused by a full disk carries a hint.
func TestFullDisk(t *testing.T) {
	var out bytes.Buffer
	exitcode.Report(&out, false, &exitcode.Exit{
		Code: exitcode.Failed, Err: &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC},
	})
	if got := out.String(); !strings.Contains(got, "\nhint: free space on the disk") {
		t.Errorf("%q", got)
	}
}
