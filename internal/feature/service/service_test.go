package service

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnits: systemd itself reads the units without a complaint, and rates what they leave open.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not here")
	}
	p := plan{system: true, root: t.TempDir(), program: "/bin/true", listen: []string{"127.0.0.1:7676", "[::1]:7676"}}
	if err := p.install(); err != nil {
		t.Fatal(err)
	}
	service, socket := filepath.Join(p.units(), "waldo.service"), filepath.Join(p.units(), "waldo.socket")
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", service, socket).CombinedOutput(); err != nil ||
		strings.Contains(string(out), p.units()) {
		t.Errorf("verify: %v\n%s", err, out)
	}
	rate := func(file, most string) error {
		return exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold="+most, file).Run()
	}
	if err := rate(service, "45"); err != nil { // 4.5 of 10, OK; a unit without settings has 9.6
		t.Errorf("systemd rates its exposure above 4.5: %v", err)
	}
	bare := filepath.Join(t.TempDir(), "waldo.service")
	if err := os.WriteFile(bare, []byte("[Service]\nExecStart=/bin/true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if rate(bare, "45") == nil {
		t.Error("control: a unit without settings passes")
	}
	wrong := p.head("waldo.service") + strings.Replace(p.service(), "Delegate=yes", "Delegate=perhaps", 1)
	if err := os.WriteFile(service, []byte(wrong), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _ := exec.Command("systemd-analyze", "verify", "--man=no", service, socket).CombinedOutput(); !strings.Contains(string(out), p.units()+"/waldo.service:") {
		t.Errorf("control: a wrong value passes: %s", out)
	}
}

// TestTrusted: the service of the machine runs no program that another user can exchange.
func TestTrusted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root owns a program of root")
	}
	dir, err := os.MkdirTemp("/var", "service-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "waldo")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	p := plan{system: true, program: program}
	if err := p.trusted(); err != nil {
		t.Errorf("control: %v", err)
	}
	for _, harm := range []struct {
		path string
		mode os.FileMode
	}{{program, 0o775}, {dir, 0o777}} {
		info, err := os.Stat(harm.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(harm.path, harm.mode); err != nil {
			t.Fatal(err)
		}
		if err := p.trusted(); !errors.Is(err, errWritable) {
			t.Errorf("%s with mode %o: %v", harm.path, harm.mode, err)
		}
		if err := os.Chmod(harm.path, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	p.program = "/root/waldo"
	if err := p.trusted(); err == nil || !strings.Contains(err.Error(), "does not see /root") && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program in a home: %v", err)
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"/usr/bin/waldo": "/usr/bin/waldo", "/a b/w": `"/a b/w"`, "/100%/$x": "/100%%/$$x"} {
		if got := quote(in); got != want {
			t.Errorf("%q gives %s, want %s", in, got, want)
		}
	}
}
