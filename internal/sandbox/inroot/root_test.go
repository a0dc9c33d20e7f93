//go:build linux

package inroot

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// tree makes files ("text"), links ("-> target") and returns the root of all.
func tree(t *testing.T, files map[string]string) (string, *Root) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		err := error(nil)
		if target, link := cut(text); link {
			err = os.Symlink(target, at)
		} else {
			err = os.WriteFile(at, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return dir, r
}

func cut(text string) (string, bool) {
	if len(text) > 3 && text[:3] == "-> " {
		return text[3:], true
	}
	return "", false
}

func TestCredentials(t *testing.T) {
	_, empty := tree(t, nil)
	if got, err := empty.Credentials(""); err != nil || got != nil {
		t.Fatalf("an empty root: %q %v", got, err)
	}
	_, r := tree(t, map[string]string{
		"usr/bin/node": "", "srv/keys/npm": "token", "home/ann/.netrc": "token", "home/readme": "no folder",
		"usr/local/nvm/versions/node/v24.1.0/etc/npmrc": "token", "etc/apt/auth.conf.d/shop.conf": "token",
		"usr/etc/npmrc": "-> /srv/keys/npm", "usr/local/etc/other": "no known name", "etc/pip.conf": "-> /usr/bin",
		"usr/local/cargo": "-> ../../../../../../etc", "etc/credentials.toml": "token", "etc/gemrc": "-> gemrc",
		"etc/yarnrc/sub": "a folder under a file's name",
		// judged by what is in them; without it their tools do not start
		"etc/maven/settings.xml":              "<settings><!-- <password>x</password> --></settings>",
		"opt/maven/conf/settings.xml":         "<settings><!-- a --><server><password>x</password></server></settings>",
		"usr/local/cargo2/config.toml":        "token = 1",
		"home/ann/.cargo/config.toml":         "[registries.a]\ntoken = 'x'",
		"root/.cargo/config.toml":             "[build]\njobs = 2",
		"root/.nuget/NuGet/NuGet.Config":      "<packageSourceCredentials/>",
		"home/ann/.nuget/NuGet/NuGet.Config":  "<packageSources/>",
		"root/.m2/settings.xml":               "<settings><profiles/></settings>",
		"root/.m2/settings-security.xml":      "<master>{x}</master>",
		"root/.gradle/gradle.properties":      "any name = x",
		"opt/gradle/init.d/repository.gradle": "", "root/.config/pip/pip.conf": "index-url = x",
	})
	want := []string{"/etc/apt/auth.conf.d/", "/etc/credentials.toml", "/home/ann/.cargo/config.toml", "/home/ann/.netrc",
		"/opt/gradle/init.d/", "/opt/maven/conf/settings.xml", "/root/.config/pip/pip.conf", "/root/.gradle/gradle.properties",
		"/root/.m2/settings-security.xml", "/root/.nuget/NuGet/NuGet.Config", "/srv/keys/npm",
		"/usr/local/nvm/versions/node/v24.1.0/etc/npmrc"}
	if got, err := r.Credentials(""); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q %v\nwant %q", got, err, want)
	}
}

func TestNoLinkLeadsOut(t *testing.T) {
	dir, r := tree(t, map[string]string{"etc/motd": "inside", "up": "-> ../../../../../../../etc/motd", "a/abs": "-> /etc/motd",
		"self": "-> /proc/self/root"})
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/etc/motd", "up", "/a/abs", "../../etc/motd"} {
		f, at, err := r.Open(name)
		if err != nil || at != "/etc/motd" {
			t.Errorf("%s: %q %v", name, at, err)
			continue
		}
		if b, _ := io.ReadAll(f); string(b) != "inside" {
			t.Errorf("%s: %q", name, b)
		}
		f.Close()
	}
	for _, name := range []string{"/etc/passwd", "self/etc/passwd", "pipe"} { // this machine has the first
		if f, at, err := r.Open(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v %q %v", name, f, at, err)
		}
	}
}

func BenchmarkCredentials(b *testing.B) {
	r, err := Open("/")
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for b.Loop() {
		if _, err := r.Credentials("usr/"); err != nil {
			b.Fatal(err)
		}
	}
}
