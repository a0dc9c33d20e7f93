package sandbox

import (
	"bytes"
	"strings"
	"testing"
)

// TestValidateDirect: a command whose pipes waldo uses itself has no other input or output.
func TestValidateDirect(t *testing.T) {
	argv, direct := []string{"/bin/true"}, &Direct{}
	if err := (Command{Argv: argv, Serve: true, Direct: direct}).Validate(); err != nil {
		t.Errorf("control: %v", err)
	}
	for why, c := range map[string]Command{
		"no server":      {Argv: argv, Direct: direct},
		"another input":  {Argv: argv, Direct: direct, Serve: true, Stdin: strings.NewReader("")},
		"another output": {Argv: argv, Direct: direct, Serve: true, Stdout: &bytes.Buffer{}},
	} {
		if err := c.Validate(); err == nil ||
			err.Error() != "a command with Direct needs Serve, and neither Stdin nor Stdout" {
			t.Errorf("%s: %v", why, err)
		}
	}
}
