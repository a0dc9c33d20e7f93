// Package service installs waldo as a service of systemd: for the machine, as a user without other rights, or for one person. A
// socket starts it on demand.
package service

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// marker begins each file that this package writes. It replaces and removes no other file.
const marker = "# Written by waldo service install."

// head begins a unit: with the marker, and the command that changes the unit for good.
func (p plan) head(unit string) string {
	edit := "systemctl edit "
	if !p.system {
		edit = "systemctl --user edit "
	}
	return marker + " Changes belong into a drop-in: " + edit + unit + "\n"
}

// plan is what makes a service.
type plan struct {
	system  bool
	root    string // the files are below it, and nothing is started; empty: this machine
	program string // waldo's own, by its whole path
	listen  []string
	home    string // of the user of a user's service
	state   string // of a user's service; empty: the usual one
	config  string // the same
}

// file is one that belongs to the service.
type file struct {
	Path    string      `json:"path"`
	Mode    fs.FileMode `json:"-"`
	Content string      `json:"content"`
	keep    bool        // it is the operator's once it is there
}

func (p plan) units() string {
	if p.system {
		return p.root + "/etc/systemd/system"
	}
	return filepath.Join(p.root+p.home, ".config/systemd/user")
}

// files are the files of the service.
func (p plan) files() []file {
	out := []file{
		{Path: p.units() + "/waldo.service", Mode: 0o644, Content: p.head("waldo.service") + p.service()},
		{Path: p.units() + "/waldo.socket", Mode: 0o644, Content: p.head("waldo.socket") + p.socket()},
	}
	if p.system {
		out = append(out,
			file{Path: p.root + "/etc/sysusers.d/waldo.conf", Mode: 0o644,
				Content: marker + "\nu waldo - \"waldo, a gateway for AI agents\" /var/lib/waldo\n"},
			file{Path: p.root + configuration, Mode: 0o644, keep: true,
				Content: "# The configuration of the service waldo: see waldo init, and docs/reference/configuration.md.\nversion: 1\n"})
	}
	return out
}

// configuration is the waldo.yaml of the service of the machine. Secrets are references: everybody can read it.
const configuration = "/etc/waldo/waldo.yaml"

func (p plan) socket() string {
	var b strings.Builder
	b.WriteString("[Unit]\nDescription=The gateway waldo, started on demand\nDocumentation=man:waldo-service(1)\n\n[Socket]\n")
	for _, at := range p.listen {
		fmt.Fprintf(&b, "ListenStream=%s\n", at)
	}
	b.WriteString("BindIPv6Only=ipv6-only\nNoDelay=yes\n\n[Install]\nWantedBy=sockets.target\n")
	return b.String()
}

// arguments are those of every command of the service.
func (p plan) arguments() string {
	args := quote(p.program)
	config, state := p.config, p.state
	if p.system {
		config, state = configuration, "/var/lib/waldo"
	}
	if config != "" {
		args += " --config " + quote(config)
	}
	if state != "" {
		args += " --state " + quote(state)
	}
	return args
}

// quote writes a word as systemd reads it (systemd.service(5), command lines).
func quote(s string) string {
	s = strings.NewReplacer("%", "%%", "$", "$$", `\`, `\\`, `"`, `\"`).Replace(s)
	if strings.ContainsAny(s, " \t'\"\\;") {
		return `"` + s + `"`
	}
	return s
}

// common is what both services have. /proc stays whole and namespaces stay allowed: sandboxes are made of them, and the
// kernel mounts a new /proc only where no part of the old one is covered. RestrictSUIDSGID= is left out: it takes openat2
// away, which holds paths inside of folders.
const common = `UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
`

// machine is what the service of the machine has beside it.
const machine = `User=waldo
Group=waldo
StateDirectory=waldo
StateDirectoryMode=0700
WorkingDirectory=/var/lib/waldo
Environment=HOME=/var/lib/waldo
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
ProtectClock=yes
ProtectKernelModules=yes
PrivateDevices=yes
PrivateTmp=yes
RemoveIPC=yes
`

func (p plan) service() string {
	run := p.arguments()
	s := "[Unit]\nDescription=waldo, a gateway between AI agents and their tools\nDocumentation=man:waldo-serve(1)\n" +
		"Requires=waldo.socket\nAfter=waldo.socket network.target\n\n[Service]\nType=notify\n" +
		"ExecStart=" + run + " serve\nExecReload=" + run + " reload\n" +
		"Restart=on-failure\nRestartSec=2\nKillMode=mixed\nTimeoutStopSec=30\nDelegate=yes\nTasksMax=8192\nLimitNOFILE=65536\n" + common
	if p.system {
		s += machine
	}
	return s
}

// commands are run after the files are written, in this order.
func (p plan) commands() [][]string {
	if p.root != "" {
		return nil
	}
	if p.system {
		return [][]string{{"systemd-sysusers", "waldo.conf"}, {"systemctl", "daemon-reload"},
			{"systemctl", "enable", "--now", "waldo.socket"}}
	}
	return [][]string{{"systemctl", "--user", "daemon-reload"}, {"systemctl", "--user", "enable", "--now", "waldo.socket"}}
}

// foreign is a file in the way that this package did not write.
type foreign string

func (f foreign) Error() string { return string(f) + " is there, and waldo did not write it" }

// install writes the files and starts the socket.
func (p plan) install() error {
	if err := p.trusted(); err != nil {
		return err
	}
	for _, f := range p.files() {
		if old, err := os.ReadFile(f.Path); err == nil && !f.keep && !bytes.HasPrefix(old, []byte(marker)) {
			return foreign(f.Path)
		}
	}
	for _, f := range p.files() {
		if _, err := os.Lstat(f.Path); err == nil && f.keep {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(f.Path, []byte(f.Content), f.Mode); err != nil {
			return err
		}
	}
	return runAll(p.commands())
}

// errWritable: another user could change what the service of the machine runs.
var errWritable = errors.New("must belong to root, and no other user may write it or a folder above it")

// trusted returns an error where the service of the machine would run a program that others can change, or that lies
// in a home, which the service does not see.
func (p plan) trusted() error {
	if !p.system || p.root != "" {
		return nil
	}
	for at := p.program; ; at = filepath.Dir(at) {
		if at == "/home" || at == "/root" || at == "/tmp" {
			return fmt.Errorf("%s: the service does not see %s", p.program, at)
		}
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		if !ofRoot(info) || info.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("%s: %s %w", p.program, at, errWritable)
		}
		if at == "/" {
			return nil
		}
	}
}

// uninstall stops the service and removes its files. The configuration and the state stay without purge.
func (p plan) uninstall(purge bool) (removed []string, err error) {
	ours := false
	for _, f := range p.files() {
		old, err := os.ReadFile(f.Path)
		if err == nil && !f.keep && !bytes.HasPrefix(old, []byte(marker)) {
			return nil, foreign(f.Path)
		}
		ours = ours || err == nil && !f.keep
	}
	if ours && p.root == "" && running() {
		if err := runAll([][]string{p.systemctl("disable", "--now", "waldo.socket", "waldo.service")}); err != nil {
			return nil, err
		}
	}
	for _, f := range p.files() {
		if f.keep && !purge {
			continue
		}
		switch err := os.Remove(f.Path); {
		case err == nil:
			removed = append(removed, f.Path)
		case !errors.Is(err, fs.ErrNotExist):
			return removed, err
		}
	}
	if p.system && purge {
		for _, dir := range []string{p.root + filepath.Dir(configuration), p.root + "/var/lib/waldo"} {
			if err := os.RemoveAll(dir); err != nil {
				return removed, err
			}
			removed = append(removed, dir)
		}
	}
	if p.root != "" || !ours {
		return removed, nil
	}
	if running() {
		err = runAll([][]string{p.systemctl("daemon-reload")})
	}
	if p.system && purge {
		err = errors.Join(err, runAll([][]string{{"userdel", "waldo"}}))
	}
	return removed, err
}

func (p plan) systemctl(args ...string) []string {
	if p.system {
		return append([]string{"systemctl"}, args...)
	}
	return append([]string{"systemctl", "--user"}, args...)
}

// running reports whether systemd is the service manager of this machine (sd_booted(3)).
func running() bool {
	_, err := os.Lstat("/run/systemd/system")
	return err == nil
}

func runAll(all [][]string) error {
	for _, c := range all {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// state is what waldo service status found.
type state struct {
	Installed bool     `json:"installed"` // all files are there, as this waldo writes them
	Changed   []string `json:"changed,omitempty"`
	Socket    string   `json:"socket"` // of systemctl is-active
	Service   string   `json:"service"`
	Listen    []string `json:"listen"`
}

// look returns what there is.
func (p plan) look() state {
	s := state{Installed: true, Socket: "unknown", Service: "unknown", Listen: []string{}}
	for _, f := range p.files() {
		old, err := os.ReadFile(f.Path)
		s.Installed = s.Installed && err == nil
		if err == nil && !f.keep && string(old) != f.Content {
			s.Changed = append(s.Changed, f.Path)
		}
		for line := range strings.Lines(string(old)) {
			if at, ok := strings.CutPrefix(strings.TrimSpace(line), "ListenStream="); ok {
				s.Listen = append(s.Listen, at)
			}
		}
	}
	if p.root == "" && running() {
		for unit, to := range map[string]*string{"waldo.socket": &s.Socket, "waldo.service": &s.Service} {
			c := p.systemctl("is-active", unit)
			out, _ := exec.Command(c[0], c[1:]...).Output() // an inactive one is no failure
			if text := strings.TrimSpace(string(out)); text != "" {
				*to = text
			}
		}
	}
	return s
}
