package template

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Config is the part of an image's configuration that applies to commands. Its entry point and command are not
// used: waldo chooses the program.
type Config struct {
	Env []string `json:"env,omitempty"` // K=V
	Dir string   `json:"dir,omitempty"` // the working folder of a command; empty: waldo's own
	// the user of commands, as the sandbox sees it; 0: waldo's own, also where the image says root
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
}

// Bounds of an image's environment, and of its passwd.
const (
	maxEnv    = 256
	maxEnvAll = 64 << 10
	maxPasswd = 1 << 20
)

// ErrConfig is the error for an image whose configuration cannot be applied.
var ErrConfig = errors.New("the image's configuration")

// configOf reads the supported keys of an image's configuration. file reads a file of the unpacked image. It
// refuses an invalid environment, a relative folder, and a user that the image does not define.
func configOf(c v1.Config, file func(name string) (string, error)) (Config, error) {
	out := Config{Env: slices.Clone(c.Env)}
	all := 0
	for _, kv := range c.Env {
		k, _, ok := strings.Cut(kv, "=")
		if all += len(kv); !ok || k == "" || strings.ContainsRune(kv, 0) {
			return Config{}, fmt.Errorf("%w: ENV %.40q is not K=V", ErrConfig, kv)
		}
	}
	if len(c.Env) > maxEnv || all > maxEnvAll {
		return Config{}, fmt.Errorf("%w: more than %d lines or %d bytes of ENV: %w", ErrConfig, maxEnv, maxEnvAll, ErrTooMuch)
	}
	if c.WorkingDir != "" && c.WorkingDir != "/" {
		if !path.IsAbs(c.WorkingDir) || strings.ContainsRune(c.WorkingDir, 0) || len(c.WorkingDir) > maxName {
			return Config{}, fmt.Errorf("%w: WORKDIR %.40q must be an absolute path", ErrConfig, c.WorkingDir)
		}
		out.Dir = path.Clean(c.WorkingDir)
	}
	user, group, _ := strings.Cut(c.User, ":")
	var err error
	if out.UID, out.GID, err = userOf(user, group, file); err != nil {
		return Config{}, err
	}
	if out.UID == 0 {
		out.GID = 0 // a sandbox has no root: waldo's own user takes its place, with its group
	}
	return out, nil
}

// userOf finds the numbers of a user and a group, each a number or a name of the image's.
func userOf(user, group string, file func(string) (string, error)) (uid, gid int, err error) {
	if user == "" {
		return 0, 0, nil
	}
	line := entry(file, "etc/passwd", user)
	if uid, err = number(user); err != nil {
		if len(line) < 4 {
			return 0, 0, fmt.Errorf("%w: USER %.40q is not in its /etc/passwd", ErrConfig, user)
		}
		if uid, err = number(line[2]); err != nil {
			return 0, 0, fmt.Errorf("%w: USER %.40q: %w", ErrConfig, user, err)
		}
	}
	switch {
	case group == "" && len(line) > 3:
		gid, err = number(line[3])
	case group == "":
		gid = uid
	default:
		if gid, err = number(group); err != nil {
			line := entry(file, "etc/group", group)
			if len(line) < 3 {
				return 0, 0, fmt.Errorf("%w: group %.40q is not in its /etc/group", ErrConfig, group)
			}
			gid, err = number(line[2])
		}
	}
	if err == nil && uid != 0 && gid == 0 {
		gid = uid // no command runs in root's group
	}
	return uid, gid, err
}

// entry returns the fields of the line of a file such as /etc/passwd that has a name or a number.
func entry(file func(string) (string, error), name, who string) []string {
	text, err := file(name)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(f) > 2 && (f[0] == who || f[2] == who) {
			return f
		}
	}
	return nil
}

// number reads the number of a user or group. It refuses numbers that the kernel does not accept.
func number(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n >= math.MaxInt32-1 {
		return 0, fmt.Errorf("%w: %.40q is not a valid user number", ErrConfig, s)
	}
	return int(n), nil
}

// small reads a small file of the tree as a sandbox would find it.
func (t *tree) small(name string) (string, error) {
	at, err := t.follow(name)
	if err != nil {
		return "", err
	}
	f, err := t.root.Open(at)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxPasswd+1))
	if err == nil && len(b) > maxPasswd {
		err = ErrTooMuch
	}
	return string(b), err
}
