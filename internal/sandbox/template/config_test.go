package template

import (
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// accounts are the files of an image with a user of its own.
func accounts(name string) (string, error) {
	text, ok := map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\napp:x:10001:10002::/app:/bin/sh\nwild:x:99999999999:1::/:/bin/sh\n" +
			"short:x\n",
		"etc/group": "root:x:0:\nstaff:x:50:\n",
	}[name]
	if !ok {
		return "", fs.ErrNotExist
	}
	return text, nil
}

func TestConfigOf(t *testing.T) {
	for _, r := range []struct {
		why  string
		c    v1.Config
		want Config
		ok   bool
	}{
		{"nothing said", v1.Config{}, Config{}, true},
		{"environment and folder", v1.Config{Env: []string{"PATH=/opt/bin:/bin", "A="}, WorkingDir: "/app/"},
			Config{Env: []string{"PATH=/opt/bin:/bin", "A="}, Dir: "/app"}, true},
		{"the root folder is no folder", v1.Config{WorkingDir: "/"}, Config{}, true},
		{"root", v1.Config{User: "root"}, Config{}, true},
		{"root by number", v1.Config{User: "0:50"}, Config{}, true},
		{"a name", v1.Config{User: "app"}, Config{UID: 10001, GID: 10002}, true},
		{"a name and a group", v1.Config{User: "app:staff"}, Config{UID: 10001, GID: 50}, true},
		{"root's group", v1.Config{User: "app:root"}, Config{UID: 10001, GID: 10001}, true},
		{"a number that has a name", v1.Config{User: "10001"}, Config{UID: 10001, GID: 10002}, true},
		{"a number without a name", v1.Config{User: "7"}, Config{UID: 7, GID: 7}, true},
		{"nobody of that name", v1.Config{User: "nosuch"}, Config{}, false},
		{"no group of that name", v1.Config{User: "app:nosuch"}, Config{}, false},
		{"a number that is none", v1.Config{User: "wild"}, Config{}, false},
		{"a number below zero", v1.Config{User: "-1"}, Config{}, false},
		{"half a line", v1.Config{User: "short"}, Config{}, false},
		{"no K=V", v1.Config{Env: []string{"A"}}, Config{}, false},
		{"a zero byte", v1.Config{Env: []string{"A=\x00"}}, Config{}, false},
		{"too much", v1.Config{Env: []string{"A=" + strings.Repeat("x", maxEnvAll)}}, Config{}, false},
		{"a relative folder", v1.Config{WorkingDir: "app"}, Config{}, false},
	} {
		got, err := configOf(r.c, accounts)
		if (err == nil) != r.ok || !errors.Is(err, ErrConfig) && !r.ok || !reflect.DeepEqual(got, r.want) {
			t.Errorf("%s: %+v %v", r.why, got, err)
		}
	}
}

// FuzzConfigOf: for every image configuration, the user is not root, and the folder is absolute.
func FuzzConfigOf(f *testing.F) {
	f.Add("app", "app:x:10001:10002::/:/bin/sh\n", "/app", "A=b")
	f.Add("0:0", "", "..", "=")
	f.Fuzz(func(t *testing.T, user, passwd, dir, env string) {
		c, err := configOf(v1.Config{User: user, WorkingDir: dir, Env: []string{env}},
			func(string) (string, error) { return passwd, nil })
		if err != nil {
			return
		}
		if c.UID < 0 || c.GID < 0 || (c.UID == 0) != (c.GID == 0) || c.Dir != "" && !strings.HasPrefix(c.Dir, "/") {
			t.Errorf("%+v", c)
		}
	})
}
