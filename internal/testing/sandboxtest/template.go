//go:build linux

package sandboxtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"waldo/internal/sandbox"
)

// anotherRoot makes a small root filesystem of its own out of a few programs of this machine.
func anotherRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	needed := map[string]bool{}
	library := regexp.MustCompile(`(/\S+\.so\S*) \(0x`)
	for _, program := range []string{"/bin/sh", "/bin/cat", "/bin/ls"} {
		needed[program] = true
		out, err := exec.Command("ldd", program).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", program, err)
		}
		for _, m := range library.FindAllStringSubmatch(string(out), -1) {
			needed[m[1]] = true
		}
	}
	put := func(at string, b []byte, mode os.FileMode) {
		at = filepath.Join(root, at)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, b, mode); err != nil {
			t.Fatal(err)
		}
	}
	for name := range needed {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, top := range []string{"/bin/", "/lib/", "/lib64/", "/lib32/", "/libx32/"} {
			if strings.HasPrefix(name, top) {
				name = "/usr" + name
			}
		}
		put(name, b, 0o755)
	}
	for _, top := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+top, filepath.Join(root, top)); err != nil {
			t.Fatal(err)
		}
	}
	put("etc/motd", []byte("another root\n"), 0o644)
	put("etc/private", []byte("its owner's\n"), 0o600)
	put("top", []byte("a file at the top"), 0o644)
	put("opt/keys", []byte("TOKEN"), 0o644)
	put("usr/local/etc/npmrc", []byte("TOKEN"), 0o644)
	put("usr/local/etc/npmrc.md", []byte("about npmrc"), 0o644)
	put("etc/apt/auth.conf.d/shop", []byte("TOKEN"), 0o644)
	put("tmp/pip.conf", []byte("of a folder that no sandbox shows"), 0o644)
	for name, target := range map[string]string{"etc/npmrc": "/opt/keys", "etc/pip.conf": "../tmp/pip.conf"} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, top := range []string{"proc", "dev", "sys", "tmp", "run", "workspace", "old"} {
		put(top+"/fake", []byte("the template's"), 0o644)
	}
	return root
}

// Template tests a driver that takes other roots than the host's.
func Template(t *testing.T, d sandbox.Driver) {
	root := anotherRoot(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("of this machine"), 0o644); err != nil {
		t.Fatal(err)
	}
	for at, target := range map[string]string{"evil": "/old", "out": filepath.Dir(secret),
		"usr/up": "../../../../../../../.." + secret} {
		if err := os.Symlink(target, filepath.Join(root, at)); err != nil {
			t.Fatal(err)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(root, "usr/up")); string(b) != "of this machine" {
		t.Fatalf("control: the link leads to %q on this machine; the rest proves nothing", b)
	}
	p := Profile()
	p.Template = sandbox.Template{Name: "dir:" + root, Dir: root}
	sb, err := d.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	for _, row := range []struct{ why, command, want string }{
		{"its own /etc", "cat /etc/motd", "another root\n"},
		{"files for their owner alone", "cat /etc/private", "its owner's\n"},
		{"none of this machine's programs", "ls /usr/bin/python3",
			"cannot access '/usr/bin/python3': No such file or directory"},
		{"nothing behind a link to this machine", "cat /usr/up", "No such file or directory"},
		{"nothing behind a link at the top", "cat /out/secret", "No such file or directory"},
		{"not the host's root", "ls /evil/etc", "No such file or directory"},
		{"read-only", "echo x > /etc/motd", "Read-only file system"},
		{"no credentials of registries", "cat /usr/local/etc/npmrc /etc/npmrc /opt/keys && ls -A /etc/apt/auth.conf.d && echo no more",
			"no more\n"},
		{"nothing else hidden", "cat /usr/local/etc/npmrc.md", "about npmrc"},
		{"no file at the top", "cat /top", "No such file or directory"},
		{"our own places", "for f in /*/fake; do echo $f; done", "/*/fake\n"},
		{"a /proc that works", "cat /proc/self/comm", "cat\n"},
		{"our writable places", "echo x > /workspace/output/a && cat /workspace/output/a", "x\n"},
	} {
		f, err := sb.Run(context.Background(), sandbox.Command{Argv: []string{"/bin/sh", "-c", row.command + " 2>&1"},
			Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(f.Stdout+f.Stderr, row.want) || strings.Contains(f.Stdout, "TOKEN") || strings.Contains(f.Stdout, "shop") {
			t.Errorf("%s: %s gave %q, want %q", row.why, row.command, f.Stdout+f.Stderr, row.want)
		}
		if f.Sandbox.Template != p.Template.Name {
			t.Errorf("the facts name the template %q", f.Sandbox.Template)
		}
	}
	p.Template.UID, p.Template.GID = 4321, 4322
	other, err := d.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, row := range []struct{ why, command, want string }{
		{"the template's user", "cat /proc/self/status", "Uid:\t4321\t4321\t4321\t4321\nGid:\t4322\t4322\t4322\t4322\n"},
		{"files for their owner alone", "cat /etc/private", "its owner's\n"},
		{"our writable places", "echo x > /workspace/output/a && echo y > /tmp/a && cat /workspace/output/a", "x\n"},
	} {
		f, err := other.Run(context.Background(), sandbox.Command{Argv: []string{"/bin/sh", "-c", row.command + " 2>&1"},
			Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil || !strings.Contains(f.Stdout, row.want) {
			t.Errorf("%s: %s gave %q, want %q: %v", row.why, row.command, f.Stdout+f.Stderr, row.want, err)
		}
	}
}
