// Command release makes everything that a version of waldo is published as, from one commit: archives, packages, an
// image, a formula for Homebrew, bills of materials, a statement of provenance, and signed digests. The same commit and
// the same Go give the same bytes. It needs git, npm and the Go module proxy; no Docker, no root.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// target is what a binary is built for.
type target struct {
	OS, Arch string
	Lean     bool // without gVisor: an image alone is made of it
}

func (t target) String() string { return t.OS + "/" + t.Arch }

// targets are those of a release. macOS and Windows have isolation engine alone.
var targets = []target{
	{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}, {OS: "darwin", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"},
	{OS: "windows", Arch: "amd64"}, {OS: "linux", Arch: "amd64", Lean: true}, {OS: "linux", Arch: "arm64", Lean: true},
}

// release is one making of the files.
type release struct {
	version, commit string
	at              time.Time // of the commit; the time of every file
	source, out     string    // a clone of the commit; where the files go
	work            string    // what is between
	cache           string    // of Go's compiler; empty: the usual one
	url             string    // below which the files will be found
	targets         []target
	built           []binary
}

func main() {
	var r release
	var only, again, key string
	flag.StringVar(&r.out, "out", "dist", "`DIR` of the files; replaced")
	flag.StringVar(&r.url, "url", "https://example.com/waldo", "`URL` below which the files will be found")
	flag.StringVar(&only, "only", "", "build for these alone, as in linux/amd64,darwin/arm64")
	flag.StringVar(&key, "key", "", "`FILE` with the SSH key that signs the digests")
	flag.StringVar(&again, "again", "clean", "build again in another folder and compare: clean compiles all anew, shared does not, no")
	flag.Parse()
	if err := r.make(only, again, key); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) make(only, again, key string) error {
	r.targets = chosen(only)
	if len(r.targets) == 0 {
		return fmt.Errorf("-only %s names no target: expected some of linux/amd64, linux/arm64, darwin/amd64, darwin/arm64, "+
			"windows/amd64", only)
	}
	if again != "clean" && again != "shared" && again != "no" {
		return fmt.Errorf("-again %s: expected clean, shared or no", again)
	}
	if err := r.fromHere(); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "waldo-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	first, second := *r, *r
	first.source, first.work, first.out = filepath.Join(temp, "first"), filepath.Join(temp, "w"), filepath.Join(temp, "out")
	if err := first.all(); err != nil {
		return err
	}
	if again != "no" {
		second.source, second.out = filepath.Join(temp, "again", "in", "another", "folder"), filepath.Join(temp, "out2")
		second.work = filepath.Join(temp, "work-of-the-second")
		if again == "clean" {
			second.cache = filepath.Join(temp, "cache")
		}
		if err := second.all(); err != nil {
			return err
		}
		if err := same(first.out, second.out); err != nil {
			return err
		}
	}
	if err := sign(first.out, key); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(r.out), os.CopyFS(r.out, os.DirFS(first.out))); err != nil {
		return err
	}
	return r.tell(again, key)
}

// all makes every file from a clone of the commit.
func (r *release) all() error {
	if err := os.MkdirAll(r.work, 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, step := range []func() error{
		r.clone, r.build, r.manual, r.archives, r.packages, r.images, r.materials, r.formula, r.provenance, r.sums,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

var heading = regexp.MustCompile(`(?m)^## ([0-9]+\.[0-9]+\.[0-9]+)(, \d{4}-\d\d-\d\d)$`)

// fromHere finds the version, the commit and its time. The version is that of the newest dated heading of CHANGELOG.md.
func (r *release) fromHere() error {
	head, err := output(".", "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	var seconds int64
	if _, err := fmt.Sscanf(head, "%s %d", &r.commit, &seconds); err != nil {
		return fmt.Errorf("git log: %q: %w", head, err)
	}
	r.at = time.Unix(seconds, 0).UTC()
	changes, err := output(".", "git", "show", "HEAD:CHANGELOG.md")
	if err != nil {
		return err
	}
	r.version, err = versionOf(changes)
	if changed, _ := output(".", "git", "status", "--porcelain", "--untracked-files=no"); changed != "" {
		fmt.Fprintln(os.Stderr, "release: uncommitted changes are not in it")
	}
	return err
}

func versionOf(changes string) (string, error) {
	m := heading.FindStringSubmatch(changes)
	if m == nil {
		return "", errors.New("CHANGELOG.md has no heading of a version with its date, as in ## 0.1.0, 2026-11-24")
	}
	return m[1], nil
}

// clone makes a clone of the commit with what the build downloads, which is checked by its digest.
func (r *release) clone() error {
	if err := run(".", nil, "git", "clone", "-q", "--no-hardlinks", ".", r.source); err != nil {
		return err
	}
	return run(r.source, nil, "git", "-c", "advice.detachedHead=false", "checkout", "-q", r.commit)
}

func chosen(only string) (out []target) {
	for _, t := range targets {
		if only == "" || strings.Contains(","+only+",", ","+t.String()+",") {
			out = append(out, t)
		}
	}
	return out
}

// tell prints what there is, and what is missing.
func (r *release) tell(again, key string) error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return err
		}
		fmt.Printf("%10d  %s\n", info.Size(), f.Name())
	}
	what := map[string]string{
		"clean": "built twice, compiled anew in another folder, the same bytes", "no": "built once",
		"shared": "built twice in different folders with one cache of the compiler, the same bytes",
	}[again]
	signed := "signed by " + key
	if key == "" {
		signed = "UNSIGNED: make release KEY=FILE signs with an SSH key"
	}
	fmt.Printf("release: %s: waldo %s of commit %.12s by %s: %s; %s\n", r.out, r.version, r.commit, runtime.Version(), what, signed)
	return nil
}

// run runs a command in a folder, with further variables, and shows what it prints.
func run(dir string, env []string, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(c.Args, " "), err)
	}
	return nil
}

// output returns what a command prints, without the last newline.
func output(dir, name string, args ...string) (string, error) {
	return outputEnv(dir, nil, name, args...)
}

func outputEnv(dir string, env []string, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir, c.Stderr, c.Env = dir, os.Stderr, append(os.Environ(), env...)
	b, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(c.Args, " "), err)
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}
