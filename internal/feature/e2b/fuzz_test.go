package e2b

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/contract"
	"waldo/internal/storage/workspace"
)

// FuzzBody: a body of a client is refused with a status, or is one that the checks accept.
func FuzzBody(f *testing.F) {
	for _, s := range []string{`{}`, `{"timeout":1,"metadata":{"a":"b"},"network":{"allowOut":["a.example.com"]}}`,
		`{"process":{"cmd":"/bin/bash","args":["-c","x"],"envs":{"A":"1"},"cwd":"~/x"},"pty":{"size":{"cols":1,"rows":2}}}`,
		`{"code":"1","env_vars":{"A":"b"}}`, `{"input":{"stdin":"eA"},"process":{"pid":7}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c creation
		err := parse(b, &c)
		if err == nil {
			err = c.check()
		}
		var s starting
		serr := parse(b, &s)
		if serr == nil {
			serr = s.check()
		}
		for _, err := range []error{err, serr, parse(b, &execution{}), parse(b, &struct{ Process selector }{})} {
			if f := failedAs(err); err != nil && (f == nil || f.status != 400) {
				t.Errorf("%v", err)
			}
		}
		if s.Process.Cwd != nil && serr == nil && *s.Process.Cwd != "" && !path.IsAbs(*s.Process.Cwd) {
			t.Errorf("the folder %q", *s.Process.Cwd)
		}
	})
}

// FuzzUnwrap: an envelope is taken whole or refused, and never read beyond its length.
func FuzzUnwrap(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 2, '{', '}'})
	f.Add([]byte{1, 0, 0, 0, 2, '{', '}'})
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := unwrap(bytes.NewReader(b))
		if err != nil {
			if failedAs(err) == nil {
				t.Error(err)
			}
			return
		}
		if b[0] != 0 || len(got) != int(binary.BigEndian.Uint32(b[1:])) || !bytes.Equal(got, b[5:5+len(got)]) {
			t.Errorf("%q of %q", got, b)
		}
	})
}

// FuzzLocate: a path of a client is one below a folder that waldo keeps, or is refused.
func FuzzLocate(f *testing.F) {
	for _, s := range []string{"", "a", "~/a", "/tmp/../etc", "/home/user/../../x", "/home/userx", "/tmp//a/./b", "..", "a\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		folder, rel, abs, err := locate(name)
		if err != nil {
			if failedAs(err) == nil {
				t.Error(err)
			}
			return
		}
		root := map[workspace.Folder]string{workspace.Files: home, workspace.Tmp: "/tmp"}[folder]
		if root == "" || path.Join(root, rel) != abs || abs != root && !strings.HasPrefix(abs, root+"/") ||
			strings.Contains("/"+rel+"/", "/../") {
			t.Errorf("%q: %s %q %q", name, folder, rel, abs)
		}
	})
}

// FuzzNetwork: what remains of a contract's hosts is of the contract, and asking for hosts never leaves all of them.
func FuzzNetwork(f *testing.F) {
	f.Add("a.example.com", "0.0.0.0/0")
	f.Add("*.example.com", "")
	f.Add("*", "")
	f.Add("::/0", "10.0.0.0/8")
	c := contract.Network{Allow: []string{"a.example.com", "GET b.example.com/v1/*", "*.example.org"}}
	f.Fuzz(func(t *testing.T, allow, deny string) {
		n := &network{}
		if allow != "" {
			n.AllowOut = []string{allow}
		}
		if deny != "" {
			n.DenyOut = []string{deny}
		}
		if n.check() != nil {
			return
		}
		remain, offline := n.hosts(c)
		for _, h := range remain {
			if !slices.Contains(c.Allow, h) {
				t.Errorf("%q allows %q", allow, h)
			}
		}
		all := len(remain) == 0 && !offline
		if all && (allow != "" && !slices.Contains(everything, allow) || allow == "" && deny != "") {
			t.Errorf("allow %q, deny %q leave all", allow, deny)
		}
	})
}

// FuzzTexts: readers of headers and of tracebacks take any text.
func FuzzTexts(f *testing.F) {
	f.Add("form-data; name=\"file\"; filename=\"/a/b\"", "Traceback (most recent call last):\n  x\nValueError: no\n", "aGk=")
	f.Fuzz(func(t *testing.T, header, stderr, text string) {
		_ = filename(header)
		if n := interval(header); n < time.Second || n > 5*time.Minute {
			t.Errorf("%q: every %v", header, n)
		}
		if fresh(header, time.Unix(1<<40, 0)) {
			t.Errorf("%q is far in the future", header)
		}
		wrote, trace := traceback(stderr)
		if wrote+trace != stderr {
			t.Errorf("%q and %q of %q", wrote, trace, stderr)
		}
		_, _ = raised(trace)
		if b, err := raw(text); err == nil && len(b) > len(text) {
			t.Errorf("%q of %q", b, text)
		}
		if _, err := json.Marshal(map[string]string{"name": header}); err != nil {
			t.Error(err)
		}
	})
}
